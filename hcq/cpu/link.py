"""Linking: place a host ELF object in memory, relocate it by hand, and seal its pages.

In       an ELF object for this machine, relocatable (cc -c) or shared (cc -shared)
Out      a Mapping: functions by name, at addresses that can be called
Changes  new pages: written while they are plain memory, then sealed: code r-x, constants r--, data rw-; never w and x.
         A small object without data gets a slot of an arena instead, in pages that it shares with others
Next     relocations.py (what each relocation writes), arena.py (shared pages), program.py (who asks), hcq/code/elf.py
Source   System V ABI; x86-64 psABI; AAELF64

Layout of a relocatable object, every group from a page on:  code, stubs | GOT, constants | data, bss, common
Undefined symbols may only be libm's functions and a few of libc's that compilers call on their own. Of a relocatable
object with an entry, only the sections are loaded that relocations lead to from the entry's: what nothing else mentions
may name what it likes. Within a section one function can call another without a relocation, so that no finer is sure.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from collections.abc import Mapping as MappingType
from typing import Any, NamedTuple

from hcq.code import elf
from hcq.cpu import relocations
from hcq.cpu.arena import ALIGNMENT as SLOT_ALIGNMENT
from hcq.cpu.arena import Arena
from hcq.errors import DriverError, UsageError
from hcq.system import native
from hcq.system.port import (
    MAP_32BIT,
    MAP_ANONYMOUS,
    MAP_NORESERVE,
    MAP_PRIVATE,
    PAGE_BYTES,
    PROT_EXEC,
    PROT_READ,
    PROT_WRITE,
    Port,
)

MAX_IMAGE_BYTES = 1 << 30
MAX_ALIGNMENT = PAGE_BYTES
CODE, CONSTANTS, DATA = 0, 1, 2
_PROTECTION = (PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE)

_MATH = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim
floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb
lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo rint round roundeven scalbln
scalbn significand sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn
""".split()
MATH_SYMBOLS = frozenset(name + suffix for name in _MATH for suffix in ("", "f", "l"))
# what a compiler calls without being asked: block copies, what it takes a loop for, and the checks that some
# distributions switch on. GCC makes strlen and rawmemchr of loops, LLVM bcmp, strlen and wcslen
COMPILER_SYMBOLS = frozenset(
    (
        "memcpy",
        "memmove",
        "memset",
        "memcmp",
        "bcmp",
        "strlen",
        "wcslen",
        "rawmemchr",
        "__memcpy_chk",
        "__memmove_chk",
        "__memset_chk",
        "__stack_chk_fail",
        "__stack_chk_guard",  # AArch64 keeps it in a variable; x86-64 in thread memory
    )
)


