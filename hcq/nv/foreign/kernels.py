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

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from hcq.code import elf_search
from hcq.code.elf import EM_CUDA
from hcq.code.elf_search import Wanted
from hcq.code.ptx_lines import line_of_ptx
from hcq.errors import UsageError
from hcq.events.foreign_devices import ForeignProgram, Parameter
from hcq.events.kernel_observer import Client, Read
from hcq.nv import ptx
from hcq.nv.abi.image import DESCRIPTOR_BYTES, KernelDescriptor, crc32
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
    """The kernels of one process. cubins: what was found in its memory, by architecture and by the hash of each."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.cubins: dict[str, dict[bytes, list[_Candidate]]] = {}

    def at(self, va: int, arch: str, read: Read) -> Kernel:
        """The kernel at a program address; one without a name where nothing says what it is."""
        found = _of_descriptor(va, arch, read) or self._of_cubin(va, arch, read)
        return found or Kernel(ForeignProgram(f"kernel at {va:#x}", va))

    def _of_cubin(self, va: int, arch: str, read: Read) -> Kernel | None:
        start = read(va, COMPARED_BYTES)
        if not any(start):
            return None
        for candidates in self._candidates(arch):
            for one in candidates:
                if one.fits(va, start, read):
                    return one.kernel(va)
        return None

    def _candidates(self, arch: str) -> Iterator[list[_Candidate]]:
        """The kernels of each cubin: of those that are known, then of those that the process has and that are not."""
        known = self.cubins.setdefault(arch, {})
        yield from list(known.values())
        for data, at in elf_search.objects_in(self.client.pid, WANTED):
            image = data[at : at + elf_search.size_of(data, at, WANTED)]
            mark = hashlib.sha256(image).digest()
            if mark not in known:
                known[mark] = list(_kernels_of(image, arch))
                yield known[mark]


@dataclass(frozen=True)
class _Candidate:
    """A kernel of a cubin. holes: bytes of its code that a loader fills in."""

    name: str
    image: bytes
    code: bytes
    holes: frozenset[int]
    parameters: tuple[Parameter, ...]
    param_base: int

    def fits(self, va: int, start: bytes, read: Read) -> bool:
        """Whether this is what lies at an address of a GPU, where there is more than the start of it."""
        head = min(len(start), len(self.code))
        return self._is_alike(start[:head], head) and self._is_alike(read(va, len(self.code)), len(self.code))

    def _is_alike(self, there: bytes, size_bytes: int) -> bool:
        code = self.code[:size_bytes]
        if there == code or len(there) != size_bytes:
            return there == code
        return all(at in self.holes or there[at] == byte for at, byte in enumerate(code))

    def kernel(self, va: int) -> Kernel:
        """The kernel, loaded at an address."""
        program = ForeignProgram(self.name, va, self.name, self.image, self.parameters)
        return Kernel(program, self.param_base)


def _kernels_of(image: bytes, arch: str) -> Iterator[_Candidate]:
    try:
        cubin = Cubin(image, "a foreign cubin")
    except UsageError:
        return
    if cubin.arch != arch:
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
        yield _Candidate(name, image, code, frozenset(holes), parameters, kernel.param_base)


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
