"""Linking: a kernel's machine code and the PTX it was made from, as one image for the GPU's memory.

In       a Bundle, an entry's name, the chip
Out      Linked: the bytes for an address, and a Kernel, what a launch of the entry needs to know
Changes  nothing
Next     program.py (who copies the image), cubin.py and ptx.py (facts), image.py (what leads to the PTX)
Source   our own layout; a loader chooses where sections of a cubin go

    base                 nothing, and at its end, for an emulated GPU, the KernelDescriptor
    base + CODE_AT       the code, then constant banks and global data of the cubin, then room for instruction prefetch
    behind it            for an emulated GPU only: the PTX, the entry's name, the addresses of variables and functions
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hcq.errors import UsageError
from hcq.nv import ptx
from hcq.nv.abi import image as images
from hcq.nv.abi.image import DESCRIPTOR_BYTES, EMPTY_CODE, KernelDescriptor, SymbolEntry
from hcq.nv.bundle import Bundle
from hcq.nv.chip import Chip
from hcq.nv.cubin import CONSTANT_ALIGNMENT, Cubin, CubinKernel, Layout, Place
from hcq.nv.ptx import Parameter

ALIGNMENT = 256
CODE_AT = 256
PTX_REGISTERS = 32  # what a launch says of a kernel that has no machine code
STACK_RESERVE_BYTES = 1024  # for what MIN_STACK_SIZE does not count: recursion, alloca, indirect calls
_ALLOCA = re.compile(rb"\balloca\.")


@dataclass(frozen=True)
class Kernel:
    """What a launch needs.

    static_shared     as a cubin's section counts it
    stack_bytes       of each thread; 0 when nothing is kept in local memory
    banks             constant bank -> (offset in the image, bytes), without bank 0
    largest_block     threads, from the code's own bounds; 0 when it has none
    """

    name: str
    registers: int
    barriers: int
    static_shared: int
    stack_bytes: int
    param_base: int
    param_bytes: int
    parameters: tuple[Parameter, ...]
    largest_block: int
    required_block: tuple[int, ...]
    banks: tuple[tuple[int, int, int], ...] = ()


class Linked:
    """One entry of a bundle, laid out for `size_bytes` of memory; `place(va)` gives the bytes for an address.

    keeps_ptx  whether the PTX lies beside the code: an emulated GPU runs it, and a real one has no use for it
    """

    def __init__(self, bundle: Bundle, entry: str, chip: Chip, label: str, keeps_ptx: bool = True) -> None:
        self.bundle, self.entry, self.chip, self.label = bundle, entry, chip, label
        self.keeps_ptx = keeps_ptx and bool(bundle.ptx)
        self.module = ptx.read_module(bundle.ptx.decode("utf-8", "replace"), label) if bundle.ptx else None
        if self.module is not None:
            _check_entry(entry, list(self.module.entries), label)
        self.cubin = Cubin(bundle.cubin, label) if bundle.cubin else None
        if self.cubin is not None:
            self._check_arch(self.cubin.arch)
            _check_entry(entry, list(self.cubin.kernels), label)
            self.kernel = self._of_cubin(self.cubin, self.cubin.kernels[entry])
        else:
            assert self.module is not None
            ptx.check_target(self.module, chip.arch, label)
            self.kernel = self._of_ptx(self.module.entries[entry])
            self.layout = Layout({}, CODE_AT + len(EMPTY_CODE))
        self.size_bytes = self._tail = -(-self.layout.size_bytes // 16) * 16
        if not self.keeps_ptx:
            return
        self._symbols = self._variables()
        names = sum(len(name.encode()) + 1 for name in (entry, *self._symbols))
        self._symbols_at = -(-(self._tail + len(bundle.ptx) + names) // 16) * 16
        self.size_bytes = self._symbols_at + images.SYMBOL_BYTES * len(self._symbols)

    def place(self, va: int) -> bytes:
        """The image for this address, relocated; a multiple of ALIGNMENT."""
        if self.cubin is not None:
            memory = bytearray(self.cubin.link(self.layout, va))
        else:
            memory = bytearray(CODE_AT) + EMPTY_CODE
        if self.keeps_ptx:
            memory = memory.ljust(self.size_bytes, b"\0")
            self._place_ptx(memory, va)
        return bytes(memory)

    def _place_ptx(self, memory: bytearray, va: int) -> None:
        text = self.bundle.ptx
        at = self._tail
        memory[at : at + len(text)] = text
        at += len(text)
        name_at = at
        entry = self.entry.encode() + b"\0"
        memory[at : at + len(entry)] = entry
        at += len(entry)
        for number, (name, (offset, is_in_image)) in enumerate(self._symbols.items()):
            encoded = name.encode() + b"\0"
            memory[at : at + len(encoded)] = encoded
            symbol = SymbolEntry(name_address=va + at, address=va + offset if is_in_image else offset)
            place = self._symbols_at + images.SYMBOL_BYTES * number
            memory[place : place + images.SYMBOL_BYTES] = symbol.to_bytes()
            at += len(encoded)
        descriptor = KernelDescriptor(
            ptx_address=va + self._tail,
            ptx_bytes=len(text),
            entry_name_address=va + name_at,
            symbols_address=va + self._symbols_at if self._symbols else 0,
            symbol_count=len(self._symbols),
            param_bytes=self.kernel.param_bytes,
            ptx_crc32=images.crc32(text),
        )
        memory[CODE_AT - DESCRIPTOR_BYTES : CODE_AT] = descriptor.to_bytes()

    def _variables(self) -> dict[str, tuple[int, bool]]:
        """The module's variables and functions: where they are, and whether that is an offset in the image."""
        if self.module is None or not self.module.variables:
            return {}  # and then nothing holds an address of a function
        if self.cubin is None:
            raise UsageError(
                f"load({self.label!r}): the PTX has variables ({', '.join(self.module.variables[:4])}), whose first "
                "contents are in machine code. Load what nvJitLink makes of it: hcq.nv.toolchain.images.of_ptx."
            )
        known = self.cubin.variables()
        found: dict[str, tuple[int, bool]] = {}
        for name in self.module.variables:
            if name in known and known[name][0] in self.layout.places:
                section, offset, _ = known[name]
                found[name] = self.layout.places[section].offset + offset, True
        for name, (section, offset) in self.cubin.functions(self.entry).items():
            if not section:
                found[name] = offset, False
            elif section in self.layout.places:
                found[name] = self.layout.places[section].offset + offset, True
        return found

    # ------------------------------------------------------------ facts

    def _of_cubin(self, cubin: Cubin, found: CubinKernel) -> Kernel:
        if found.runtime_calls:
            raise UsageError(
                f"load({self.label!r}): {found.name} calls {', '.join(found.runtime_calls)}, functions of the device "
                "runtime, which only the vendor's driver supplies. Compile without printf, malloc and assert."
            )
        if any(size > 1 for size in found.cluster):
            raise UsageError(
                f"load({self.label!r}): {found.name} needs clusters of {found.cluster} blocks, which this driver does "
                "not launch. Compile it without __cluster_dims__."
            )
        self.layout = self._code_first(cubin.layout([found.name]), found.code)
        banks = []
        for bank in range(1, 8):
            for section in (found.bank_section(bank), f".nv.constant{bank}"):
                if section in self.layout.places:
                    banks.append(
                        (bank, self.layout.places[section].offset, self.layout.places[section].size_bytes)
                    )
                    break
        typed = {}
        if self.module is not None:
            entry = self.module.entries[self.entry].based(found.param_base)
            typed = {one.offset: one.kind for one in entry.parameters}
        parameters = tuple(
            Parameter(one.offset, one.size_bytes, typed.get(one.offset, "")) for one in found.parameters
        )
        stack = max(found.stack_bytes, found.frame_bytes)
        threads = 1
        for size in found.max_threads:
            threads *= size
        return Kernel(
            found.name,
            found.registers,
            found.barriers,
            found.shared_bytes,
            stack + (STACK_RESERVE_BYTES if found.has_functions or self._has_alloca() else 0),
            found.param_base or self.chip.param_base(0),
            found.param_bytes,
            parameters,
            threads if found.max_threads else 0,
            found.required_block,
            tuple(banks),
        )

    def _has_alloca(self) -> bool:
        """Of which a cubin says nothing; one that comes without its PTX has no memory for it."""
        return _ALLOCA.search(self.bundle.ptx) is not None

    def _code_first(self, plain: Layout, code: str) -> Layout:
        """The entry's code at CODE_AT, so that the descriptor lies before it; everything else behind."""
        first = plain.places[code]
        places = {code: Place(code, CODE_AT, first.size_bytes)}
        at = CODE_AT + first.size_bytes
        for name, place in plain.places.items():
            if name != code:
                at = -(-at // CONSTANT_ALIGNMENT) * CONSTANT_ALIGNMENT
                places[name] = Place(name, at, place.size_bytes)
                at += place.size_bytes
        end = max(place.offset + place.size_bytes for place in plain.places.values())
        return Layout(places, at + plain.size_bytes - end)

    def _of_ptx(self, entry: ptx.Entry) -> Kernel:
        base = self.chip.param_base(entry.param_bytes)
        entry = entry.based(base)
        shared = entry.shared_bytes + (1024 if self.chip.shared_first and entry.shared_bytes else 0)
        threads = 1
        for size in entry.largest_block:
            threads *= size
        return Kernel(
            entry.name,
            PTX_REGISTERS,
            1,
            shared,
            entry.local_bytes,
            base,
            entry.param_bytes,
            entry.parameters,
            threads if entry.largest_block else 0,
            entry.required_block,
        )

    # ------------------------------------------------------------ checks

    def _check_arch(self, arch: str) -> None:
        if arch != self.chip.arch and not _runs_on(arch, self.chip.arch):
            raise UsageError(
                f"load({self.label!r}): the cubin is for {arch}, and this device is {self.chip.arch}. "
                "Compile it for that."
            )


def _runs_on(made: str, arch: str) -> bool:
    """Machine code runs on later chips of the same major architecture."""
    one, other = int(made.removeprefix("sm_")), int(arch.removeprefix("sm_"))
    return one // 10 == other // 10 and one <= other


def _check_entry(entry: str, known: list[str], label: str) -> None:
    if entry not in known:
        raise UsageError(
            f"load({label!r}): no kernel {entry!r} in the object. Its kernels: {', '.join(sorted(known))}."
        )
