"""ir: the one graph that tensors, kernels and linear programs are made of; imports nothing of ours outside this folder.

Read in this order: dtype.py (number formats), op.py (what can be said), node.py (how it is held), shape.py; then index
arithmetic: bounds.py (value ranges), affine.py (sums and quotients), logic.py (conditions), symbolic.py (whole graphs),
conditional_bounds.py (ranges under a condition); then rewrite.py (rules and passes), verify.py (what each stage
allows), show.py (printing); then meaning.py and evaluate.py (what it all computes).
"""
