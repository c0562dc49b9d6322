"""elementwise: every operation on single numbers, declared once: what it takes, computes, and how targets write it.

Read declaration.py (what there is to say of one), functions.py (of one number), operators.py (of two and three); then
table.py, from which the interpreter of numbers, the verifier, the passes, the renderers and the gradients take what
they need.
"""
