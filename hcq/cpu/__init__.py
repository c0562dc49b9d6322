"""The CPU device: a ring, a doorbell, a native command processor and workers; kernels are plain C functions.

device.py     opens it, checks and sends work
packets.py    every word host and command processor share
encode.py     commands to packets and back
processor.py  the command processor itself, as LLVM IR
program.py    code objects become callable; link.py and relocations.py do the linking
"""
