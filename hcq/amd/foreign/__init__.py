"""Programs that are none of ours on an AMD GPU: what they ask of the kernel driver, and what they put into rings.

In       ioctls and packets of one process, as hcq/events/kernel_observer.py tells them
Out      the events of its ForeignDevices
Changes  nothing outside
Next     reader.py (begins here)

    reader.py         ioctls: memory, queues
    packets.py        packets: launches with their arguments, copies, blocks
    code_objects.py   which kernel lies at an address: from GPU memory, or from the memory of the process
    images.py         a code object put together again from where a loader has laid it out
    lines.py          the source line of an instruction, from DWARF
"""
