"""What AMD declares: ioctls, packets, registers, kernel descriptors. No state; nothing of the driver.

    kfd.py, drm.py              what the kernel driver takes
    pm4.py, sdma.py, aql.py     what rings hold
    registers.py, descriptor.py what packets and code objects hold

The driver, the emulated GPU, traces and pages stand side by side on these.
"""
