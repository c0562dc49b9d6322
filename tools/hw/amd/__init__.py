"""What the hardware check knows of AMD GPUs alone; the files have the names of their sisters in ../nv."""
