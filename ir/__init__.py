"""ir: the one graph that tensors, kernels and linear programs are made of; imports nothing of ours outside this folder.

Read in this order: dtype.py (number formats), op.py (what can be said), shape.py and infix.py (what an op makes of its
sources' shapes and texts), node.py (how it is held), elementwise/ (all there is to know of each op on numbers); then
index arithmetic: bounds.py (value ranges), affine.py (sums and quotients), logic.py (conditions), symbolic.py (whole
graphs), conditional_bounds.py (ranges under a condition); then pattern.py and rewrite.py (rules and passes), verify.py
(what each stage allows), show.py (listings); then meaning.py (what it all computes).
"""
