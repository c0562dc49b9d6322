"""What the hardware check knows of NVIDIA GPUs alone; the files have the names of their sisters in ../amd."""
