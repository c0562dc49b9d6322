"""What a program that is none of ours does with NVIDIA's kernel driver, read from calls, GPFIFO entries and memory.

reader.py   calls: GPUs, memory, channels; ring entries: submissions
ranges.py   which addresses of which GPU UVM has mapped
pushes.py   methods of pushbuffers: launches, copies, fills
copied.py   GPU memory that cannot be read, as far as it was copied there
kernels.py  which kernel lies at a program address
cubins.py   cubins of the process, and of a folder, whose kernels have the code there
kernel_text.py  the PTX of that kernel, for emulated GPUs

In       the events of hcq/events/kernel_observer.py
Out      the events of hcq/events/foreign_devices.py's devices
Changes  nothing of the program
Next     hcq/amd/foreign/ (the sister), hcq/observe/foreign/ (who hears of it), hcq/emu/nv/watch.py (who tells it)
"""
