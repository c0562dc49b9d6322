"""Emulated kernel drivers and GPUs: they answer the drivers' ioctls and execute their packets and kernels on the CPU.

port.py    EmulatedPort: HCQ_EMULATE=amd:gfx1100 makes such a GPU appear
amd/       the emulated KFD, packet processors, and the shader core
nv/        the shader core of emulated NVIDIA GPUs
"""
