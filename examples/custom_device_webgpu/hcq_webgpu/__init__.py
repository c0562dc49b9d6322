"""WebGPU as a device of hcq: memory without addresses, which the host does not see, and kernels in WGSL.

backend.py     its entry: what the rest is and where; pyproject.toml names it
api.py         the adapter, what it must be able to do, and the calls of wgpu that we make
areas.py       addresses of our own for WebGPU's buffers, and how the host reads and writes them
packets.py     commands as words, declared once: encoder, decoder, trace and rules read the same classes
kernel.py      WGSL built for the device; what its bindings take
commands.py    packets as calls of wgpu: launches, copies and fills of any alignment
processor.py   the thread that reads packets, waits for signals and stores them
device.py      the device: opening, memory, encoding, submission, faults
rules.py       what its packets do, in words that all rules share
codegen.py     kernels: loops to workgroups and invocations, instructions to statements of WGSL
arithmetic.py  an expression of WGSL for each operation
doctor.py      what it tells `python -m hcq doctor`
"""
