"""The file of a CUDA coredump: an ELF file with a table for each level of the machine, read within bounds.

In       the bytes of a file
Out      CoreFile: sections by what they are, rows of the tables as dicts, strings, names of kernels
Next     core.py (what the tables say)
Source   cudacoredump.h of NVIDIA's public cuda-gdb (types of sections, rows, sh_link and sh_info) up to driver r575;
         the ELF-64 specification

A section's sh_link is the section of its parent's table and sh_info the row there. Rows grew at their end from release
to release: sh_entsize says how long they are, and a field behind that is absent.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

EM_CUDA, ET_CORE = 190, 4
TYPES = 0x80000000  # SHT_LOUSER: types of sections are counted from here
MAX_SECTIONS = 1 << 20
MAX_ROWS = 1 << 20  # of all tables together
MAX_SYMBOLS = 1 << 16  # of all images together
MAX_NAME = 300  # characters

KINDS = {
    1: "managed memory", 2: "global memory", 3: "local memory", 4: "shared memory", 5: "registers", 6: "ELF image",
    7: "relocated ELF image", 8: "backtrace", 9: "devices", 10: "contexts", 11: "SMs", 12: "grids", 13: "blocks",
    14: "warps", 15: "lanes", 16: "modules", 17: "predicates", 18: "parameters", 19: "uniform registers",
    20: "uniform predicates", 21: "constant banks", 22: "meta data", 23: "convergence barriers",
}  # fmt: skip
# rows of the tables, in order; a name with : 8 has eight bytes, the others four
ROWS: dict[str, str] = {
    "devices": "devName:8 devType:8 smType:8 devId pciBusId pciDevId numSMs numWarpsPerSM numLanesPerWarp"
    " numRegsPerLane numPredicatesPrLane smMajor smMinor instructionSize status numUniformRegsPrWarp"
    " numUniformPredicatesPrWarp numConvergenceBarriersPrWarp padding0",
    "contexts": "contextId:8 sharedWindowBase:8 localWindowBase:8 globalWindowBase:8 deviceIdx tid",
    "modules": "moduleHandle:8",
    "grids": "gridId64:8 contextId:8 function:8 functionEntry:8 moduleHandle:8 parentGridId64:8 paramsOffset:8"
    " kernelType origin gridStatus numRegs gridDimX gridDimY gridDimZ blockDimX blockDimY blockDimZ"
    " attrLaunchBlocking attrHostTid"
    " clusterDimX clusterDimY clusterDimZ padding0 preferredClusterDimX preferredClusterDimY"
    " preferredClusterDimZ padding1",
    "SMs": "smId padding0 exception errorPCValid errorPC:8 clusterExceptionTargetBlockIdxValid"
    " clusterExceptionTargetBlockIdxX clusterExceptionTargetBlockIdxY clusterExceptionTargetBlockIdxZ",
    "blocks": "gridId64:8 blockIdxX blockIdxY blockIdxZ padding0 clusterIdxX clusterIdxY clusterIdxZ padding1"
    " clusterDimX clusterDimY clusterDimZ padding2",
    "warps": "errorPC:8 warpId validLanesMask activeLanesMask isWarpBroken errorPCValid padding0 numRegs padding1"
    " sharedMemSize padding2 inSyscallLanesMask cbuActiveLanesMask cbuExitedLanesMask cbuCollectiveLanesMask",
    "lanes": "virtualPC:8 physPC:8 ln threadIdxX threadIdxY threadIdxZ exception callDepth syscallCallDepth ccRegister",
    "backtrace": "returnAddress:8 virtualReturnAddress:8 level pad",
    "meta data": "generatorName:8 driverVersionMajor driverVersionMinor cudaDriverVersionMajor cudaDriverVersionMinor"
    " flags timestamp",
    "constant banks": "addr:8 size bankId",
}
# bytes of a row in the first release that had such a table
FIRST_BYTES = {
    "devices": 72, "contexts": 40, "modules": 8, "grids": 104, "SMs": 8, "blocks": 24, "warps": 32, "lanes": 48,
    "backtrace": 24, "meta data": 32, "constant banks": 16,
}  # fmt: skip

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PRINTABLE = re.compile(rb"[^\0]{0,300}")
SYMTAB, FUNCTION = 2, 2
Row = dict[str, int]


class Section(NamedTuple):
    """A section. size: what the header says; what of it lies in the file may be less."""

    number: int
    name: str
    kind: str
    type: int
    at: int
    size: int
    address: int
    link: int
    info: int
    entry_size: int


class Kernel(NamedTuple):
    """A function of a module's image. starts: the addresses at which its code may lie, as the image says it."""

    name: str
    starts: tuple[int, ...]
    size: int


def is_core(content: bytes) -> bool:
    """Whether this is a coredump of CUDA."""
    return content[:6] == b"\x7fELF\x02\x01" and content[16:20] == struct.pack("<HH", ET_CORE, EM_CUDA)


