"""Compiled shader cores: what an interpreter does with arrays of lanes, written down as LLVM IR, run as machine code.

In       the interpreter's own steps
Out      machine code that leaves the same bits
Next     symbols.py (what stands for arrays), writer.py (the text), assemble.py (machine code),
         launches.py (whole launches), threads.py (on all cores), hcq/emu/amd/shader/native.py (who uses it)
"""
