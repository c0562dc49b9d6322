"""The model of a kernel's time: what it would take on a chip, and what it waits for.

In       Counters of a launch; a chip's datasheet
Out      seconds, and the parts of them in words
Next     chips.py, rates.py and rates_nvidia.py, rates_amd.py, rates_apple.py (what chips reach), l1_path.py (loads
         and stores in a unit), resources.py (work over rates), waiting.py (latency), time.py (all of it together);
         ../roofline.py (the floor); docs/model.md (beside measurements)
"""
