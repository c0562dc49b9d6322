"""CUDA: coredumps of GPUs, and what compute-sanitizer and cuda-gdb print, as events with what they mean."""
