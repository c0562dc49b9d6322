"""Rewrites: a graph in a form that devices compute faster. Each leaves every value as it was; no graph needs one.

In       roots, or one node; what the device has: workers, formats of its matrix units
Out      the same values: convolutions without gaps (gaps.py, planes.py), read with channels together (channels.py);
         reductions and scans in two steps (two_steps.py); sorts with their counters (sorts.py)
Next     ../schedule/schedule.py and ../schedule/simplify.py (who rewrite with them)
"""
