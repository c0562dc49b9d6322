"""The core: what a tensor is made of: a node of a graph, the memory of a leaf, and which tensors show the same memory.

In       numbers, a shape, the name of a device
Out      base.py: `Core`, a node on a device; nodes.py, the steps of a graph; storage.py, the memory of a leaf; views.py
Changes  nothing on import
Next     ../tensor.py (the class that programs use), ../grad/, ../schedule/, ../run/ (what is done with such graphs)
"""
