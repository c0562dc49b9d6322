"""Tracer: a program on real hardware, stopped where it meets a GPU's kernel driver (hcq-trace record --foreign).

In       a command
Out      the events of hcq/events/kernel_observer.py, from which a trace is made as for programs on emulated GPUs
Changes  the program is traced (ptrace); its doorbells are withheld until they have been looked at
Next     tracer.py (begins here)

    tracer.py      the loop: threads that stop, and why
    ptrace.py      stops, registers, system calls made in the program's name
    filter.py      which system calls stop
    process.py     one process: its files, its calls, its doorbells
    kfd.py, rm.py  the same by its use of AMD's or NVIDIA's kernel driver: its queues, its channels
    doorbells.py   pages that must not be written before the rings have been read

Why ptrace and not the supervisor's notification (hcq/emu/supervisor): that one is asked before a call and cannot see
what it returned. Nor can the tracer make the call in the program's place: kfd_ioctl refuses the descriptors of others.
"""
