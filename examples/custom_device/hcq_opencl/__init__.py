"""OpenCL as a device of hcq: a whole device of another package, over an API that machines have.

backend.py     its entry: what the rest is and where; pyproject.toml names it
api.py         the calls of OpenCL, by cffi; what they refuse
packets.py     commands as words, declared once: encoder, decoder, trace and rules read the same classes
processor.py   the thread that reads those words and asks OpenCL to do what they say
kernel.py      a loaded kernel: how it was built, what its parameters are
device.py      the device: opening, memory, encoding, submission, faults
rules.py       what its packets do, in words that all rules share
codegen.py     kernels: loops to work-groups and work-items, instructions to statements of OpenCL C
arithmetic.py  an expression of OpenCL C for each operation
doctor.py      what it tells `python -m hcq doctor`
"""
