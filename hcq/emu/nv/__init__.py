"""An emulated NVIDIA GPU. ptx/ is its shader core: kernels run as PTX, by NumPy over all threads at once."""
