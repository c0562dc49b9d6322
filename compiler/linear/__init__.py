"""linear: a loop nest is written down as a list of instructions.

linearize.py (loops and reductions), staging.py (operands copied into scratch), lower_expr.py (nodes at a point),
emitter.py (where an instruction stands), program.py (the instructions).
"""
