"""Gradients: from a result back to the tensors that it was computed from.

In       tensors
Out      gradient.py: `backward` and `grad`; derivatives.py, the rule of each op; function.py, rules of a function's own
Changes  nothing on import
Next     ../core/ (graphs), docs/training.md
"""
