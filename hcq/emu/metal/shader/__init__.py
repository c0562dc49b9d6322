"""MSL on a CPU: the text of a kernel, parsed, translated to NumPy or to machine code, and run.

The text
    errors.py       what stops a kernel
    types.py        scalar types, how C joins two of them
    syntax.py       the tree; parser.py makes it
    typed.py        C's types over that tree, whatever it is translated to
By NumPy, all threads at once
    translate.py    the tree as a function of Python: each statement for all threads, under a mask
    device_races.py  races in device memory (HCQ_SANITIZE=race)
    machine.py      what that function calls: memory, masks, barriers, what threads of a SIMD group exchange
By machine code, many threads as one vector
    lanes.py        what threads compute, as LLVM IR
    statements.py   conditions and loops, and masks where threads part
    groups.py       threads and groups around it: pieces between barriers, slots
    compiled.py     the machine code of that, and its launch
Both
    program.py      a kernel ready to run, either way
    stopping.py     what tells a kernel to end, and where it looks
    race_stops.py   HCQ_SANITIZE=race: a race that stopped a kernel

A subset of MSL 2.4, which is what compiler/render/metal.py writes and the kernels of tests: numbers and vectors of
them, loops that count, conditions, functions, device and threadgroup memory, barriers. What is not in it is refused
by name.
"""
