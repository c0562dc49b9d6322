"""Running: lazy tensors get memory: a known plan is run again, a new graph is scheduled, compiled and kept.

In       tensors that are not computed yet
Out      realize.py: `realize`; plan.py, kernels with their memory; short.py, the short way of one known operation
Changes  nothing on import
Next     ../schedule/ (a graph to kernels), ../core/, docs/architecture.md
"""
