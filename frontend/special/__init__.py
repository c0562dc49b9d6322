"""Special functions as graphs of nodes: arithmetic that every device has.

In       a node of float32 or float64
Out      nodes: elementary.py (erf, tanh, ...), gamma.py, bessel.py, incomplete.py, normal.py, angles.py, polynomials.py
Changes  nothing on import
Next     ../ops/ (the methods that have them), docs/semantics.md
"""
