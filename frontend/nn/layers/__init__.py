"""Layers: the modules that models are made of, with PyTorch's arguments, initial values and names of state.

In       sizes, then tensors
Out      one file for each family: linear, convolution, pooling, norm, recurrent, attention, transformer, ...
Changes  nothing; a new layer's parameters are drawn at once
Next     ../module.py (what a module is), ../functional.py (what they compute), ../init.py (where parameters start)
"""
