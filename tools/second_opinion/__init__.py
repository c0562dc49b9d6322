"""A second opinion on emulated AMD GPUs: one HIP program on two machines, its memory compared after each kernel.

__main__.py   the program: builds what is needed, runs the HIP program on both machines, compares
machines.py   the machines: our emulated GPUs, AMD's emulator rocjitsu, the GPU of this computer
watch_hip.c   what is loaded into the HIP program and records its memory
"""
