"""NVIDIA GPUs through the open kernel module: RM and UVM ioctls, channels, GPFIFO rings and QMD launches.

Here are the declarations on which the driver stands: methods and pushbuffers (methods.py), the ring (gpfifo.py), launch
descriptions (qmd.py), classes (classes.py), the kernel interface by driver release (abi.py, status.py), and the code
objects and compilers (cubin.py, toolchain/). What opens a device and submits to it is not here yet.
"""
