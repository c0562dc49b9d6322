"""Kernels of a foreign program on an NVIDIA GPU: what lies at a program address.

In       the program address of a QMD; GPU memory; the memory of the process
Out      Kernel: the program that trace and reports name, and where its parameters are in constant bank 0
Changes  nothing; keeps what it has found for as long as the bytes before the code and its beginning are the same
Next     pushes.py (who asks), hcq/nv/abi/image.py (what a loader of ours leaves before the code)

Machine code alone has no name: a loader copies it out of its cubin, which mostly is still somewhere in the process. Its
code says that it is the one, but for what the loader filled in; a cubin says how long parameters are, and not their
types. What was placed with a KernelDescriptor before it (by our own driver for an emulated GPU) says which PTX it came
from: that has name and types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hcq import elf_search
from hcq.elf import EM_CUDA
from hcq.elf_search import Wanted
from hcq.errors import UsageError
from hcq.foreign import ForeignProgram, Parameter
from hcq.kernel_observer import Client, Read
from hcq.nv import ptx
from hcq.nv.abi.image import DESCRIPTOR_BYTES, KernelDescriptor, crc32
from hcq.nv.bundle import Bundle
from hcq.nv.chip import CHIPS
from hcq.nv.cubin import Cubin

MAX_NAME_BYTES, MAX_PTX_BYTES = 1024, 1 << 26
FINGERPRINT_BYTES = 256
COMPARED_BYTES = 64
INSTRUCTION_BYTES = 16
WANTED = Wanted(b"\x7fELF\x02\x01\x01", EM_CUDA)  # 64-bit, little-endian, version 1; the OS ABI has changed
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
    """The kernels of one process. `cubins` are those that were found in its memory, by content."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.cubins: dict[bytes, list[_Candidate]] = {}

    def at(self, va: int, arch: str, read: Read) -> Kernel:
        """The kernel at a program address; one without a name where nothing says what it is."""
        found = _of_descriptor(va, arch, read) or self._of_cubin(va, arch, read)
        return found or Kernel(ForeignProgram(f"kernel at {va:#x}", va))

    def _of_cubin(self, va: int, arch: str, read: Read) -> Kernel | None:
        start = read(va, COMPARED_BYTES)
        if not any(start):
            return None
        for known in self.cubins.values():
            for one in known:
                if one.fits(va, arch, read):
                    return one.kernel(va)
        for data, at in self._cubins_in_process():
            image = data[at : at + elf_search.size_of(data, at, WANTED)]
            if image not in self.cubins:
                self.cubins[image] = list(_candidates(image))
                for one in self.cubins[image]:
                    if one.fits(va, arch, read):
                        return one.kernel(va)
        return None

    def _cubins_in_process(self) -> Iterator[tuple[bytes, int]]:
        return elf_search.objects_in(self.client.pid, WANTED)


@dataclass(frozen=True)
class _Candidate:
    """A kernel of a cubin. holes: bytes of its code that a loader fills in."""

    name: str
    arch: str
    image: bytes
    code: bytes
    holes: frozenset[int]
    parameters: tuple[Parameter, ...]
    param_base: int

    def fits(self, va: int, arch: str, read: Read) -> bool:
        """Whether this is what lies at an address of a GPU."""
        if self.arch != arch:
            return False
        there = read(va, len(self.code))
        if not self.holes or len(there) != len(self.code):
            return bool(there) and there == self.code
        return all(at in self.holes or there[at] == byte for at, byte in enumerate(self.code))

    def kernel(self, va: int) -> Kernel:
        """The kernel, loaded at an address."""
        image = Bundle(self.image, b"").pack()
        return Kernel(ForeignProgram(self.name, va, self.name, image, self.parameters), self.param_base)


def _candidates(image: bytes) -> Iterator[_Candidate]:
    try:
        cubin = Cubin(image, "a foreign cubin")
    except UsageError:
        return
    for name, kernel in cubin.kernels.items():
        holes: set[int] = set()
        for one in cubin.fixups:
            if one.section == kernel.code:
                holes.update(range(one.offset, one.offset + INSTRUCTION_BYTES))
        parameters = tuple(
            Parameter("", "?", one.offset, one.size_bytes)
            for one in sorted(kernel.parameters, key=lambda one: one.ordinal)
        )
        code = cubin.contents(kernel.code)[: kernel.code_bytes]
        yield _Candidate(name, cubin.arch, image, code, frozenset(holes), parameters, kernel.param_base)


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
    parameters = [
        Parameter("", LETTERS.get(one.kind, "?"), one.offset, one.size_bytes) for one in entry.parameters
    ]
    image = Bundle(b"", text).pack()
    program = ForeignProgram(name, va, name, image, parameters, entry.local_bytes)
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
