"""passes: from graph to graph, one pass a file; pipeline.py has them in their order.

lower_movement.py (with views.py), skip_gaps.py, split_ranges.py, fold_identities.py, promote_floats.py (with
narrow_floats.py), decompose.py (with transcendental.py and trigonometry.py).
"""
