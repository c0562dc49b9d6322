"""Symbolic sizes: whole numbers that are known only when the work runs, in shapes and as places.

In       `hcq.Variable("n", 1, 512)` and a number for it
Out      variable.py: `Bound`, such a number; ../core/sizes.py, which axes of a graph have such a size; placing.py
Changes  nothing on import
Next     ../core/nodes.py (who asks), docs/symbolic.md
"""
