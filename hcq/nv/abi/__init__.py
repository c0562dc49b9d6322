"""What NVIDIA declares: kernel structures, classes, methods, launch descriptions. No state; nothing of the driver.

    ioctls.py, structures.py, args.py                      the kernel interface, by driver release
    classes.py, controls.py, status.py                     numbers with names, and answers in words
    method.py, methods.py, *_methods.py                     what engines take
    gpfifo.py, qmd.py, bank0.py, image.py                  the ring, launch descriptions, what a kernel finds in memory
    tensor_map.py                                          what the tensor memory accelerator is told of a tensor
    names.py, layout_file.py, data/                        names and layouts that are data

The driver, the emulated GPU, traces and pages stand side by side on these.
"""
