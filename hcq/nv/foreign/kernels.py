"""Kernels of a foreign program on an NVIDIA GPU: what lies at a program address.

In       the program address of a QMD; GPU memory
Out      Kernel: the program that trace and reports name, and where its parameters are in constant bank 0
Changes  nothing; keeps what it has found for as long as the bytes before the code and its beginning are the same
Next     pushes.py (who asks), hcq/nv/abi/image.py (what a loader of ours leaves before the code)

Machine code alone has no name: a loader copies it out of its cubin. What was placed with a KernelDescriptor before it
(by our own driver, and by whoever loads for an emulated GPU) says which PTX it came from: that has name and types.
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.errors import UsageError
from hcq.foreign import ForeignProgram, Parameter
from hcq.kernel_observer import Read
from hcq.nv import ptx
from hcq.nv.abi.image import DESCRIPTOR_BYTES, KernelDescriptor, crc32
from hcq.nv.bundle import Bundle
from hcq.nv.chip import CHIPS

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


def kernel_at(va: int, arch: str, read: Read) -> Kernel:
    """The kernel at a program address; one without a name where nothing says what it is."""
    unknown = Kernel(ForeignProgram(f"kernel at {va:#x}", va))
    raw = read(va - DESCRIPTOR_BYTES, DESCRIPTOR_BYTES)
    found = KernelDescriptor.from_bytes(raw)
    if not found.is_valid or not 0 < found.ptx_bytes <= MAX_PTX_BYTES:
        return unknown
    text, name = read(found.ptx_address, found.ptx_bytes), _text(found.entry_name_address, read)
    if crc32(text) != found.ptx_crc32:
        return unknown
    try:
        entry = ptx.read_module(text.decode("utf-8", "replace")).entries[name]
    except (UsageError, KeyError):
        return unknown
    parameters = [
        Parameter(f"parameter {number}", LETTERS.get(one.kind, "?"), one.offset, one.size_bytes)
        for number, one in enumerate(entry.parameters)
    ]
    program = ForeignProgram(name, va, name, Bundle(b"", text).pack(), parameters, entry.local_bytes)
    return Kernel(program, CHIPS[arch].param_base(entry.param_bytes))


def _text(va: int, read: Read) -> str:
    """Zero-terminated text in GPU memory."""
    data = b""
    while b"\0" not in data and len(data) < MAX_NAME_BYTES:
        more = read(va + len(data), 1)
        if not more:
            break
        data += more
    return data.partition(b"\0")[0].decode("utf-8", "replace")
