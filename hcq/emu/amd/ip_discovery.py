"""IP discovery of an emulated GPU: which blocks it is made of, and their versions, as amdgpu shows them in sysfs.

In       a chip and the folder of its PCI device
Out      path -> contents
Next     sysfs.py (the other files there), spec.py (what a GPU is)
Source   amdgpu_discovery.c: the tree below ip_discovery/die, and amdgpu_discovery_set_*_ip_blocks, which say what
         versions there are; soc15_hw_ip.h: the ids. That gfx950's bus interface is 7.9.1 is inferred: amdgpu knows that
         version since January 2025 ("update ip versioning for nbio"), when gfx950 came, and treats it as gfx942's.
         gfx1151's bus interface is inferred from its neighbour's, 7.11.0

A driver takes from here which registers and which copy engine a GPU has. Our own goes by the name of the architecture.
"""

from __future__ import annotations

GC, SDMA0, NBIF = 11, 42, 108  # hardware ids
XCC_WORDS = 1 << 16  # from the registers of an XCC to those of the next; of our own choice
VERSIONS = {  # of graphics, copy engine, bus interface
    "gfx90a": ((9, 4, 2), (4, 4, 0), (7, 4, 4)),
    "gfx942": ((9, 4, 3), (4, 4, 2), (7, 9, 0)),
    "gfx950": ((9, 5, 0), (4, 4, 5), (7, 9, 1)),
    "gfx1030": ((10, 3, 0), (5, 2, 0), (3, 3, 0)),
    "gfx1100": ((11, 0, 0), (6, 0, 0), (4, 3, 0)),
    "gfx1101": ((11, 0, 3), (6, 0, 3), (4, 3, 0)),
    "gfx1102": ((11, 0, 2), (6, 0, 2), (4, 3, 0)),
    "gfx1151": ((11, 5, 1), (6, 1, 1), (7, 11, 1)),
    "gfx1200": ((12, 0, 0), (7, 0, 0), (6, 3, 1)),
    "gfx1201": ((12, 0, 1), (7, 0, 1), (6, 3, 1)),
}


def files(arch: str, device: str, xccs: int, base: int) -> dict[str, bytes]:
    """The files of one GPU: major, minor and revision of each block that a driver of queues asks about, and where the
    registers of each XCC begin, in words."""
    folder = f"{device}/ip_discovery/die/0"
    found = {}
    for hardware_id, version in zip((GC, SDMA0, NBIF), VERSIONS[arch]):
        for name, part in zip(("major", "minor", "revision"), version):
            found[f"{folder}/{hardware_id}/0/{name}"] = f"{part}\n".encode()
    for xcc in range(xccs):
        found[f"{folder}/{GC}/{xcc}/base_addr"] = f"0x{base + XCC_WORDS * xcc:08X}\n".encode()
    return found
