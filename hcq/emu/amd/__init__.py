"""The shader core of an emulated AMD GPU: real gfx1100 and gfx942 machine code, run by NumPy over all lanes at once.

    isa.py       what an instruction set is: formats, opcodes, decode, encode
    rdna3.py     gfx1100: its formats; rdna3_opcodes.py is its opcode table      cdna3*.py: the same for gfx942
    assembler.py text operands to words, for tests and tools; disassembly.py is the way back
    memory.py    the address space that kernels see; every stray address is a PageFault
    waves.py     a batch of waves that share a program counter: their registers
    operands.py  how an instruction's operands become NumPy views
    scalar.py, vector_*.py, lanes.py, memory_ops.py, lds.py, atomics.py, matrix.py    what instructions mean
    engine.py    run_dispatch: batches split at branches, meet again, wait at barriers, and stop

Nothing here is imported by `import hcq`; NumPy is needed only when an emulated device runs a kernel.
"""
