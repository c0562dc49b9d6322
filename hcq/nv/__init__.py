"""NVIDIA GPUs through the open kernel module: RM and UVM ioctls, channels, GPFIFO rings and QMD launches.

Nothing lives here yet. It will hold the same files as hcq/cpu: device, packets, encode, program.
"""
