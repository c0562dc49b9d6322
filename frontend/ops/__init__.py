"""Methods: what a Tensor can do, one idea a file; each is a group of methods that stands beside the others.

In       tensors and Python values
Out      lazy tensors; nothing runs
Next     base.py, declared.py (the base of each), core/nodes.py (what they are made of), ../tensor.py (who joins them)
"""