class Mapping:
    """A linked object in memory. `close` takes the memory away; nothing may run in it any more."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.functions: dict[str, int] = {}
        self._close: Callable[[], None] | None = close

    def close(self) -> None:
        """Unmap it, or give its slot back. A second call does nothing."""
        close, self._close = self._close, None
        if close is not None:
            close()


def link(
    image: bytes,
    port: Port,
    machine_name: str,
    label: str,
    extra: MappingType[str, int] | None = None,
    arena: Arena | None = None,
    entry: str | None = None,
) -> Mapping:
    """Load an object for this machine.

    image    the file's bytes
    entry    the function that will be called, where it is one: what it cannot reach is left out
    extra    further symbols that may be undefined in it, with their addresses
    arena    where a small object without data of its own is placed, beside others
    Raises   UsageError saying what is wrong with the object; DriverError when pages cannot be had
    """
    object_ = elf.Object(image, label)
    if object_.machine_name != machine_name or object_.machine not in relocations.KINDS:
        raise object_.refuse(f"it is for {object_.machine_name}, and this device runs {machine_name}")
    if object_.type == elf.ET_REL:
        if arena is not None:
            try:
                return _Relocatable(object_, port, extra or {}, entry, arena).link()
            # the arena's file cannot grow (ulimit -f): pages of its own may do, or say why not
            except DriverError:
                pass
        return _Relocatable(object_, port, extra or {}, entry, None).link()
    if object_.type == elf.ET_DYN:
        return _Shared(object_, port, extra or {}).link()
    raise object_.refuse(f"its type is {object_.type}; only relocatable (1) and shared (3) objects load")


class _Span(NamedTuple):
    """Pages of one protection, as offsets into the mapping."""

    start: int
    end: int
    protection: int


class _Linker:
    """What both kinds of object need: memory, symbols from outside, sealing."""

    def __init__(self, object_: elf.Object, port: Port, extra: MappingType[str, int]) -> None:
        self.object = object_
        self.port = port
        self.extra = extra
        self.undefined: dict[str, str] = {}  # by name: who needs it, if that is known

    def reserve(self, size_bytes: int, below_2_gib: bool = False) -> tuple[int, memoryview]:
        """New pages, writable until they are sealed."""
        if size_bytes > MAX_IMAGE_BYTES:
            raise self.object.refuse(
                f"it would take {size_bytes} bytes of memory, more than {MAX_IMAGE_BYTES}"
            )
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (MAP_32BIT if below_2_gib else 0)
        va = self.port.mmap(0, size_bytes, PROT_READ | PROT_WRITE, flags)
        return va, native.view(va, size_bytes)

    def outside(self, symbol: elf.Symbol, needed_by: str = "") -> int:
        """The address of an undefined symbol; weak ones that nobody has are 0, others are collected for one message."""
        name = symbol.name
        if name in self.extra:
            return self.extra[name]
        found = 0
        if name in MATH_SYMBOLS:
            found = native.math_symbol(name)
        elif name in COMPILER_SYMBOLS:
            found = native.symbol(name)
        if not found and symbol.binding != elf.STB_WEAK:
            self.undefined.setdefault(name, needed_by)
        return found

    def check_undefined(self) -> None:
        if self.undefined:
            names = [f"{name!r}{who and f', which {who!r} needs'}" for name, who in self.undefined.items()]
            raise UsageError(
                f"load({self.object.label!r}): undefined symbol {', '.join(names)}. A kernel may call libm's functions "
                "and memcpy, memmove, memset, memcmp, strlen; define anything else in the object itself. What the "
                "entry never calls may need what it likes, in a section of its own: compile with -ffunction-sections."
            )

    def seal(self, va: int, spans: list[_Span]) -> None:
        for start, end, protection in spans:
            if end > start:
                self.port.mprotect(va + start, end - start, protection)

    def check_symbol(self, symbol: elf.Symbol) -> None:
        if symbol.type == elf.STT_TLS:
            raise self.object.refuse(f"{symbol.name!r} is thread-local, which kernels cannot use")
        if symbol.type == elf.STT_GNU_IFUNC:
            raise self.object.refuse(
                f"{symbol.name!r} is chosen at load time (IFUNC), which kernels cannot use"
            )


class _Place(NamedTuple):
    """Where a section goes: a group, and the offset in it."""

    group: int
    offset: int


# the section whose bytes are rewritten, the relocation, how it is written
_Work = tuple[int, elf.Relocation, relocations.Kind]


class _Home(NamedTuple):
    """Memory for the three groups: where each will be, its bytes until then, how it becomes what it shall be."""

    va: tuple[int, int, int]
    memory: tuple[Any, Any, Any]  # memoryview or bytearray
    seal: Callable[[], None]
    close: Callable[[], None]


class _Relocatable(_Linker):
    """An ET_REL object: sections are grouped by what may be done to them, stubs and a GOT are made."""

    def __init__(
        self,
        object_: elf.Object,
        port: Port,
        extra: MappingType[str, int],
        entry: str | None,
        arena: Arena | None,
    ) -> None:
        super().__init__(object_, port, extra)
        self.entry = entry
        self.arena = arena

    def link(self) -> Mapping:
        object_ = self.object
        kinds = relocations.KINDS[object_.machine]
        groups = self.group_sections()
        tables = [table for table in object_.sections if table.type == elf.SHT_SYMTAB]
        if len(tables) != 1:
            raise object_.refuse(f"it has {len(tables)} symbol tables; one is needed")
        symbols = object_.symbols(tables[0])
        work = self.collect(groups, kinds, symbols)
        reached = self.reach(groups[CODE], work, symbols)
        groups = tuple([[index for index in group if index in reached] for group in groups])
        work = [item for item in work if item[0] in reached]
        got = {
            s: i for i, s in enumerate(dict.fromkeys(r.symbol for _, r, kind in work if kind.uses == "got"))
        }
        stubs: dict[int, int] = {}
        for _, relocation, kind in work:
            symbol = symbols[relocation.symbol]
            if kind.uses == "call" and symbol.is_undefined and symbol.type != elf.STT_OBJECT:
                stubs.setdefault(relocation.symbol, len(stubs))
                got.setdefault(relocation.symbol, len(got))

        # where everything goes, relative to its group: code, stubs | GOT, constants | data, commons
        place: dict[int, _Place] = {}
        at = self.lay(CODE, groups[CODE], 0, place)
        stubs_at = -(-at // relocations.STUB_BYTES) * relocations.STUB_BYTES
        code_bytes = stubs_at + len(stubs) * relocations.STUB_BYTES
        constants_bytes = self.lay(CONSTANTS, groups[CONSTANTS], 8 * len(got), place)
        at = self.lay(DATA, groups[DATA], 0, place)
        commons: dict[int, int] = {}
        for index, symbol in enumerate(symbols):
            if symbol.section == elf.SHN_COMMON:
                if symbol.value not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
                    raise object_.refuse(f"common symbol {symbol.name!r} is aligned to {symbol.value}")
                commons[index] = at = -(-at // symbol.value) * symbol.value
                at += symbol.size_bytes

        home = self.home((code_bytes, constants_bytes, at), any(kind.is_absolute_32 for *_, kind in work))
        try:
            memory = home.memory
            for index, (group, offset) in place.items():
                contents = object_.contents(object_.sections[index])
                memory[group][offset : offset + len(contents)] = contents
            where = self.addresses(symbols, place, commons, home.va, work)
            self.check_undefined()
            for index, slot in got.items():
                struct.pack_into("<Q", memory[CONSTANTS], 8 * slot, where[index] % 2**64)
            for index, slot in stubs.items():
                offset = stubs_at + slot * relocations.STUB_BYTES
                entry = home.va[CONSTANTS] + 8 * got[index]
                jump = relocations.stub(object_.machine, entry - (home.va[CODE] + offset))
                memory[CODE][offset : offset + len(jump)] = jump
            for target, relocation, kind in work:
                group, start = place[target]
                offset = start + relocation.offset
                value = where[relocation.symbol]
                if kind.uses == "got":
                    value = home.va[CONSTANTS] + 8 * got[relocation.symbol]
                elif relocation.symbol in stubs:
                    value = home.va[CODE] + stubs_at + relocations.STUB_BYTES * stubs[relocation.symbol]
                try:
                    kind.write(memory[group], offset, value + relocation.addend, home.va[group] + offset)
                except relocations.DoesNotFit:
                    name = symbols[relocation.symbol].name
                    raise object_.refuse(
                        f"{kind.name} of {name!r} is out of range; compile with -fPIC"
                    ) from None
            home.seal()
        except BaseException:
            home.close()
            raise
        mapping = Mapping(home.close)
        for symbol in symbols:
            inside = symbol.section in groups[CODE] and _is_entry(symbol)
            if inside and symbol.value < object_.sections[symbol.section].size_bytes:
                at = place[symbol.section].offset + symbol.value
                mapping.functions[symbol.name] = home.va[CODE] + at
        return mapping

    def home(self, sizes: tuple[int, int, int], below_2_gib: bool) -> _Home:
        """Memory for groups of these sizes: a slot beside other kernels, or pages of their own."""
        if (
            self.arena is not None
            and not sizes[DATA]
            and not below_2_gib
            and self.alignment <= SLOT_ALIGNMENT
        ):
            slot = self.arena.place(sizes[CODE], sizes[CONSTANTS])
            if slot is not None:
                code, constants = bytearray(sizes[CODE]), bytearray(sizes[CONSTANTS])
                va = slot.code_va, slot.constants_va, slot.constants_va  # a section of data may be empty
                return _Home(
                    va, (code, constants, bytearray()), lambda: slot.write(code, constants), slot.free
                )
        constants_at = _page(sizes[CODE])
        data_at = constants_at + _page(sizes[CONSTANTS])
        total = max(data_at + _page(sizes[DATA]), PAGE_BYTES)
        start, memory = self.reserve(total, below_2_gib)
        spans = [
            _Span(0, constants_at, _PROTECTION[CODE]),
            _Span(constants_at, data_at, _PROTECTION[CONSTANTS]),
            _Span(data_at, total, _PROTECTION[DATA]),
        ]
        return _Home(
            (start, start + constants_at, start + data_at),
            (memory[:constants_at], memory[constants_at:data_at], memory[data_at:]),
            lambda: self.seal(start, spans),
            lambda: self.port.munmap(start, total),
        )

    @property
    def alignment(self) -> int:
        """What the most demanding section asks for."""
        return max((s.alignment for s in self.object.sections if s.flags & elf.SHF_ALLOC), default=1)

    def group_sections(self) -> tuple[list[int], ...]:
        """Section indices to place, by protection. Unwind tables and notes are for debuggers: they stay behind."""
        groups: tuple[list[int], list[int], list[int]] = ([], [], [])
        for index, section in enumerate(self.object.sections):
            if not section.flags & elf.SHF_ALLOC or section.name.startswith((".eh_frame", ".note")):
                continue
            if section.flags & elf.SHF_TLS:
                raise self.object.refuse(
                    f"section {section.name!r} is thread-local, which kernels cannot use"
                )
            if section.type == elf.SHT_INIT_ARRAY or section.name.startswith((".ctors", ".init_array")):
                raise self.object.refuse(f"section {section.name!r} has constructors, which nobody would run")
            if section.flags & elf.SHF_WRITE and section.flags & elf.SHF_EXECINSTR:
                raise self.object.refuse(f"section {section.name!r} is writable and executable")
            if section.alignment > MAX_ALIGNMENT:
                raise self.object.refuse(f"section {section.name!r} is aligned to {section.alignment} bytes")
            writable, code = section.flags & elf.SHF_WRITE, section.flags & elf.SHF_EXECINSTR
            groups[DATA if writable else CODE if code else CONSTANTS].append(index)
        return groups

    def lay(self, group: int, indices: list[int], at: int, place: dict[int, _Place]) -> int:
        for index in indices:
            section = self.object.sections[index]
            alignment = max(section.alignment, 1)
            at = -(-at // alignment) * alignment
            place[index] = _Place(group, at)
            at += section.size_bytes
        return at

    def collect(
        self, groups: tuple[list[int], ...], kinds: dict[int, relocations.Kind], symbols: list[elf.Symbol]
    ) -> list[_Work]:
        """All relocations of sections to place, checked: known type, inside its section, of a symbol that exists."""
        placed = {index for group in groups for index in group}
        work = []
        for table in self.object.sections:
            if table.type not in (elf.SHT_RELA, elf.SHT_REL) or table.info not in placed:
                continue
            target = self.object.sections[table.info]
            if table.type == elf.SHT_REL:
                raise self.object.refuse(f"section {table.name!r} has relocations without addends")
            for relocation in self.object.relocations(table):
                kind = kinds.get(relocation.type)
                if relocation.type == 0:
                    continue
                if kind is None:
                    machine = self.object.machine_name
                    raise self.object.refuse(
                        f"relocation type {relocation.type} of {machine} in {target.name!r} is not one that "
                        f"plain C needs; compile with -O2 -fPIC and without thread-local data"
                    )
                end = relocation.offset + kind.size_bytes
                if end > target.size_bytes or target.type == elf.SHT_NOBITS:
                    raise self.object.refuse(
                        f"{kind.name} at {relocation.offset:#x} is outside {target.name!r}"
                    )
                if relocation.symbol >= len(symbols):
                    raise self.object.refuse(
                        f"{kind.name} names symbol {relocation.symbol} of {len(symbols)}"
                    )
                work.append((table.info, relocation, kind))
        return work

    def reach(self, code: list[int], work: list[_Work], symbols: list[elf.Symbol]) -> set[int]:
        """The sections that relocations lead to from the entry's; all, where no entry is named or found."""
        roots = [symbol.section for symbol in symbols if symbol.name == self.entry and symbol.section in code]
        if not roots:
            return set(range(len(self.object.sections)))
        mentions: dict[int, set[int]] = {}
        for target, relocation, _ in work:
            mentions.setdefault(target, set()).add(symbols[relocation.symbol].section)
        reached: set[int] = set()
        while roots:
            section = roots.pop()
            if section not in reached:
                reached.add(section)
                roots.extend(mentions.get(section, ()))
        return reached

    def function_at(self, section: int, offset: int, symbols: list[elf.Symbol]) -> str:
        """The function, or the section, that a place is in."""
        for symbol in symbols:
            if symbol.section == section and symbol.value <= offset < symbol.value + symbol.size_bytes:
                return symbol.name
        return self.object.sections[section].name

    def addresses(
        self,
        symbols: list[elf.Symbol],
        place: dict[int, _Place],
        commons: dict[int, int],
        base: tuple[int, int, int],
        work: list[_Work],
    ) -> dict[int, int]:
        """The address of every symbol that a relocation names."""
        where: dict[int, int] = {}
        for target, relocation, _ in work:
            index = relocation.symbol
            if index in where:
                continue
            symbol = symbols[index]
            self.check_symbol(symbol)
            if index == 0 or symbol.section == elf.SHN_ABS:
                where[index] = symbol.value
            elif symbol.is_undefined:
                where[index] = self.outside(symbol, self.function_at(target, relocation.offset, symbols))
            elif symbol.section == elf.SHN_COMMON:
                where[index] = base[DATA] + commons[index]
            elif symbol.section in place:
                if symbol.value > self.object.sections[symbol.section].size_bytes:
                    raise self.object.refuse(f"symbol {symbol.name!r} is beyond the end of its section")
                group, offset = place[symbol.section]
                where[index] = base[group] + offset + symbol.value
            else:
                raise self.object.refuse(
                    f"symbol {symbol.name!r} is in section {symbol.section}, which is not loaded"
                )
        return where


