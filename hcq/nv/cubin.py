"""Cubins: what a finished NVIDIA code object says about its kernels, read by hand and trusted in nothing.

In       the bytes of a cubin from nvrtc, nvJitLink, nvcc or ptxas (12.x and 13.x)
Out      Cubin: kernels with their resources and parameters, sections to place, relocations; link() makes the image
Next     toolchain/ (who makes cubins), hcq/code/elf.py (tables with checked offsets)
Source   cubins of ptxas 12.8, 13.0 and 13.5 beside cuobjdump -elf and nvdisasm; attributes have cuobjdump's names

Sections have no addresses: a loader chooses them. Code wants 128-byte alignment and mapped memory behind it (the
instruction prefetcher runs on), constants 256 bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from hcq.code.elf import (
    EM_CUDA,
    SHF_ALLOC,
    SHN_LORESERVE,
    SHN_UNDEF,
    SHT_NOBITS,
    SHT_RELA,
    Object,
    Section,
    Symbol,
)
from hcq.errors import UsageError

ET_EXEC, SHT_REL = 2, 9
SHT_SYMTAB = 2
STT_FUNC, STT_SECTION = 2, 3
STO_CUDA_ENTRY = 0x10  # of a kernel's symbol; a function that kernels call has none
CODE_ALIGNMENT, CONSTANT_ALIGNMENT = 128, 256
PREFETCH_BYTES = 4096  # mapped after the last instruction
MAX_REGISTERS, MAX_BARRIERS, MAX_PARAM_BYTES = 255, 16, 32764
COMPILERS_OWN = ("__cuda_", "__internal_")  # in the names of functions that it adds
UNKNOWN_STACK = 0xFFFF_FFFF  # MIN_STACK_SIZE of a kernel that recurses; cuobjdump prints UNKNOWN
RECURSIVE_STACK_BYTES = 1024  # what cudaDeviceGetLimit(cudaLimitStackSize) says before anybody sets it
MAX_SHARED_BYTES = 1 << 20
MAX_THREADS = 1024  # of a block

# .nv.info attributes that say what a launch needs
EIATTR_MAX_THREADS = 0x05
EIATTR_PARAM_CBANK = 0x0A
EIATTR_EXTERNS = 0x0F
EIATTR_REQNTID = 0x10
EIATTR_FRAME_SIZE = 0x11
EIATTR_MIN_STACK_SIZE = 0x12
EIATTR_KPARAM_INFO = 0x17
EIATTR_CRS_STACK_SIZE = 0x1E
EIATTR_REGCOUNT = 0x2F
EIATTR_CUDA_API_VERSION = 0x37
EIATTR_CTA_PER_CLUSTER = 0x3D
EIATTR_EXPLICIT_CLUSTER = 0x3E
EIATTR_MAX_CLUSTER_RANK = 0x3F
EIATTR_KPARAM_INFO_V2 = 0x45
EIATTR_SYSCALL_OFFSETS = 0x46
EIATTR_NUM_BARRIERS = 0x4C

EIFMT_NVAL, EIFMT_BVAL, EIFMT_HVAL, EIFMT_SVAL = 1, 2, 3, 4
BARRIER_SHIFT, BARRIER_MASK = 20, 0x7F  # of .text's sh_flags, ptxas 12.x

R_CUDA_64, R_CUDA_G64, R_CUDA_ABS32_LO_32, R_CUDA_ABS32_HI_32 = 2, 4, 56, 57
# CALL.ABS until Ada, and from Hopper on; the bits are nvdisasm's
R_CUDA_ABS47_34, R_CUDA_ABS55_16_34 = (58, 75)
ADDRESSES = (R_CUDA_64, R_CUDA_G64)  # G: a generic address, which for data in memory is the same
# fields of a 128-bit instruction: (first bit, first bit of the address, bits)
INSTRUCTION_FIELDS: dict[int, tuple[tuple[int, int, int], ...]] = {
    R_CUDA_ABS32_LO_32: ((32, 0, 32),),
    R_CUDA_ABS32_HI_32: ((32, 32, 32),),
    R_CUDA_ABS47_34: ((34, 2, 47),),
    R_CUDA_ABS55_16_34: ((16, 2, 8), (34, 10, 47)),
}


class Attribute(NamedTuple):
    """One record of .nv.info: `value` is the number of a short record, `payload` the bytes of a long one."""

    number: int
    format: int
    value: int
    payload: bytes


class Parameter(NamedTuple):
    """A kernel parameter: where it is from the start of the parameters, and how long."""

    ordinal: int
    offset: int
    size_bytes: int


@dataclass
class CubinKernel:
    """What a launch of a kernel needs to know.

    registers          per thread
    barriers           highest named barrier + 1
    shared_bytes       of the section .nv.shared.NAME: from sm_90 on with the 1 KiB that is reserved at its start
    stack_bytes        deepest stack; RECURSIVE_STACK_BYTES, as CUDA gives by default, where recursion leaves it open
    is_recursive       it says that it calls itself, however deep: its stack can overflow
    has_functions      it calls functions, which may recurse: ptxas 12 does not say so
    param_base         where parameters start in constant bank 0; 0 when there are none
    max_threads        from __launch_bounds__; () when it does not say
    required_block     from reqntid; () when it does not say
    cluster            blocks of a cluster; () when the kernel does not need one
    runtime_calls      names of device runtime functions it calls (printf, malloc, assert): it cannot run without them
    """

    name: str
    code: str  # the section
    code_bytes: int
    registers: int = 0
    barriers: int = 0
    shared_bytes: int = 0
    stack_bytes: int = 0
    is_recursive: bool = False
    has_functions: bool = False
    frame_bytes: int = 0
    param_base: int = 0
    param_bytes: int = 0
    bank0_bytes: int = 0
    parameters: list[Parameter] = field(default_factory=list)
    max_threads: tuple[int, ...] = ()
    required_block: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    runtime_calls: list[str] = field(default_factory=list)
    attributes: list[Attribute] = field(default_factory=list)

    def bank_section(self, bank: int) -> str:
        """The section of a constant bank that belongs to this kernel alone."""
        return f".nv.constant{bank}.{self.name}"


class Place(NamedTuple):
    """A section in the memory image."""

    section: str
    offset: int
    size_bytes: int


class Fixup(NamedTuple):
    """A relocation: what to write at `offset` of section `section`."""

    section: str
    offset: int
    type: int
    symbol: str
    target: str  # the symbol's section
    value: int  # its place there, with the addend


@dataclass
class Layout:
    """Where each section of a cubin goes in one piece of memory."""

    places: dict[str, Place]
    size_bytes: int


class Cubin:
    """A parsed cubin. Raises UsageError that says what is wrong when the file is damaged or not loadable."""

    def __init__(self, image: bytes, label: str = "cubin") -> None:
        self.label = label
        self.object = Object(image, label)
        if self.object.machine != EM_CUDA:
            raise self.refuse(f"it is an object for {self.object.machine_name}, not a cubin")
        if self.object.type != ET_EXEC:
            raise self.refuse("it is relocatable (made with -rdc or -dc); link it first with nvJitLink")
        self.abi = image[8]
        flags = self.object.flags
        self.sm = (flags >> 8) & 0xFF if self.abi >= 8 else flags & 0xFF
        if not 50 <= self.sm <= 150:
            raise self.refuse(f"its flags {flags:#x} name no architecture that exists (sm_{self.sm})")
        self.sections = {section.name: section for section in self.object.sections if section.name}
        table = next((s for s in self.object.sections if s.type == SHT_SYMTAB and s.name == ".symtab"), None)
        if table is None:
            raise self.refuse("it has no symbol table")
        self.symbols: list[Symbol] = self.object.symbols(table)
        self.attributes = self._attributes(".nv.info")
        self.fixups = self._fixups()
        self.kernels = self._kernels()
        if not self.kernels:
            raise self.refuse("it has no kernels")

    @property
    def arch(self) -> str:
        """sm_90, ..."""
        return f"sm_{self.sm}"

    def refuse(self, why: str) -> UsageError:
        """The error for an object with something wrong in it."""
        return UsageError(f"load({self.label!r}): {why}. Give a whole cubin, as nvrtc or ptxas wrote it.")

    def contents(self, section: str) -> bytes:
        """The bytes of a section; zeros for one that has none in the file."""
        found = self.sections[section]
        return bytes(found.size_bytes) if found.type == SHT_NOBITS else self.object.contents(found)

    def variables(self) -> dict[str, tuple[str, int, int]]:
        """Named data: name -> (section, offset, size_bytes), for __device__ and __constant__ variables."""
        found = {}
        for symbol in self.symbols:
            name = self._section_of(symbol)
            if symbol.name and symbol.type == 1 and name.startswith((".nv.global", ".nv.constant3")):
                found[symbol.name] = (name, symbol.value, symbol.size_bytes)
        return found

    def functions(self, kernel: str) -> dict[str, tuple[str, int]]:
        """What the address of a function is to a kernel's code: name -> (section, offset there), or ("", number).

        A whole program is compiled with its functions inside each kernel's section, as $KERNEL$NAME; pointers to them
        are then places in the kernel's constant bank 2, where the offsets of their code stand.
        """
        found = {}
        for section, inside in self._functions.items():
            for symbol in inside:
                if section == f".text.{symbol.name}" and symbol.name not in self.kernels:
                    found[symbol.name] = (section, symbol.value)
        table = self.contents(bank) if (bank := f".nv.constant2.{kernel}") in self.sections else b""
        places = {
            offset: 8 * number
            for number, (offset,) in enumerate(struct.iter_unpack("<Q", table[: len(table) & -8]))
        }
        for symbol in self._functions.get(f".text.{kernel}", ()):
            name = symbol.name.removeprefix(f"${kernel}$")
            if name != symbol.name and symbol.value in places:
                found[name] = ("", places[symbol.value])
        return found

    # -- placing

    def layout(self, kernels: list[str] | None = None) -> Layout:
        """Offsets for code, constant banks and global data; all kernels, or those named with what they share."""
        wanted = list(self.kernels) if kernels is None else kernels
        for name in wanted:
            if name not in self.kernels:
                raise UsageError(
                    f"load({self.label!r}): no kernel {name!r}; it has {', '.join(self.kernels)}."
                )
        code = self._reached(wanted)
        places: dict[str, Place] = {}
        end = 0
        for section in self.object.sections:
            if not self._is_placed(section, code):
                continue
            is_code = section.name.startswith(".text.")
            least = CODE_ALIGNMENT if is_code else CONSTANT_ALIGNMENT
            alignment = max(section.alignment, least)
            end = -(-end // alignment) * alignment
            places[section.name] = Place(section.name, end, section.size_bytes)
            end += section.size_bytes
        return Layout(places, end + PREFETCH_BYTES)

    def _reached(self, kernels: list[str]) -> set[str]:
        """Names of the code sections that these kernels need: their own, and those of the functions they call."""
        found = set(kernels)
        while True:
            before = len(found)
            for fixup in self.fixups:
                owner = fixup.section.removeprefix(".text.")
                is_ours = owner in found if fixup.section.startswith(".text.") else True
                if is_ours and fixup.target.startswith(".text."):
                    found.add(fixup.target.removeprefix(".text."))
            if len(found) == before:
                return found

    def _is_placed(self, section: Section, code: set[str]) -> bool:
        name = section.name
        if not section.flags & SHF_ALLOC or name.startswith((".nv.merc.", ".nv.capmerc.", ".nv.shared.")):
            return False
        if name.startswith(".text."):
            return name.removeprefix(".text.") in code
        if name.startswith(".nv.constant"):
            bank, _, owner = name.removeprefix(".nv.constant").partition(".")
            return bank != "0" and (not owner or owner in code)
        return name in (".nv.global", ".nv.global.init")

    def link(self, layout: Layout, base_va: int, may_miss: bool = False) -> bytes:
        """The memory image for this address, relocations applied. Raises UsageError for one that cannot be.

        may_miss  functions of the device runtime may be missing: the code will not run
        """
        image = bytearray(layout.size_bytes)
        for place in layout.places.values():
            image[place.offset : place.offset + place.size_bytes] = self.contents(place.section)
        for fixup in self.fixups:
            if fixup.section not in layout.places:
                continue
            at = layout.places[fixup.section].offset + fixup.offset
            target = layout.places.get(fixup.target)
            if not fixup.target and may_miss:
                continue
            if not fixup.target:
                raise self.refuse(
                    f"it calls {fixup.symbol!r}, a function of the device runtime (printf, malloc, assert), which only"
                    " the vendor's driver supplies"
                )
            if target is None:
                raise self.refuse(f"{fixup.symbol!r} is in section {fixup.target!r}, which is not loaded")
            value = (base_va + target.offset + fixup.value) % 2**64
            self._write(image, at, fixup.type, value)
        return bytes(image)

    def _write(self, image: bytearray, at: int, type_: int, value: int) -> None:
        if type_ in ADDRESSES:
            struct.pack_into("<Q", image, at, value)
            return
        instruction = int.from_bytes(image[at : at + 16], "little")
        for bit, low, width in INSTRUCTION_FIELDS[type_]:
            field = (1 << width) - 1
            instruction = instruction & ~(field << bit) | (value >> low & field) << bit
        image[at : at + 16] = instruction.to_bytes(16, "little")

    # -- kernels

    def _kernels(self) -> dict[str, CubinKernel]:
        found: dict[str, CubinKernel] = {}
        for section in self.object.sections:
            if not section.name.startswith(".text.") or section.type == SHT_NOBITS:
                continue
            name = section.name.removeprefix(".text.")
            symbol = self._function(name, section)
            if symbol is None or not symbol.other & STO_CUDA_ENTRY or f".nv.info.{name}" not in self.sections:
                continue
            if section.size_bytes % 16 or not section.size_bytes:
                raise self.refuse(f"the code of {name} has {section.size_bytes} bytes, not a multiple of 16")
            kernel = found[name] = CubinKernel(name, section.name, section.size_bytes)
            kernel.barriers = section.flags >> BARRIER_SHIFT & BARRIER_MASK if self.abi < 8 else 0
            kernel.has_functions = self._calls_functions(name, section)
            kernel.attributes = self._attributes(f".nv.info.{name}")
            self._read_kernel(kernel)
        self._read_globals(found)
        return found

    def _calls_functions(self, kernel: str, section: Section) -> bool:
        """Whether it has functions of the program's own. The compiler's (slow paths of divisions) never recurse."""
        inside = {one.name for one in self._functions.get(section.name, ()) if one.name != kernel}
        others = self._reached([kernel]) - {kernel}
        return not all(any(word in name for word in COMPILERS_OWN) for name in inside | others)

    def _function(self, name: str, section: Section) -> Symbol | None:
        return next((one for one in self._functions.get(section.name, ()) if one.name == name), None)

    @cached_property
    def _functions(self) -> dict[str, list[Symbol]]:
        """Symbols of functions by their section."""
        found: dict[str, list[Symbol]] = {}
        for symbol in self.symbols:
            if symbol.type == STT_FUNC:
                found.setdefault(self._section_of(symbol), []).append(symbol)
        return found

    def _section_of(self, symbol: Symbol) -> str:
        if symbol.section == SHN_UNDEF or symbol.section >= SHN_LORESERVE:
            return ""
        return self.object.section(symbol.section, f"symbol {symbol.name!r}").name

    def _read_kernel(self, kernel: CubinKernel) -> None:
        name = kernel.name
        for attribute in kernel.attributes:
            reader = _READERS.get(attribute.number)
            if reader is not None:
                try:
                    reader(self, kernel, attribute)
                except struct.error:
                    raise self.refuse(
                        f"attribute {attribute.number:#x} of {name} has {len(attribute.payload)} bytes, too few"
                    ) from None
        if shared := self.sections.get(f".nv.shared.{name}"):
            kernel.shared_bytes = shared.size_bytes
            if shared.size_bytes > MAX_SHARED_BYTES:
                raise self.refuse(f"{name} wants {shared.size_bytes} bytes of shared memory")
        if bank := self.sections.get(kernel.bank_section(0)):
            kernel.bank0_bytes = bank.size_bytes
        kernel.parameters.sort()
        self._check_kernel(kernel)

    def _check_kernel(self, kernel: CubinKernel) -> None:
        name = kernel.name
        for what, sizes in (
            ("a block of at most", kernel.max_threads),
            ("a block of exactly", kernel.required_block),
            ("a cluster of", kernel.cluster),
        ):
            if sizes and not 0 < math.prod(sizes) <= MAX_THREADS:
                raise self.refuse(f"{name} is made for {what} {sizes}; there are 1 to {MAX_THREADS} in one")
        if kernel.barriers > MAX_BARRIERS:
            raise self.refuse(f"{name} uses {kernel.barriers} barriers; there are {MAX_BARRIERS}")
        if kernel.param_bytes > MAX_PARAM_BYTES:
            raise self.refuse(
                f"{name} has {kernel.param_bytes} bytes of parameters; {MAX_PARAM_BYTES} are possible"
            )
        if kernel.param_bytes and kernel.param_base + kernel.param_bytes > max(kernel.bank0_bytes, 1):
            raise self.refuse(
                f"parameters of {name} end at {kernel.param_base + kernel.param_bytes} of a constant bank of"
                f" {kernel.bank0_bytes} bytes"
            )
        for number, parameter in enumerate(kernel.parameters):
            if parameter.ordinal != number:
                raise self.refuse(
                    f"{name} has no parameter {number}, but one with number {parameter.ordinal}"
                )
            before = kernel.parameters[number - 1] if number else Parameter(-1, 0, 0)
            if parameter.offset < before.offset + before.size_bytes:
                raise self.refuse(f"parameter {number} of {name} begins inside of the one before it")
            if parameter.offset + parameter.size_bytes > kernel.param_bytes:
                raise self.refuse(
                    f"parameter {number} of {name} ends at byte {parameter.offset + parameter.size_bytes} of"
                    f" {kernel.param_bytes}"
                )

    def _read_globals(self, kernels: dict[str, CubinKernel]) -> None:
        """REGCOUNT, FRAME_SIZE and MIN_STACK_SIZE are kept for all functions together, by symbol."""
        for attribute in self.attributes:
            if attribute.number not in (EIATTR_REGCOUNT, EIATTR_FRAME_SIZE, EIATTR_MIN_STACK_SIZE):
                continue
            if len(attribute.payload) != 8:
                raise self.refuse(
                    f"attribute {attribute.number:#x} has {len(attribute.payload)} bytes, not 8"
                )
            index, value = struct.unpack("<II", attribute.payload)
            kernel = kernels.get(self._symbol(index, "a kernel attribute").name)
            if kernel is None:
                continue
            if attribute.number == EIATTR_REGCOUNT:
                kernel.registers = value
            elif attribute.number == EIATTR_FRAME_SIZE:
                kernel.frame_bytes = value
            elif value == UNKNOWN_STACK:
                kernel.is_recursive, kernel.stack_bytes = True, RECURSIVE_STACK_BYTES
            else:
                kernel.stack_bytes = value
        for kernel in kernels.values():
            if not 0 < kernel.registers <= MAX_REGISTERS:
                raise self.refuse(
                    f"{kernel.name} uses {kernel.registers} registers; 1 to {MAX_REGISTERS} are possible"
                )
            if kernel.stack_bytes > 1 << 19 or kernel.frame_bytes > 1 << 19:
                raise self.refuse(
                    f"{kernel.name} wants a stack of {kernel.stack_bytes} bytes; 512 KiB are possible"
                )

    def _symbol(self, index: int, what: str) -> Symbol:
        if index >= len(self.symbols):
            raise self.refuse(f"{what} names symbol {index} of {len(self.symbols)}")
        return self.symbols[index]

    def _attributes(self, section: str) -> list[Attribute]:
        """The records of a .nv.info section."""
        if section not in self.sections:
            return []
        data = self.contents(section)
        found, at = [], 0
        while at < len(data):
            if at + 4 > len(data):
                raise self.refuse(f"the last record of {section} is cut off")
            format_, number, value = struct.unpack_from("<BBH", data, at)
            at += 4
            payload = b""
            if format_ == EIFMT_SVAL:
                payload = data[at : at + value]
                if len(payload) != value:
                    raise self.refuse(
                        f"record {number:#x} of {section} wants {value} bytes; {len(payload)} are left"
                    )
                at += -(-value // 4) * 4
            elif format_ not in (EIFMT_NVAL, EIFMT_BVAL, EIFMT_HVAL):
                raise self.refuse(f"record {number:#x} of {section} has the unknown format {format_}")
            found.append(
                Attribute(number, format_, value & 0xFF if format_ == EIFMT_BVAL else value, payload)
            )
        return found

    # -- relocations

    def _fixups(self) -> list[Fixup]:
        found: list[Fixup] = []
        for table in self.object.sections:
            if table.type not in (SHT_REL, SHT_RELA) or not table.name.startswith((".rel.", ".rela.")):
                continue
            target = self.object.section(table.info, f"what {table.name!r} relocates")
            if not target.flags & SHF_ALLOC or target.name.startswith(".debug") or target.type == SHT_NOBITS:
                continue
            found += self._table(table, target)
        return found

    def _table(self, table: Section, target: Section) -> list[Fixup]:
        layout = struct.Struct("<QQq" if table.type == SHT_RELA else "<QQ")
        data, place = self.object.contents(table), self.object.contents(target)
        if len(data) % layout.size:
            raise self.refuse(f"{table.name!r} has {len(data)} bytes, not a multiple of {layout.size}")
        found = []
        for offset, info, *rest in layout.iter_unpack(data):
            type_, symbol = info & 0xFFFFFFFF, self._symbol(info >> 32, f"a relocation of {table.name!r}")
            if type_ not in ADDRESSES and type_ not in INSTRUCTION_FIELDS:
                raise self.refuse(f"relocation type {type_} of {target.name!r} is not supported")
            size = 8 if type_ in ADDRESSES else 16
            if offset + size > len(place):
                raise self.refuse(f"a relocation at byte {offset} of {target.name!r}, which has {len(place)}")
            addend = rest[0] if rest else 0
            if not rest and type_ in ADDRESSES:
                addend = struct.unpack_from("<q", place, offset)[0]
            elif not rest:
                instruction = int.from_bytes(place[offset : offset + 16], "little")
                for bit, low, width in INSTRUCTION_FIELDS[type_]:
                    addend |= (instruction >> bit & (1 << width) - 1) << low
            section = self._section_of(symbol)
            found.append(Fixup(target.name, offset, type_, symbol.name, section, symbol.value + addend))
        return found


# -- what single attributes say


def _param_cbank(cubin: Cubin, kernel: CubinKernel, attribute: Attribute) -> None:
    _, kernel.param_base, kernel.param_bytes = struct.unpack_from("<IHH", attribute.payload)


def _param_info(cubin: Cubin, kernel: CubinKernel, attribute: Attribute) -> None:
    _, ordinal, offset, word = struct.unpack_from("<IHHI", attribute.payload)
    kernel.parameters.append(Parameter(ordinal, offset, word >> 18))


def _param_info_v2(cubin: Cubin, kernel: CubinKernel, attribute: Attribute) -> None:
    _, ordinal, offset, word = struct.unpack_from("<IHHI", attribute.payload)
    kernel.parameters.append(Parameter(ordinal, offset, word & 0xFFFF))


def _max_threads(cubin: Cubin, kernel: CubinKernel, attribute: Attribute) -> None:
    kernel.max_threads = struct.unpack_from("<III", attribute.payload)


def _required_block(cubin: Cubin, kernel: CubinKernel, attribute: Attribute) -> None:
    kernel.required_block = struct.unpack_from("<III", attribute.payload)


def _cluster(cubin: Cubin, kernel: CubinKernel, attribute: Attribute) -> None:
    kernel.cluster = struct.unpack_from("<III", attribute.payload)


def _barriers(cubin: Cubin, kernel: CubinKernel, attribute: Attribute) -> None:
    kernel.barriers = attribute.value


def _externs(cubin: Cubin, kernel: CubinKernel, attribute: Attribute) -> None:
    for (index,) in struct.iter_unpack("<I", attribute.payload):
        kernel.runtime_calls.append(cubin._symbol(index, f"an external function of {kernel.name}").name)


_READERS: dict[int, Callable[[Cubin, CubinKernel, Attribute], None]] = {
    EIATTR_PARAM_CBANK: _param_cbank,
    EIATTR_KPARAM_INFO: _param_info,
    EIATTR_KPARAM_INFO_V2: _param_info_v2,
    EIATTR_MAX_THREADS: _max_threads,
    EIATTR_REQNTID: _required_block,
    EIATTR_CTA_PER_CLUSTER: _cluster,
    EIATTR_NUM_BARRIERS: _barriers,
    EIATTR_EXTERNS: _externs,
}
