"""What NVIDIA declares: kernel structures, classes, methods, launch descriptions. No state; nothing of the driver.

    ioctls.py, args.py, *_structs.py, uvm_structs.py       the kernel interface, by driver release
    classes.py, controls.py, status.py                     numbers with names, and answers in words
    method.py, methods.py, host_methods.py, compute_*.py   what engines take
    gpfifo.py, qmd*.py, bank0.py, image.py                 the ring, launch descriptions, what a kernel finds in memory
    tensor_map.py                                          what the tensor memory accelerator is told of a tensor
    names.py, data/                                        names of what other people's calls hold

The driver, the emulated GPU, traces and pages stand side by side on these.
"""