class _Shared(_Linker):
    """An ET_DYN object: segments are placed as they stand, and the few dynamic relocations applied."""

    def link(self) -> Mapping:
        object_ = self.object
        loads = [
            segment for segment in object_.segments if segment.type == elf.PT_LOAD and segment.memory_bytes
        ]
        if not loads:
            raise object_.refuse("it has no segment to load")
        for section in object_.sections:
            # one entry is the compiler's own, which only serves C++ exceptions and the profiler
            if section.type == elf.SHT_INIT_ARRAY and section.size_bytes > 8:
                raise object_.refuse(f"section {section.name!r} has constructors, which nobody would run")
        low = min(segment.va for segment in loads) // PAGE_BYTES * PAGE_BYTES
        total = _page(max(segment.va + segment.memory_bytes for segment in loads) - low)
        protections = self.protections(loads, low)
        tables = [table for table in object_.sections if table.type == elf.SHT_DYNSYM]
        if len(tables) != 1:
            raise object_.refuse(f"it has {len(tables)} dynamic symbol tables; one is needed")
        symbols = object_.symbols(tables[0])

        va, memory = self.reserve(total)
        mapping = Mapping(lambda: self.port.munmap(va, total))
        try:
            for segment in loads:
                start = segment.va - low
                contents = object_.image[segment.offset : segment.offset + segment.file_bytes]
                memory[start : start + len(contents)] = contents
            self.relocate(memory, va - low, low, symbols)
            self.check_undefined()
            self.seal(va, protections)
        except BaseException:
            mapping.close()
            raise
        for symbol in symbols:
            if symbol.is_undefined or not _is_entry(symbol):
                continue
            for segment in loads:
                if segment.flags & elf.PF_X and segment.va <= symbol.value < segment.va + segment.file_bytes:
                    mapping.functions[symbol.name] = va + symbol.value - low
        return mapping

    def protections(self, loads: list[elf.Segment], low: int) -> list[_Span]:
        spans = []
        pages: dict[int, int] = {}
        for segment in loads:
            start = (segment.va - low) // PAGE_BYTES * PAGE_BYTES
            end = _page(segment.va - low + segment.memory_bytes)
            if end > MAX_IMAGE_BYTES:
                raise self.object.refuse(f"it would take {end} bytes of memory, more than {MAX_IMAGE_BYTES}")
            readable = PROT_READ if segment.flags & elf.PF_R else 0
            writable = PROT_WRITE if segment.flags & elf.PF_W else 0
            protection = readable | writable | (PROT_EXEC if segment.flags & elf.PF_X else 0)
            if protection & PROT_WRITE and protection & PROT_EXEC:
                raise self.object.refuse("it has a segment that is writable and executable")
            for page in (start, end - PAGE_BYTES):
                if pages.setdefault(page, protection) != protection:
                    raise self.object.refuse("two of its segments with different rights share a page")
            spans.append(_Span(start, end, protection))
        spans.sort()
        for before, after in itertools.pairwise(spans):
            if before.end > after.start and before.protection != after.protection:
                raise self.object.refuse("its segments overlap")
        return spans

    def relocate(self, memory: memoryview, bias: int, low: int, symbols: list[elf.Symbol]) -> None:
        object_ = self.object
        known = relocations.DYNAMIC[object_.machine]
        for table in object_.sections:
            if not table.flags & elf.SHF_ALLOC:
                continue
            if table.type == elf.SHT_RELR:
                for offset in _relr(object_.contents(table)):
                    self.check_place(offset - low, len(memory))
                    (value,) = struct.unpack_from("<Q", memory, offset - low)
                    struct.pack_into("<Q", memory, offset - low, (value + bias) % 2**64)
            if table.type != elf.SHT_RELA:
                continue
            for relocation in object_.relocations(table):
                use = known.get(relocation.type)
                if relocation.type == 0:
                    continue
                if use is None:
                    raise object_.refuse(
                        f"dynamic relocation type {relocation.type} is not one that plain C needs"
                    )
                self.check_place(relocation.offset - low, len(memory))
                value = bias
                if use == "symbol":
                    if relocation.symbol >= len(symbols):
                        raise object_.refuse(
                            f"a relocation names symbol {relocation.symbol} of {len(symbols)}"
                        )
                    symbol = symbols[relocation.symbol]
                    self.check_symbol(symbol)
                    value = self.outside(symbol) if symbol.is_undefined else bias + symbol.value
                struct.pack_into("<Q", memory, relocation.offset - low, (value + relocation.addend) % 2**64)

    def check_place(self, at: int, size_bytes: int) -> None:
        if not 0 <= at <= size_bytes - 8:
            raise self.object.refuse(f"a relocation writes at {at:#x}, outside its {size_bytes} bytes")


def _relr(contents: bytes) -> list[int]:
    """The places of packed relative relocations: an address, then bitmaps of the 63 words after it."""
    places = []
    base = 0
    for (entry,) in struct.iter_unpack("<Q", contents[: len(contents) // 8 * 8]):
        if not entry & 1:
            places.append(entry)
            base = entry + 8
            continue
        places += [base + 8 * bit for bit in range(63) if entry >> bit + 1 & 1]
        base += 63 * 8
    return places


def _page(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def _is_entry(symbol: elf.Symbol) -> bool:
    """Whether it may name a function: AArch64's mapping symbols ($x, $d) only say where code and data are."""
    is_code = symbol.type in (elf.STT_FUNC, elf.STT_NOTYPE)
    return is_code and bool(symbol.name) and not symbol.name.startswith("$")
