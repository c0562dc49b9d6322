"""MSL on a CPU: the text of a kernel, parsed, translated to NumPy over all threads at once, and run.

errors.py      what stops a kernel
types.py       scalar types, how C joins two of them
lexer.py       words of the text
syntax.py      the tree; parser.py makes it
translate.py   the tree as a function of Python: each statement for all threads, under the mask of those that are there
machine.py     what that function calls: memory, masks, barriers, what threads of a SIMD group exchange
program.py     a kernel ready to run: groups in batches

A subset of MSL 2.4, which is what compiler/render/metal.py writes and the kernels of tests: numbers and vectors of
them, loops that count, conditions, functions, device and threadgroup memory, barriers. What is not in it is refused
by name.
"""
