"""Linking: an AMDGPU object into one block of the GPU's memory, without a linker.

In       the bytes of an ELF object, as LLVM writes it (relocatable) or as a linker does (shared)
Out      Linked: the image for a given address, its kernels with checked descriptors and metadata
Changes  nothing
Next     program.py (who copies the image), descriptor.py and metadata.py (what kernels say of themselves)
Source   LLVM AMDGPUUsage, "Code Object"; relocation formulas from its table

In a relocatable object every kernel descriptor needs one relocation: until then its entry offset is zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from hcq import elf
from hcq.amd.abi.descriptor import ENTRY_ALIGNMENT, SIZE_BYTES, KernelDescriptor, user_sgpr_words
from hcq.amd.chip import CHIPS, Chip
from hcq.amd.metadata import KernelMetadata, kernels_of
from hcq.elf import Object, Relocation, Section, Symbol

ALIGNMENT = 4096
MAX_IMAGE_BYTES = 1 << 28
GUARD_BYTES = 256  # after the image: instruction prefetch reads beyond a kernel's end
OSABI_AMDHSA = 64
ABI_VERSIONS = range(1, 5)  # code object versions 3 to 6
XNACK_ON = 3

NONE, ABS32_LO, ABS32_HI, ABS64, REL32, REL64, ABS32 = 0, 1, 2, 3, 4, 5, 6
GOTPCREL, GOTPCREL32_LO, GOTPCREL32_HI, REL32_LO, REL32_HI, RELATIVE64, REL16 = 7, 8, 9, 10, 11, 13, 14
_GOT_TYPES = (GOTPCREL, GOTPCREL32_LO, GOTPCREL32_HI)

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


class Linked:
    """An object laid out for `size_bytes` of memory; `place(va)` gives the bytes for an address."""

    def __init__(self, image: bytes, chip: Chip, label: str) -> None:
        self.object = Object(image, label)
        self.chip = chip
        self._check_header(image)
        if self.object.type == elf.ET_REL:
            self._lay_out_sections()
        else:
            self._lay_out_segments()
        self.metadata = kernels_of(self.object)
        self.kernels = self._find_kernels()

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
        what = self.object
        if what.machine != elf.EM_AMDGPU:
            raise what.refuse(f"it is for {what.machine_name}, and this device is a {self.chip.arch}")
        if image[7] != OSABI_AMDHSA or image[8] not in ABI_VERSIONS:
            raise what.refuse(
                f"its OS ABI is {image[7]} version {image[8]}, not amdhsa (64) version 1 to 4; compile for "
                "amdgcn-amd-amdhsa"
            )
        mach = what.flags & 0xFF
        if mach != self.chip.mach:
            known = next((chip.arch for chip in CHIPS.values() if chip.mach == mach), f"target {mach:#x}")
            raise what.refuse(f"it is for {known}, and this device is a {self.chip.arch}")
        if what.flags >> 8 & 3 == XNACK_ON:
            raise what.refuse("it needs XNACK, which this driver does not turn on; compile with xnack off")
        if what.type not in (elf.ET_REL, elf.ET_DYN):
            raise what.refuse(f"its type is {what.type}; relocatable (1) and shared (3) objects load")

    # ------------------------------------------------------------ layout

    def _lay_out_sections(self) -> None:
        """Relocatable objects: every section that occupies memory, in file order."""
        self._bases: dict[int, int] = {}
        self._contents: list[tuple[int, bytes]] = []
        at = 0
        for index, section in enumerate(self.object.sections):
            if not self._is_loaded(section):
                continue
            if section.alignment > ALIGNMENT:
                raise self.object.refuse(
                    f"section {section.name!r} is aligned to {section.alignment}; 4096 at most"
                )
            at = -(-at // max(section.alignment, 1)) * max(section.alignment, 1)
            self._bases[index] = at
            self._contents.append((at, self.object.contents(section)))
            at += section.size_bytes
            self._check_size(at)
        self._got: dict[str, int] = {}
        self._got_symbols: dict[str, Symbol] = {}
        self._relocations: list[tuple[int, int, Relocation, Symbol]] = []
        at = -(-at // 8) * 8
        for table in self.object.sections:
            if table.type == elf.SHT_REL and table.info in self._bases:
                raise self.object.refuse(
                    f"relocations {table.name!r} have no addends; AMDGPU objects have them"
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
                self._relocations.append((self._bases[table.info], target.size_bytes, relocation, symbol))
        self.size_bytes = at + GUARD_BYTES
        self._symbols = [
            symbol
            for section in self.object.sections
            if section.type == elf.SHT_SYMTAB
            for symbol in self.object.symbols(section)
        ]

    def _lay_out_segments(self) -> None:
        """Shared objects: their segments at their own distances; what a linker left to do is RELATIVE64 and ABS64."""
        self._bases = {}
        self._contents = []
        end = 0
        for segment in self.object.segments:
            if segment.type == elf.PT_LOAD:
                self._check_size(segment.va + segment.memory_bytes)
                content = self.object.image[segment.offset : segment.offset + segment.file_bytes]
                self._contents.append((segment.va, content))
                end = max(end, segment.va + segment.memory_bytes)
        self._got, self._got_symbols, self._relocations, self._symbols = {}, {}, [], []
        for index, section in enumerate(self.object.sections):
            if section.flags & elf.SHF_ALLOC:
                self._bases[index] = section.va
        for section in self.object.sections:
            if section.type == elf.SHT_DYNSYM:
                self._symbols = [self._relative(symbol) for symbol in self.object.symbols(section)]
        for table in self.object.sections:
            if table.type == elf.SHT_RELA and table.flags & elf.SHF_ALLOC:
                symbols = self.object.symbols(
                    self.object.section(table.link, f"the symbols of {table.name!r}")
                )
                for relocation in self.object.relocations(table):
                    if relocation.symbol >= len(symbols):
                        raise self.object.refuse(
                            f"a relocation names symbol {relocation.symbol} of {len(symbols)}"
                        )
                    symbol = self._relative(symbols[relocation.symbol])
                    self._relocations.append((0, end, relocation, symbol))
        self.size_bytes = end + GUARD_BYTES

    def _relative(self, symbol: Symbol) -> Symbol:
        """A linked object's symbol with its value counted from its section, as in a relocatable one."""
        base = self._bases.get(symbol.section)
        return symbol if base is None else symbol._replace(value=symbol.value - base)

    def _is_loaded(self, section: Section) -> bool:
        return bool(
            section.flags & elf.SHF_ALLOC
            and section.type in (elf.SHT_PROGBITS, elf.SHT_NOBITS)
            and section.size_bytes
            and not section.name.startswith(".note")
        )

    def _check_size(self, size: int) -> None:
        if size > MAX_IMAGE_BYTES:
            raise self.object.refuse(f"it wants {size} bytes of memory; {MAX_IMAGE_BYTES} at most")

    # ------------------------------------------------------------ symbols and relocations

    def _symbol_address(self, symbol: Symbol, va: int) -> int:
        if symbol.section == elf.SHN_ABS:
            return symbol.value
        if symbol.is_undefined or symbol.section not in self._bases:
            raise self.object.refuse(
                f"symbol {symbol.name!r} is not defined in it; put everything a kernel calls into one object"
            )
        return va + self._bases[symbol.section] + symbol.value

    def _apply(
        self, memory: bytearray, va: int, start: int, size: int, relocation: Relocation, symbol: Symbol
    ) -> None:
        if relocation.type == NONE:
            return
        known = _FORMULAS.get(relocation.type)
        if known is None:
            raise self.object.refuse(f"relocation type {relocation.type} is none that AMDGPU objects have")
        text, formula = known
        at = start + relocation.offset
        if relocation.offset + struct.calcsize(text) > size or at + struct.calcsize(text) > len(memory):
            raise self.object.refuse(
                f"a relocation at {relocation.offset:#x} lies outside its section of {size} bytes"
            )
        target = 0 if relocation.type == RELATIVE64 else self._symbol_address(symbol, va)
        slot = va + self._got.get(f"{symbol.name}/{relocation.symbol}", 0)
        value = formula(target, relocation.addend, va + at, slot, va)
        mask = (1 << 8 * struct.calcsize(text)) - 1
        struct.pack_into(text, memory, at, value & mask)

    # ------------------------------------------------------------ kernels

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
                f"{self.chip.lds_bytes} on {self.chip.arch}"
            )
        lanes = 32 if descriptor.enable_wavefront_size32 else 64
        if lanes not in self.chip.wavefront_sizes:
            raise self.object.refuse(f"kernel {name!r} has waves of {lanes}; {self.chip.arch} has none")
        needed = user_sgpr_words(descriptor)
        if descriptor.rsrc2.user_sgpr < needed:
            raise self.object.refuse(
                f"the descriptor of {name!r} asks for {needed} user registers and counts {descriptor.rsrc2.user_sgpr}"
            )
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


def _is_kernel(symbol: Symbol) -> bool:
    return symbol.name.endswith(".kd") and not symbol.is_undefined
