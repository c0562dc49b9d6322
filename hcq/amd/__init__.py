"""AMD GPUs through the KFD: PM4 or AQL compute rings, SDMA copy rings, code objects loaded by hand, and no ROCm.

    device.py, queue.py                                             opening by named steps, submission, recovery
    topology.py, chip.py                                            which GPU, and what its kind is like
    abi/                                                            what AMD declares: ioctls, packets, registers
    memory.py, process.py, sizing.py                                calls of the kernel driver
    encode.py, launch.py, ring_sync.py, rings.py, graph.py          from commands to packets in a ring
    link.py, metadata.py, program.py                                from an ELF object to a program
    fault.py, signals.py, validate.py                               faults in words, clocks, rules

docs/bringup-amd.md has the sequence and what was verified how.
"""
