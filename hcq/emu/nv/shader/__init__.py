"""The shader core of an emulated NVIDIA GPU: PTX, run by NumPy over all threads of several blocks at once.

The text
    errors.py    bad text, faults and hangs, each as a sentence
    syntax.py    what a module is made of: functions, variables, instructions, operands
    lexer.py, reader.py, parser.py      text to that, every line accounted for
    types.py     the types of PTX as NumPy types
    flow.py      basic blocks, where divergent threads reconverge, which registers are live across blocks
The state
    memory.py    the address space that kernels see
    batch.py     lanes, memory and special registers of a batch of blocks
    spaces.py    the windows of shared and local memory and of parameters
    groups.py    who executes an instruction, and what their warps look like
    copies.py, thread_copies.py    bulk copies, and those of threads, that are under way
The instructions
    decode.py    an instruction to a Python closure over register slots; a rule per opcode, every modifier claimed
    floats.py    rounding that NumPy does not have: directed modes, one-rounding fma, narrow formats
    integer_ops.py, bit_ops.py, float_ops.py, compare_ops.py, convert_ops.py, move_ops.py, memory_ops.py,
    atomic_ops.py, warp_ops.py, wmma_ops.py, mbarrier_ops.py, video_ops.py      what instructions mean
    matrix_instructions.py, matrix_ops.py        products of a warp, matrices to registers and back
    sparse_matrix_ops.py, quad_products.py, byte_matrix_moves.py   sparse products; those of m8n8k4; matrices of bytes
    warpgroup_ops.py, shared_matrix.py           products of four warps, and their operands in shared memory
    tcgen05_ops.py, tcgen05_plans.py, tcgen05_products.py, tcgen05_sparse.py, tcgen05_moves.py, tensor_memory.py
                                                 sm_100's tensor memory, products into it, what moves there
    stochastic_ops.py, multimem_ops.py           rounding by random bits; memory of several GPUs at one address
    device_runtime.py, device_heap.py            printf, malloc and free
    bulk_ops.py, bulk_moves.py, tensor_map_ops.py, tensor_tiles.py       bulk copies, of bytes and of tiles
    cluster_ops.py                               clusters of one block
    stack_ops.py                                 memory from the stack of a function
The machine
    program.py   a kernel with the functions it reaches, its variables placed
    paths.py     where groups of threads are: paths, regions, calls
    machine.py   a batch whose threads diverge, reconverge, wait, and end
    control.py   how a block ends: branches, calls, barriers
    opcodes.py   all rules together, and a function decoded with them
    run.py       Kernel: the one entry for an emulated launch

Each part imports itself and the parts above it; an instruction knows a group and its batch, and nothing of the machine.
Nothing here is imported by `import hcq`; NumPy is needed only when an emulated device runs a kernel.
"""
