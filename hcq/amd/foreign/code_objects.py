"""Code objects: which kernel lies at an address of GPU memory, found without anybody's help.

In       the address of a kernel's descriptor or code; GPU memory; the memory of the process
Out      FoundKernel: name, arguments, code object, descriptor, where it was loaded
Changes  nothing; keeps the code objects it has found
Next     images.py (objects in GPU memory), hcq/code/lines.py (source lines), packets.py (who asks)
Source   LLVM AMDGPUUsage, "Code Object" and "Kernel Descriptor"

Two places are searched. ROCr loads an object with its ELF header, its notes and its dynamic symbols, so GPU memory
before the descriptor says everything but debug information. Other loaders copy only code: then the object itself is
still somewhere in the process, in a mapped file or on its heap, and its code says that it is the one. What is in
neither place (an object that was read, loaded and dropped by a loader that leaves its header out) has no name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hcq.amd.abi.descriptor import SIZE_BYTES, KernelDescriptor
from hcq.amd.chip import CHIPS
from hcq.amd.foreign import images
from hcq.amd.metadata import KernelMetadata, kernel_of
from hcq.code import elf, elf_search, inlined, lines
from hcq.code.elf import Object
from hcq.errors import UsageError
from hcq.events.kernel_observer import Client, Read

PAGE = 4096
SEARCHED_BYTES = 64 << 20  # of GPU memory before a descriptor
MACH_AT = 48  # of an ELF header: the lowest byte of its flags, EF_AMDGPU_MACH
MIN_COMPARED_BYTES = 16
ENTRY_OFFSET = slice(16, 24)  # of a descriptor: what the linker fills in


@dataclass(frozen=True)
class FoundKernel:
    """A kernel in GPU memory.

    image       its code object, with debug information where the process still has it
    load_va     where the object's address 0 is; None for one that was never linked
    """

    name: str
    symbol: str
    entry: int
    descriptor: KernelDescriptor | None
    metadata: KernelMetadata | None
    image: bytes
    load_va: int | None

    def line(self, pc: int) -> str:
        """The source line of an instruction; "" where nobody says."""
        return "" if self.load_va is None else lines.line_of(self.image, pc - self.load_va)

    def caller(self, pc: int) -> str:
        """The line that called the function of such an instruction, if it was inlined."""
        return "" if self.load_va is None else inlined.caller_of(self.image, pc - self.load_va)


@dataclass(frozen=True)
class _Candidate:
    """A kernel of a code object that the process has. `holes` are bytes of its code that a loader fills in."""

    name: str
    image: bytes
    code: bytes
    holes: frozenset[int]
    descriptor: bytes
    object: Object
    code_va: int
    is_linked: bool


@dataclass(frozen=True)
class _Loaded:
    """An object that a loader laid out. names: of kernels, by where their descriptors are; best: most in it."""

    base: int
    header: bytes
    object: Object
    names: dict[int, str]
    best: bytes


class CodeObjects:
    """The code objects of one process."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._images: dict[bytes, list[_Candidate]] = {}  # found in the process, by content
        self._last: _Loaded | None = None

    def at_descriptor(self, va: int, start: int, read: Read, arch: str = "") -> FoundKernel | None:
        """The kernel of the descriptor at an address. start: of the buffer that holds it; arch: the GPU's."""
        raw = read(va, SIZE_BYTES)
        if len(raw) != SIZE_BYTES:
            return None
        descriptor = KernelDescriptor.decode(memoryview(raw).cast("I"))
        entry = va + descriptor.entry_offset
        return self._loaded(va, entry, descriptor, start, read) or self._in_process(entry, raw, read, arch)

    def at_code(self, va: int, read: Read, arch: str = "") -> FoundKernel | None:
        """The kernel whose first instruction is at an address: packets other than AQL's name no descriptor."""
        return self._in_process(va, b"", read, arch)

    # ------------------------------------------------------------ in GPU memory

    def _loaded(
        self, va: int, entry: int, descriptor: KernelDescriptor, start: int, read: Read
    ) -> FoundKernel | None:
        low = max(start, va - SEARCHED_BYTES) & -PAGE
        last = self._last
        bases = [last.base] if last is not None and va - last.base in last.names else []
        data = b""
        # the last object first: it mostly is the one, and others may lie far behind
        for again in (False, True):
            if again:
                data = read(low, va - low)
                bases = [low + at for at in _places(data)]
            for base in bases:
                loaded = self._object_at(base, read)
                name = None if loaded is None else loaded.names.get(va - base)
                if loaded is not None and name is not None:
                    metadata = kernel_of(loaded.object, name)
                    return FoundKernel(name, f"{name}.kd", entry, descriptor, metadata, loaded.best, base)
        return None

    def _object_at(self, base: int, read: Read) -> _Loaded | None:
        """The object that a loader laid out there; the last one is kept, for objects may be large."""
        header = read(base, PAGE)
        last = self._last
        if last is not None and last.base == base and last.header == header:
            return last
        image = images.from_memory(read, base)
        parsed = _parsed(image) if image else None
        if parsed is None:
            return None
        whole = self._same_object(read, base)
        self._last = _Loaded(base, header, parsed, _descriptors(parsed), whole or image)
        return self._last

    def _same_object(self, read: Read, base: int) -> bytes:
        """The object as the process has it, if it does: the loaded one has lost its debug information."""
        header = read(base, PAGE)
        for data, at in self._objects_in_process():
            if data.startswith(header[: elf_search.HEADER.size], at):
                size = images.size_of(data, at)
                segments = [one for one in _segments(data[at : at + size]) if one.type == elf.PT_LOAD]
                first = segments[0] if segments else None
                if first is None or first.offset or first.va:
                    continue
                if data[at : at + first.file_bytes] == read(base, first.file_bytes):
                    return data[at : at + size]
        return b""

    # ------------------------------------------------------------ in the memory of the process

    def _in_process(self, entry: int, descriptor: bytes, read: Read, arch: str) -> FoundKernel | None:
        """Short kernels are the same for several architectures: only objects of the GPU's own are looked at."""
        # what must stand in the object, whatever a loader filled in: most objects are passed over by this alone
        needle = descriptor[ENTRY_OFFSET.stop :] or read(entry, MIN_COMPARED_BYTES)
        if not any(needle):
            return None
        for image in self._images:
            if found := self._in_object(image, entry, descriptor, read, arch):
                return found
        for data, at in self._objects_in_process():
            size = images.size_of(data, at)
            if data.find(needle, at, at + size) >= 0:
                image = data[at : at + size]
                if image not in self._images:
                    self._images[image] = list(_candidates(image))
                    if found := self._in_object(image, entry, descriptor, read, arch):
                        return found
        return None

    def _in_object(
        self, image: bytes, entry: int, descriptor: bytes, read: Read, arch: str
    ) -> FoundKernel | None:
        if arch in CHIPS and image[MACH_AT] != CHIPS[arch].mach:
            return None
        for one in self._images[image]:
            if _fits(one, descriptor, read, entry):
                return _found(one, entry, descriptor)
        return None

    def _objects_in_process(self) -> Iterator[tuple[bytes, int]]:
        """Every code object in readable memory, whole: its bytes, and where in them it begins."""
        return elf_search.objects_in(self.client.pid, images.WANTED)


