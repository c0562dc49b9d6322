"""The tensor layer: lazy tensors, gradients, the scheduler, and what runs them on a device.

In       Python numbers and arrays
Out      tensors: graphs of ir nodes, computed when their values are needed
Changes  nothing on import; devices open when a tensor first needs one
Next     tensor.py (the class), run/realize.py (the way to the device), grad/gradient.py, nn/
"""