class CoreFile:
    """The sections of a coredump and their rows. notes: what of the file is missing or makes no sense."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.notes: list[str] = []
        self.sections = list(_sections(content, self.notes))
        self._rows_left = MAX_ROWS
        self._symbols_left = MAX_SYMBOLS
        named = next((one for one in self.sections if one.name == ".strtab"), None)
        self._strings = self.bytes_of(named) if named else b""

    def of(self, kind: str) -> list[Section]:
        """The sections of a kind, in order."""
        return [one for one in self.sections if one.kind == kind]

    def bytes_of(self, section: Section) -> bytes:
        """What of a section lies in the file."""
        return self.content[section.at : section.at + section.size] if section.type != 8 else b""

    def string(self, at: int) -> str:
        """A text of the string table."""
        return _text(self._strings, at)

    def rows(self, section: Section) -> Iterator[Row]:
        """The rows of a table, as far as the file has them and MAX_ROWS allows."""
        data = self.bytes_of(section)
        step = section.entry_size or FIRST_BYTES[section.kind]
        names, layout = _layout(section.kind, step)
        if not names:
            self.note(f"{section.name}: rows of {step} bytes make no sense")
            return
        if len(data) % step or len(data) < section.size:
            self.note(
                f"{section.name}: {len(data)} bytes of {section.size}, rows of {step}: the end is missing"
            )
        count = min(len(data) // step, self._rows_left)
        if count < len(data) // step:
            self.note(f"more than {MAX_ROWS} rows: the others are left out")
        self._rows_left -= count
        for at in range(0, count * step, step):
            yield dict(zip(names, layout.unpack_from(data, at)))

    def note(self, text: str) -> None:
        """Say once that something is wrong with the file."""
        if text not in self.notes and len(self.notes) < 20:
            self.notes.append(text)

    def kernels(self, section: Section) -> list[Kernel]:
        """The functions of a module's image, an ELF file of its own."""
        image = self.bytes_of(section)
        if image[:4] != b"\x7fELF":
            return []
        own = list(_sections(image, []))
        found = []
        for table in own:
            if table.type != SYMTAB or table.link >= len(own):
                continue
            names = image[own[table.link].at : own[table.link].at + own[table.link].size]
            data = image[table.at : table.at + table.size]
            count = min(len(data) // _SYMBOL.size, self._symbols_left)
            self._symbols_left -= count
            for at in range(count):
                name, info, _, index, value, size = _SYMBOL.unpack_from(data, at * _SYMBOL.size)
                if info & 15 == FUNCTION and name:
                    base = own[index].address if index < len(own) else 0
                    found.append(Kernel(_text(names, name), tuple({value, base + value}), size))
        return found


def _layout(kind: str, step: int) -> tuple[list[str], struct.Struct]:
    """The fields that fit into rows of so many bytes."""
    names: list[str] = []
    letters, size = "<", 0
    for text in ROWS[kind].split():
        name, _, wide = text.partition(":")
        size += 8 if wide else 4
        if size > step:
            break
        names.append(name)
        letters += "Q" if wide else "I"
    return names, struct.Struct(letters)


def _sections(content: bytes, notes: list[str]) -> Iterator[Section]:
    if len(content) < _HEADER.size:
        notes.append("the file ends within its header")
        return
    header = _HEADER.unpack_from(content)
    start, entry, count, strings = header[6], header[11], header[12], header[13]
    if entry < _SECTION.size or not 0 < start <= len(content) - _SECTION.size:
        notes.append("the table of sections is not in the file: it was cut, or is damaged")
        return
    first = _SECTION.unpack_from(content, start)
    count = count or min(first[5], MAX_SECTIONS)
    strings = first[6] if strings == 0xFFFF else strings
    there = min(count, (len(content) - start) // entry, MAX_SECTIONS)
    if there < count:
        notes.append(f"{count - there} of {count} sections are not in the file")
    rows: Sequence[tuple[int, ...]] = [
        _SECTION.unpack_from(content, start + at * entry) for at in range(there)
    ]
    names = content[rows[strings][4] : rows[strings][4] + rows[strings][5]] if strings < there else b""
    for index, (name, type_, _, address, at, size, link, info, _, entry_size) in enumerate(rows):
        if not index and not type_:
            kind = "none"
        else:
            kind = KINDS.get(type_ - TYPES, "")
        if kind != "none" and type_ != 8 and at + size > len(content):
            if len(notes) < 20:
                notes.append(f"section {index} {_text(names, name)!r} ends behind the end of the file")
        yield Section(index, _text(names, name), kind, type_, at, size, address, link, info, entry_size)


def _text(strings: bytes, at: int) -> str:
    found = _PRINTABLE.match(strings, at) if at < len(strings) else None
    return found[0].decode("utf-8", "replace") if found else ""
