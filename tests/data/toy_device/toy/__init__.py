"""A toy device, complete: how a kind of device that hcq has never heard of becomes one of its own.

backend.py     its entry: what the rest is and where; the package's entry point names it (see CONTRIBUTING.md)
packets.py     its words, declared once: encoder, decoder, trace and rules read the same classes
device.py      the device: memory, a ring, and the thread that works on it
rules.py       what its packets do, in words that all rules share
codegen.py     kernels: the compiler's linear program as text, which is this device's machine code
machine.py     what that machine code runs on
doctor.py      what it tells `python -m hcq doctor`
"""
