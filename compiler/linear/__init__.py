"""linear: a loop nest is written down as a list of instructions.

linearize.py (the lists of lowerings), context.py (what each of them is given), lower_expr.py (nodes at a point),
emitter.py (where an instruction stands), program.py (the instructions).
"""
