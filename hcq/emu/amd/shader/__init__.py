"""The shader core of an emulated AMD GPU: machine code of seven instruction sets, run by NumPy over many waves at once.

Each group stands on those above it.

Instruction sets
    isa.py               what one is: formats, opcodes, decode, encode
    rdna3.py             gfx11: its formats; opcodes/ has numbers and names
    rdna2.py, rdna35.py, rdna4.py   gfx1030, gfx1151 and gfx12, as changes of it
    cdna2.py, cdna3.py, cdna4.py   the same for gfx90a, gfx942 and gfx950
    architectures.py     which architecture has which; disassembly.py: instructions as text
State
    errors.py            what can stop a kernel
    arrays.py            arrays over waves and lanes; lane masks
    memory.py            the address space that kernels see; a stray address is a PageFault
    wave_start.py        what a kernel's registers start as
    residents.py         waves that are resident together: workgroups, LDS, scratch, barriers
    waves.py             a batch of waves: its registers and lane masks
Instructions
    operands.py          how an instruction's operands become NumPy views; vector_operands.py: halves, SDWA, modifiers
    control.py           branches, calls, barriers, MODE
    scalar_ops.py, scalar_float_ops.py, scalar_memory_ops.py
    vector_ops.py        EXEC, DPP and dual issue around the meanings in meaning.py's tables:
                         integer_ops.py, float_ops.py, convert_ops.py; floats.py rounds
    carry_ops.py, compare_ops.py, lane_ops.py, packed_ops.py, matrix_ops.py, wmma_ops.py
    scaled_matrix_ops.py, scaled_convert_ops.py, truth_table_ops.py   what came with gfx950
    lane_access.py       what loads, stores and atomics move: memory_ops.py, lds_ops.py, atomic_ops.py
Running
    program.py           code decoded once, compiled into blocks of steps
    machine.py           batches of resident waves part at branches, meet again, wait at barriers, and stop
    native.py            waves as machine code; native_text.py: the code; native_launch.py: whole launches
    run.py               run_dispatch: from a grid to resident waves
"""
