"""An emulated AMD GPU: the kernel driver's answers, the packet processors, and a shader core that runs machine code.

The driver and the queues
    kfd.py, kfd_topology.py, kfd_memory.py, kfd_events.py, kfd_queues.py    what /dev/kfd and sysfs answer
    gpu.py, pm4_processor.py, aql_processor.py, sdma_processor.py           rings, doorbells, packets
    caches.py                                                               what is stale or hidden (amd:gfx1100:caches)
    dispatch.py, shader.py                                                  from a packet to run_dispatch

The shader core: real machine code of four architectures, run by NumPy over the lanes of many waves at once
    isa.py           what an instruction set is: formats, opcodes, decode, encode
    rdna3.py         gfx11: its formats; rdna3_opcodes.py is its opcode table (likewise rdna4: gfx12, cdna3: gfx942)
    disassembly.py   instructions as text; assembler.py is the way back
    wave_start.py    what a kernel's registers start as
    engine.py        run_dispatch: batches of waves split at branches, meet again, wait at barriers, and stop
    program.py       code decoded once, compiled into blocks of steps
    waves.py         a batch: its registers and lane masks
    operands.py      how an instruction's operands become NumPy views
    control.py       branches, calls, barriers, MODE
    scalar.py, scalar_float.py, scalar_memory.py
    vector.py        operands, modifiers, SDWA and dual issue around the meanings in meaning.py's tables:
                     vector_int.py, vector_float.py, convert.py; numbers.py rounds
    carry.py, compare.py, lanes.py, packed.py, matrix.py, matrix_rdna4.py    more than one number per lane
    memory.py        the address space that kernels see; a stray address is a PageFault
    access.py        what loads, stores and atomics move: memory_ops.py, lds.py, atomics.py
    errors.py        what can stop a kernel

Nothing here is imported by `import hcq`; NumPy is needed only when an emulated GPU runs a kernel.
"""
