"""Kernels of a foreign program on an NVIDIA GPU: what lies at a program address.

In       the program address of a QMD; GPU memory; the memory of the process
Out      Kernel: the program that trace and reports name, and where its parameters are in constant bank 0
Changes  nothing; keeps what it has found for as long as the bytes before the code and its beginning are the same
Next     pushes.py (who asks), cubins.py (the search), hcq/nv/abi/image.py (what our loader leaves before the code)

A cubin that has the code (cubins.py) gives the name, and says how long parameters are, but not their types. What was
placed with a KernelDescriptor before it (by our own driver for an emulated GPU) says which PTX it came from: that has
name and types.
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.code.ptx_lines import line_of_ptx
from hcq.errors import UsageError
from hcq.events.foreign_devices import ForeignProgram, Parameter
from hcq.events.kernel_observer import Client, Read
from hcq.nv import ptx
from hcq.nv.abi.image import DESCRIPTOR_BYTES, KernelDescriptor, crc32
from hcq.nv.chip import CHIPS
from hcq.nv.foreign.cubins import Cubins

MAX_NAME_BYTES, MAX_PTX_BYTES = 1024, 1 << 26
FINGERPRINT_BYTES = 256
LETTERS = {"float": "f", "": "?", "bytes": "?"}


@dataclass(frozen=True)
class Kernel:
    """A kernel. param_base: where its parameters begin in constant bank 0."""

    program: ForeignProgram
    param_base: int = 0


def fingerprint(va: int, read: Read) -> bytes:
    """What changes when another kernel is loaded there."""
    return read(va - DESCRIPTOR_BYTES, DESCRIPTOR_BYTES) + read(va, FINGERPRINT_BYTES)


class Kernels:
    """The kernels of one process."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.cubins = Cubins()

    def at(self, va: int, arch: str, read: Read) -> Kernel:
        """The kernel at a program address; one without a name where nothing says what it is."""
        found = _of_descriptor(va, arch, read) or self._of_cubin(va, arch, read)
        return found or Kernel(ForeignProgram(f"kernel at {va:#x}", va))

    def _of_cubin(self, va: int, arch: str, read: Read) -> Kernel | None:
        found = self.cubins.at(self.client.pid, va, arch, read)
        if found is None:
            return None
        parameters = tuple(
            Parameter("", "?", one.offset, one.size_bytes)
            for one in sorted(found.kernel.parameters, key=lambda one: one.ordinal)
        )
        name = found.kernel.name
        return Kernel(ForeignProgram(name, va, name, found.image, parameters), found.kernel.param_base)


def _of_descriptor(va: int, arch: str, read: Read) -> Kernel | None:
    """The kernel that a loader of ours has described before the code."""
    found = KernelDescriptor.from_bytes(read(va - DESCRIPTOR_BYTES, DESCRIPTOR_BYTES))
    if not found.is_valid or not 0 < found.ptx_bytes <= MAX_PTX_BYTES:
        return None
    text, name = read(found.ptx_address, found.ptx_bytes), _text(found.entry_name_address, read)
    if crc32(text) != found.ptx_crc32:
        return None
    try:
        entry = ptx.read_module(text.decode("utf-8", "replace")).entries[name]
    except (UsageError, KeyError):
        return None
    base = CHIPS[arch].param_base(entry.param_bytes)
    parameters = [
        Parameter("", LETTERS.get(one.kind, "?"), one.offset, one.size_bytes)
        for one in entry.based(base).parameters
    ]
    program = ForeignProgram(
        name, va, name, text, parameters, entry.local_bytes, lambda line: line_of_ptx(text, line)
    )
    return Kernel(program, base)


def _text(va: int, read: Read) -> str:
    """Zero-terminated text in GPU memory."""
    data = b""
    while b"\0" not in data and len(data) < MAX_NAME_BYTES:
        more = read(va + len(data), 1)
        if not more:
            break
        data += more
    return data.partition(b"\0")[0].decode("utf-8", "replace")
