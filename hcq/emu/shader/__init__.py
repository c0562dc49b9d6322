"""What shader cores of several vendors have in common, below each vendor's own.

In       arrays of lanes
Out      arrays, as every vendor's hardware computes them
Next     floats.py (rounding, bfloat16), small_floats.py (formats of four to eight bits), bits.py (integers),
         ranges.py (where memory is mapped), memory_checks.py and access_faults.py (HCQ_SANITIZE=memory),
         shadow_bits.py and unwritten.py (HCQ_SANITIZE=init); traffic.py and between_blocks.py (what is counted);
         hcq/emu/amd/shader/ and hcq/emu/nv/shader/ stand on it
"""
