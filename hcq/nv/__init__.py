"""NVIDIA GPUs through the open kernel module: RM and UVM ioctls, one channel, QMD launches, cubins loaded by hand.

    device.py, queue.py, process.py               opening by named steps, submission, recovery, memory
    chip.py                                                       which GPU, and what its kind is like
    process.py, gpu.py, rm.py, memory.py, address.py, channel.py  calls of the kernel driver
    abi/                                                          what NVIDIA declares: structures, methods, classes
    encode.py, launch.py, pushbuffer.py, rings.py, graph.py       from commands to methods in a ring
    cubin.py, ptx.py, bundle.py, link.py, program.py    from a code object to a program
    tensor_map.py                                       tensors as kernels with TMA copies want to be told of them
    fault.py, signals.py, validate.py, decode.py                  faults in words, clocks, rules, traces
    toolchain/                                                    CUDA C and PTX to machine code
    foreign/                                                      what programs that are none of ours submit

docs/bringup-nv.md has the sequence and what was verified how.
"""
