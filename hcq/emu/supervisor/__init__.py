"""Unmodified programs on emulated GPUs: python -m hcq emulate amd:gfx1100 -- rocminfo.

command.py      the command line
supervisor.py   a program from its start to its end, and the threads that answer its calls
spawn.py        how it is started under the filter
bpf.py          the filter: which system calls wait for an answer
listener.py     how such calls arrive, and how answers get back
answers.py      what they return: device nodes, files of sysfs, ioctls
keeper.py       what ends them all when the supervisor is killed
processes.py    whose memory and descriptors these are, and what happens when they end
mirror.py       pages of theirs that a GPU was given

It needs no privileges, no C compiler and no library loaded into the program: only Linux 5.9 and seccomp. It is no
sandbox.
"""
