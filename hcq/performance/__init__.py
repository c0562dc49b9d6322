"""Performance: what launches asked of a chip, what the chip can do, and what follows for the time.

In       what emulated shader cores counted; a chip's name
Out      counters, peak rates, the least time that a kernel takes
Changes  nothing by being imported
Next     counters.py (what was counted), datasheets.py (peak rates), roofline.py (the time)
"""
