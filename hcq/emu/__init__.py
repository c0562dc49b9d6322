"""Emulated kernel drivers and GPUs: they answer the drivers' ioctls and execute their packets and kernels on the CPU.

Nothing lives here yet. HCQ_EMULATE will make emulated devices appear beside real ones.
"""