def _places(data: bytes) -> Iterator[int]:
    """Where objects may begin on a page, the last one first."""
    at = len(data)
    while (at := data.rfind(images.SIGNATURE, 0, at)) >= 0:
        if not at % PAGE:
            yield at


# ------------------------------------------------------------ objects


def _parsed(image: bytes) -> Object | None:
    try:
        return Object(image, "a foreign code object")
    except UsageError:
        return None


def _segments(image: bytes) -> list[elf.Segment]:
    parsed = _parsed(image)
    return [] if parsed is None else parsed.segments


def _descriptors(parsed: Object) -> dict[int, str]:
    """Where each kernel's descriptor is in a linked object, from its address 0: the name of the kernel."""
    found = {}
    try:
        for table in parsed.sections:
            if table.type == elf.SHT_DYNSYM:
                for symbol in parsed.symbols(table):
                    if symbol.name.endswith(".kd"):
                        found[symbol.value] = symbol.name.removesuffix(".kd")
    except UsageError:
        return {}
    return found


def _candidates(image: bytes) -> Iterator[_Candidate]:
    parsed = _parsed(image)
    if parsed is None:
        return
    is_linked = parsed.type == elf.ET_DYN
    holes: dict[int, set[int]] = {}
    symbols: dict[str, elf.Symbol] = {}
    try:
        for table in parsed.sections:
            if table.type in (elf.SHT_SYMTAB, elf.SHT_DYNSYM):
                symbols.update({one.name: one for one in parsed.symbols(table) if not one.is_undefined})
            elif table.type == elf.SHT_RELA:
                for relocation in parsed.relocations(table):
                    filled = range(relocation.offset, relocation.offset + 8)
                    holes.setdefault(-1 if is_linked else table.info, set()).update(filled)
    except UsageError:
        return
    for name, symbol in symbols.items():
        code = symbols.get(name.removesuffix(".kd"))
        if not name.endswith(".kd") or code is None:
            continue
        own = holes.get(-1 if is_linked else code.section, set())
        inside = frozenset(at - code.value for at in own if code.value <= at < code.value + code.size_bytes)
        yield _Candidate(
            code.name,
            image,
            _bytes_of(parsed, code, code.size_bytes),
            inside,
            _bytes_of(parsed, symbol, SIZE_BYTES),
            parsed,
            code.value,
            is_linked,
        )


def _bytes_of(parsed: Object, symbol: elf.Symbol, size_bytes: int) -> bytes:
    if symbol.section >= len(parsed.sections):
        return b""
    section = parsed.sections[symbol.section]
    at = symbol.value - (section.va if parsed.type == elf.ET_DYN else 0)
    return parsed.contents(section)[at : at + size_bytes] if at >= 0 else b""


def _fits(one: _Candidate, descriptor: bytes, read: Read, entry: int) -> bool:
    """Whether this is what lies in GPU memory: the code, and the descriptor but for what a linker fills in."""
    if len(one.code) < MIN_COMPARED_BYTES or len(one.descriptor) != SIZE_BYTES:
        return False
    if descriptor:
        for part in (slice(0, ENTRY_OFFSET.start), slice(ENTRY_OFFSET.stop, SIZE_BYTES)):
            if descriptor[part] != one.descriptor[part]:
                return False
    there = read(entry, len(one.code))
    if not one.holes or len(there) != len(one.code):
        return there == one.code
    return all(at in one.holes or there[at] == byte for at, byte in enumerate(one.code))


def _found(one: _Candidate, entry: int, descriptor: bytes) -> FoundKernel:
    words = memoryview(descriptor or one.descriptor).cast("I")
    return FoundKernel(
        one.name,
        one.name,
        entry,
        KernelDescriptor.decode(words),
        kernel_of(one.object, one.name),
        one.image,
        entry - one.code_va if one.is_linked else None,
    )
