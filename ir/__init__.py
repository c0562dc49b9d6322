"""ir: the one graph that tensors, kernels and linear programs are made of; imports nothing of ours outside this folder.

Read in this order: dtype.py (number formats), op.py (what can be said), node.py (how it is held), shape.py, symbolic.py
(integer arithmetic with ranges), rewrite.py (rules and passes), verify.py (what each stage allows), show.py (printing).
"""
