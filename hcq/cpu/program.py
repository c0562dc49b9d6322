"""Programs of the CPU device: a host object in memory, and C functions at their addresses.

In       an ELF object for this machine and an entry's name
Out      a Program whose entry is a C function: void entry(arguments..., const struct hcq_group *)
Changes  memory for its code; it goes when the program is dropped and the work submitted by then is done
Next     link.py (relocations, sealed pages), encode.py (how arguments reach the function)
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.cpu.arena import Arena
from hcq.cpu.link import Mapping, link
from hcq.device import Device
from hcq.errors import UsageError
from hcq.program import Program


def taken_out(image: bytes, arch: str, name: str, entry: str | None) -> bytes:
    """The object for this processor, where an image is a container of such; else the image itself."""
    if image.startswith(b"\x7fELF"):
        return image
    from hcq.code import containers, elf  # few programs need them

    def fits(data: bytes) -> int:
        try:
            return int(elf.Object(data).machine_name == arch)
        except UsageError:
            return 0

    return containers.taken_out(image, name, arch, fits, entry)


def load(
    device: Device,
    image: bytes,
    entry: str,
    args: tuple[str, ...] | None,
    scratch_bytes: int,
    name: str,
    arena: Arena,
    retire: Callable[[Mapping], None],
) -> Program:
    """Link an object and find its entry. `retire` takes the mapping when the program is dropped."""
    mapping = link(image, device.port, device.arch, name, arena=arena, entry=entry)
    found = mapping.functions.get(entry)
    if found is None:
        names = ", ".join(sorted(mapping.functions)) or "none"
        mapping.close()
        raise UsageError(f"load({name!r}): no function {entry!r} in the object. Its functions: {names}.")
    try:
        return Program(device, name, found, args, scratch_bytes, lambda: retire(mapping))
    except UsageError:
        mapping.close()
        raise
