"""loops: a kernel's ranges become loops, and somebody chooses which.

loop_nest.py (the loops and their transforms), heuristic.py, heuristic_gpu.py and heuristic_plain.py (who chooses),
contraction.py (matrix products and convolutions), accesses.py and affine.py (what they read off the kernel).
"""
