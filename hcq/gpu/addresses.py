"""Addresses: describes an address for a fault message: the buffer that it is in, after, or used to be in.

In       a device; an address that a GPU faulted at
Out      a phrase for DeviceFault
Next     amd/fault.py, nv/fault.py (who ask)
"""

from __future__ import annotations

from hcq.device import Device

NEAR_BYTES = 1 << 20  # an address this close after a buffer was probably meant for it


def describe_address(device: Device, va: int) -> str:
    """Which buffer an address is in, or after which one, or what it was before."""
    buffers = sorted(device.memory.owners(), key=lambda buffer: buffer.address)
    for buffer in reversed(buffers):
        start, end = buffer.address, buffer.address + buffer.size_bytes
        name = f"buffer {buffer.name!r}" if buffer.name else f"the buffer of {buffer.size_bytes} bytes"
        if start <= va < end:
            return f"byte {va - start} of {name} at {start:#x}"
        if end <= va < end + NEAR_BYTES:
            return f"{va - end} bytes after the end of {name} at {start:#x}"
        if end <= va:
            break
    for start, size in device.memory.regions.items():
        if start <= va < start + size:
            return "in memory of this device that no live buffer owns: freed, or never given out"
    return "not in or near any buffer of this device"
