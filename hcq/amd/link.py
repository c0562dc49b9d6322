"""Linking: an AMDGPU object into one block of the GPU's memory, without a linker.

In       the bytes of an ELF object, as LLVM writes it (relocatable) or as a linker does (shared)
Out      Linked: the image for a given address, its kernels with checked descriptors and metadata, its variables
Next     module.py (who copies the image), abi/descriptor.py and metadata.py (what kernels say of themselves)
Source   LLVM AMDGPUUsage, "Code Object"; relocation formulas from its table

In a relocatable object every kernel descriptor needs one relocation: until then its entry offset is zero. A shared one
is read by its dynamic segment, as loaders do: it may have been stripped of its sections.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hcq.amd.abi import targets
from hcq.amd.abi.descriptor import (
    ENTRY_ALIGNMENT,
    MAX_USER_SGPRS,
    SIZE_BYTES,
    KernelDescriptor,
    user_sgpr_words,
)
from hcq.amd.chip import Chip
from hcq.amd.metadata import KernelMetadata, kernels_of
from hcq.code import elf
from hcq.code.elf import Object, Section, Symbol
from hcq.code.elf_dynamic import Dynamic, Pending
from hcq.errors import UsageError

ALIGNMENT = 4096
MAX_IMAGE_BYTES = 1 << 28
GUARD_BYTES = 256  # after the image: instruction prefetch reads beyond a kernel's end
OSABI_AMDHSA = 64
ABI_VERSIONS = range(1, 5)  # code object versions 3 to 6
MANAGED = (
    ".managed"  # HIP: what a variable's own symbol points to, once a loader has stored its address there
)
COMPILERS_OWN = "__hip_cuid_"  # clang's mark of a source file
UNREAD_TABLES = {
    elf.SHT_REL: "SHT_REL, which have no addends",
    elf.SHT_RELR: "SHT_RELR, which only linked objects have",
    0x40000014: "SHT_CREL",
    0x60000001: "SHT_ANDROID_REL",
    0x60000002: "SHT_ANDROID_RELA",
}

NONE, ABS32_LO, ABS32_HI, ABS64, REL32, REL64, ABS32 = 0, 1, 2, 3, 4, 5, 6
GOTPCREL, GOTPCREL32_LO, GOTPCREL32_HI, REL32_LO, REL32_HI, RELATIVE64, REL16 = 7, 8, 9, 10, 11, 13, 14
_GOT_TYPES = (GOTPCREL, GOTPCREL32_LO, GOTPCREL32_HI)
_WHOLE_TYPES = (ABS64, REL32, REL64, ABS32, RELATIVE64)  # whose addend may stand in the word itself

# type -> (struct format, value from symbol S, addend A, place P, GOT slot G, base B)
_FORMULAS: dict[int, tuple[str, Callable[[int, int, int, int, int], int]]] = {
    ABS32_LO: ("<I", lambda s, a, p, g, b: s + a),
    ABS32_HI: ("<I", lambda s, a, p, g, b: s + a >> 32),
    ABS64: ("<Q", lambda s, a, p, g, b: s + a),
    REL32: ("<I", lambda s, a, p, g, b: s + a - p),
    REL64: ("<Q", lambda s, a, p, g, b: s + a - p),
    ABS32: ("<I", lambda s, a, p, g, b: s + a),
    GOTPCREL: ("<I", lambda s, a, p, g, b: g + a - p),
    GOTPCREL32_LO: ("<I", lambda s, a, p, g, b: g + a - p),
    GOTPCREL32_HI: ("<I", lambda s, a, p, g, b: g + a - p >> 32),
    REL32_LO: ("<I", lambda s, a, p, g, b: s + a - p),
    REL32_HI: ("<I", lambda s, a, p, g, b: s + a - p >> 32),
    RELATIVE64: ("<Q", lambda s, a, p, g, b: b + a),
    REL16: ("<H", lambda s, a, p, g, b: (s + a - p - 4) // 4),
}


@dataclass(frozen=True)
class Kernel:
    """One kernel of an object. Offsets are from the start of the image."""

    name: str
    descriptor_offset: int
    entry_offset: int
    descriptor: KernelDescriptor
    metadata: KernelMetadata | None

    @property
    def start_offset(self) -> int:
        """Where it is started: behind the code that loads what we put into registers."""
        return self.descriptor_offset + self.descriptor.start_offset


class Variable(NamedTuple):
    """A variable of an object. pointer: where its own symbol is, of one that is __managed__; else -1."""

    offset: int
    size_bytes: int
    pointer: int = -1


class Linked:
    """An object laid out for `size_bytes` of memory; `place(va)` gives the bytes for an address.

    has_sramecc   whether this GPU's SRAM ECC is on
    """

    def __init__(self, image: bytes, chip: Chip, label: str, has_sramecc: bool = True) -> None:
        self.object = Object(image, label)
        self.chip, self.has_sramecc = chip, has_sramecc
        self._check_header(image)
        self._bases: dict[int, int] = {}  # of sections, in a relocatable object
        self._contents: list[tuple[int, bytes]] = []
        self._got: dict[str, int] = {}
        self._got_symbols: dict[str, Symbol] = {}
        self._relocations: list[tuple[int, int, Pending, Symbol]] = []
        self._symbols: list[Symbol] = []
        if self.object.type == elf.ET_REL:
            self._lay_out_sections()
        else:
            self._lay_out_segments()
        self.metadata = kernels_of(self.object)
        self.has_writable = False  # a variable of such that kernels write
        self.variables = self._find_variables()
        self.kernels = self._find_kernels()

    @classmethod
    def fits(cls, image: bytes, chip: Chip, has_sramecc: bool) -> int:
        """How well an object fits a GPU: 0 not at all; one for this very GPU, and set up as it is, fits better."""
        try:
            bare = cls.__new__(cls)
            bare.object, bare.chip, bare.has_sramecc = Object(image), chip, has_sramecc
            bare._check_header(image)
        except UsageError:
            return 0
        is_its_own = bare.object.flags & targets.MACH_MASK == chip.mach
        wanted = targets.features(bare.object.flags, image[8])
        return int(1 + 4 * is_its_own + sum(one in ("on", "off") for one in wanted))

    def place(self, va: int) -> bytes:
        """The image, relocated for this address."""
        memory = bytearray(self.size_bytes)
        for offset, content in self._contents:
            memory[offset : offset + len(content)] = content
        for name, slot in self._got.items():
            struct.pack_into(
                "<Q", memory, slot, self._symbol_address(self._got_symbols[name], va) & 2**64 - 1
            )
        for start, size, relocation, symbol in self._relocations:
            self._apply(memory, va, start, size, relocation, symbol)
        for variable in self.variables.values():
            if variable.pointer >= 0:
                struct.pack_into("<Q", memory, variable.pointer, va + variable.offset)
        return bytes(memory)

    @property
    def alignment(self) -> int:
        """What the address must be a multiple of."""
        if self.object.type == elf.ET_DYN:
            return ALIGNMENT
        sections = [self.object.sections[index].alignment for index in self._bases]
        return max([ENTRY_ALIGNMENT, *sections])

    def lanes(self, kernel: Kernel) -> int:
        """The width of its waves."""
        return 32 if kernel.descriptor.enable_wavefront_size32 else 64

    # ------------------------------------------------------------ checks

    def _check_header(self, image: bytes) -> None:
        what, arch = self.object, self.chip.arch
        fix = f"Compile it for {arch}: --offload-arch={arch}"
        if what.machine != elf.EM_AMDGPU:
            raise what.refuse(f"it is for {what.machine_name}, and this device is a {arch}", fix)
        if image[7] != OSABI_AMDHSA or image[8] not in ABI_VERSIONS:
            raise what.refuse(
                f"its OS ABI is {image[7]} version {image[8]}, not amdhsa (64) version 1 to 4",
                "Compile it for amdgcn-amd-amdhsa",
            )
        if what.flags & targets.MACH_MASK != self.chip.mach:
            made_for = targets.machine_name(what.flags)
            if made_for != targets.GENERIC.get(arch):
                raise what.refuse(f"it is for {made_for}, and this device is a {arch}", fix)
            version = targets.generic_version(what.flags)
            if version < targets.FIRST_VERSION:
                raise what.refuse(
                    f"it is for version {version} of {made_for}, and {arch} is in it from version "
                    f"{targets.FIRST_VERSION} on",
                    fix,
                )
        self._check_features(targets.features(what.flags, image[8]))
        if what.type not in (elf.ET_REL, elf.ET_DYN):
            raise what.refuse(f"its type is {what.type}; relocatable (1) and shared (3) objects load")

    def _check_features(self, wanted: targets.Features) -> None:
        """What an object was compiled for: XNACK is never turned on here, SRAM ECC is as the GPU is set up."""
        if self.chip.arch not in targets.HAS_FEATURES:
            return
        if wanted.xnack == "on":
            raise self.object.refuse(
                "it needs XNACK, which this driver does not turn on",
                f"Compile it with xnack off: --offload-arch={self.chip.arch}:xnack-",
            )
        mine, other = ("on", "+") if self.has_sramecc else ("off", "-")
        if wanted.sramecc in ("on", "off") and wanted.sramecc != mine:
            raise self.object.refuse(
                f"it was compiled for SRAM ECC {wanted.sramecc}, and this GPU's is {mine}",
                f"Compile it with --offload-arch={self.chip.arch}:sramecc{other}",
            )

    # ------------------------------------------------------------ layout

    def _lay_out_sections(self) -> None:
        """Relocatable objects: every section that occupies memory, in file order."""
        at = 0
        for index, section in enumerate(self.object.sections):
            if not self._is_loaded(section):
                continue
            if section.alignment > ALIGNMENT:
                raise self.object.refuse(
                    f"section {section.name!r} is aligned to {section.alignment}; 4096 at most",
                    "Align its variables to less",
                )
            at = -(-at // max(section.alignment, 1)) * max(section.alignment, 1)
            self._bases[index] = at
            self._contents.append((at, self.object.contents(section)))
            at += section.size_bytes
            self._check_size(at)
        at = -(-at // 8) * 8
        for table in self.object.sections:
            if table.type in UNREAD_TABLES and table.info in self._bases:
                raise self.object.refuse(
                    f"its relocations {table.name!r} are of the form {UNREAD_TABLES[table.type]}; AMDGPU objects "
                    "have SHT_RELA",
                    "Compile it anew, without options that choose another form",
                )
            if table.type != elf.SHT_RELA or table.info not in self._bases:
                continue
            symbols = self.object.symbols(self.object.section(table.link, f"the symbols of {table.name!r}"))
            target = self.object.sections[table.info]
            for relocation in self.object.relocations(table):
                if relocation.symbol >= len(symbols):
                    raise self.object.refuse(
                        f"a relocation names symbol {relocation.symbol} of {len(symbols)}"
                    )
                symbol = symbols[relocation.symbol]
                if relocation.type in _GOT_TYPES:
                    key = f"{symbol.name}/{relocation.symbol}"
                    if key not in self._got:
                        self._got[key], self._got_symbols[key] = at, symbol
                        at += 8
                what = Pending(relocation.offset, relocation.type, relocation.symbol, relocation.addend)
                self._relocations.append((self._bases[table.info], target.size_bytes, what, symbol))
        self.size_bytes = at + GUARD_BYTES
        self._symbols = [
            symbol
            for section in self.object.sections
            if section.type == elf.SHT_SYMTAB
            for symbol in self.object.symbols(section)
        ]

    def _lay_out_segments(self) -> None:
        """Shared objects: their segments at their own distances; what a linker left to do is in the dynamic segment."""
        end = 0
        for segment in self.object.segments:
            if segment.type == elf.PT_LOAD:
                self._check_size(segment.va + segment.memory_bytes)
                content = self.object.image[segment.offset : segment.offset + segment.file_bytes]
                self._contents.append((segment.va, content))
                end = max(end, segment.va + segment.memory_bytes)
        dynamic = Dynamic(self.object, RELATIVE64)
        self._symbols = [*dynamic.symbols, *self._local_symbols({one.name for one in dynamic.symbols})]
        nobody = Symbol("", elf.STB_LOCAL, elf.STT_NOTYPE, elf.SHN_UNDEF, 0, 0)
        for one in dynamic.relocations:
            symbol = dynamic.symbols[one.symbol] if one.symbol else nobody
            self._relocations.append((0, end, one, symbol))
        self.size_bytes = end + GUARD_BYTES

    def _local_symbols(self, known: set[str]) -> list[Symbol]:
        """What a section table still names beside the dynamic symbols: hidden kernels, static variables."""
        tables = [table for table in self.object.sections if table.type == elf.SHT_SYMTAB]
        found = [
            symbol
            for table in tables
            for symbol in self.object.symbols(table)
            if symbol.type == elf.STT_OBJECT and 0 < symbol.section < elf.SHN_LORESERVE
        ]
        count = Counter(symbol.name for symbol in found)
        return [one for one in found if one.name not in known and count[one.name] == 1]

    def _is_loaded(self, section: Section) -> bool:
        return bool(
            section.flags & elf.SHF_ALLOC
            and section.type in (elf.SHT_PROGBITS, elf.SHT_NOBITS)
            and section.size_bytes
            and not section.name.startswith(".note")
        )

    def _check_size(self, size: int) -> None:
        if size > MAX_IMAGE_BYTES:
            raise self.object.refuse(
                f"it wants {size} bytes of memory; {MAX_IMAGE_BYTES} at most",
                "Keep large tables in buffers that are passed to its kernels",
            )

    # ------------------------------------------------------------ symbols and relocations

    def _symbol_address(self, symbol: Symbol, va: int) -> int:
        if symbol.section == elf.SHN_ABS:
            return symbol.value
        if self.object.type == elf.ET_DYN and 0 < symbol.section < elf.SHN_LORESERVE:
            return va + symbol.value
        if symbol.is_undefined or symbol.section not in self._bases:
            raise self.object.refuse(
                f"symbol {symbol.name!r} is not defined in it",
                "Link everything that a kernel uses into one object",
            )
        return va + self._bases[symbol.section] + symbol.value

    def _apply(
        self, memory: bytearray, va: int, start: int, size: int, relocation: Pending, symbol: Symbol
    ) -> None:
        if relocation.type == NONE:
            return
        known = _FORMULAS.get(relocation.type)
        if known is None:
            raise self.object.refuse(f"relocation type {relocation.type} is none that AMDGPU objects have")
        text, formula = known
        at = start + relocation.va
        if relocation.va + struct.calcsize(text) > size or at + struct.calcsize(text) > len(memory):
            raise self.object.refuse(
                f"a relocation at {relocation.va:#x} lies outside what it belongs to, {size} bytes"
            )
        addend = relocation.addend
        if addend is None:
            if relocation.type not in _WHOLE_TYPES:
                raise self.object.refuse(
                    f"a relocation of type {relocation.type} at {relocation.va:#x} has no addend",
                    "Link it with -z rela",
                )
            (addend,) = struct.unpack_from(text.lower(), memory, at)
        target = 0 if relocation.type == RELATIVE64 else self._symbol_address(symbol, va)
        slot = va + self._got.get(f"{symbol.name}/{relocation.symbol}", 0)
        value = formula(target, addend, va + at, slot, va)
        mask = (1 << 8 * struct.calcsize(text)) - 1
        struct.pack_into(text, memory, at, value & mask)

    # ------------------------------------------------------------ variables and kernels

    def _find_variables(self) -> dict[str, Variable]:
        """Every object in memory that has a name; __managed__ ones are what their symbols will point to."""
        placed: dict[str, tuple[int, int]] = {}
        for symbol in self._symbols:
            is_data = symbol.type == elf.STT_OBJECT and not symbol.name.endswith(".kd")
            if symbol.name.startswith(COMPILERS_OWN):
                continue
            if not is_data or symbol.section == elf.SHN_ABS or symbol.is_undefined:
                continue
            at = self._symbol_address(symbol, 0)
            if not 0 <= at <= at + symbol.size_bytes <= self.size_bytes - GUARD_BYTES:
                raise self.object.refuse(f"variable {symbol.name!r} lies at {at:#x}, outside the image")
            placed[symbol.name] = at, symbol.size_bytes
            self.has_writable |= self._is_writable(symbol)
        found = {}
        for name, (at, size) in placed.items():
            own, pointer_bytes = placed.get(name.removesuffix(MANAGED), (-1, 0))
            if name.endswith(MANAGED) and pointer_bytes == 8:
                found[name.removesuffix(MANAGED)] = Variable(at, size, own)
            elif name + MANAGED not in placed:
                found[name] = Variable(at, size)
        return found

    def _is_writable(self, symbol: Symbol) -> bool:
        if self.object.type == elf.ET_REL:
            return bool(self.object.sections[symbol.section].flags & elf.SHF_WRITE)
        return any(
            segment.flags & elf.PF_W and segment.va <= symbol.value < segment.va + segment.memory_bytes
            for segment in self.object.segments
            if segment.type == elf.PT_LOAD
        )

    def _find_kernels(self) -> dict[str, Kernel]:
        """Every symbol NAME.kd, its descriptor checked field by field."""
        memory = self.place(0)
        found = {}
        places = [(one.name, self._symbol_address(one, 0)) for one in self._symbols if _is_kernel(one)]
        if self.object.type == elf.ET_DYN:  # kernels of C are hidden: only a table that nobody loads has them
            tables = [section for section in self.object.sections if section.type == elf.SHT_SYMTAB]
            hidden = [one for table in tables for one in self.object.symbols(table) if _is_kernel(one)]
            places += [(one.name, one.value) for one in hidden]
        for symbol, at in places:
            name = symbol[: -len(".kd")]
            if at % SIZE_BYTES or at < 0 or at + SIZE_BYTES > len(memory):
                raise self.object.refuse(f"the descriptor of {name!r} lies at {at:#x}, which cannot be")
            descriptor = KernelDescriptor.decode(memoryview(memory)[at : at + SIZE_BYTES].cast("I"))
            found[name] = self._kernel(name, at, descriptor)
        return found

    def _kernel(self, name: str, at: int, descriptor: KernelDescriptor) -> Kernel:
        entry = at + descriptor.entry_offset
        if entry % ENTRY_ALIGNMENT or not 0 <= entry < self.size_bytes - GUARD_BYTES:
            raise self.object.refuse(
                f"the code of {name!r} is at {entry:#x}, not at a multiple of 256 inside the image"
            )
        if descriptor.unclaimed:
            raise self.object.refuse(f"the descriptor of {name!r} has reserved bits set: {descriptor!r}")
        if descriptor.group_segment_fixed_size > self.chip.lds_bytes:
            raise self.object.refuse(
                f"kernel {name!r} needs {descriptor.group_segment_fixed_size} bytes of LDS; a workgroup has "
                f"{self.chip.lds_bytes} on {self.chip.arch}",
                "Use less shared memory",
            )
        lanes = 32 if descriptor.enable_wavefront_size32 else 64
        if lanes not in self.chip.wavefront_sizes:
            raise self.object.refuse(
                f"kernel {name!r} has waves of {lanes}; {self.chip.arch} has none",
                f"Compile it with -mwavefrontsize{self.chip.wavefront_sizes[0]}",
            )
        needed = user_sgpr_words(descriptor)
        if descriptor.rsrc2.user_sgpr < needed:
            raise self.object.refuse(
                f"the descriptor of {name!r} asks for {needed} user registers and counts {descriptor.rsrc2.user_sgpr}"
            )
        self._check_preload(name, at, descriptor, needed)
        metadata = self.metadata.get(name)
        if (
            metadata is not None
            and descriptor.kernarg_size
            and metadata.kernarg_bytes != descriptor.kernarg_size
        ):
            raise self.object.refuse(
                f"kernel {name!r} has {descriptor.kernarg_size} bytes of arguments in its descriptor and "
                f"{metadata.kernarg_bytes} in its metadata"
            )
        return Kernel(name, at, entry, descriptor, metadata)

    def _check_preload(self, name: str, at: int, descriptor: KernelDescriptor, needed: int) -> None:
        """Arguments that are to be in registers when the kernel starts."""
        count, first = descriptor.kernarg_preload_spec_length, descriptor.kernarg_preload_spec_offset
        if not count:
            return
        arch = self.chip.arch
        if arch not in targets.PRELOADS:
            raise self.object.refuse(
                f"kernel {name!r} wants arguments in registers, which {arch} has no way to preload",
                f"Compile it for {arch}: --offload-arch={arch}",
            )
        if needed > MAX_USER_SGPRS or 4 * (first + count) > max(descriptor.kernarg_size, 4):
            raise self.object.refuse(
                f"kernel {name!r} wants {count} words of its {descriptor.kernarg_size} bytes of arguments, from word "
                f"{first} on, in registers, of which a launch fills {MAX_USER_SGPRS}"
            )
        if at + descriptor.start_offset >= self.size_bytes - GUARD_BYTES:
            raise self.object.refuse(f"the code of {name!r} behind its first 256 bytes is outside the image")


def _is_kernel(symbol: Symbol) -> bool:
    return symbol.name.endswith(".kd") and not symbol.is_undefined
