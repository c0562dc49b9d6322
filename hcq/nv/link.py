"""Linking: kernels' machine code and the PTX it was made from, as one image for the GPU's memory.

In       a Bundle, an entry's name or none for all entries, the chip
Out      Linked: the bytes for an address, and for each entry a Kernel, what a launch of it needs to know
Next     module.py (who copies the image), cubin.py and ptx.py (facts), abi/image.py (what leads to the PTX)
Source   our own layout; a loader chooses where sections of a cubin go

    base                 nothing, and at its end, for an emulated GPU, the KernelDescriptor
    base + CODE_AT       the code of an entry; those of others, each at a multiple of CODE_AT with as much before it
    behind them          functions, constant banks and global data of the cubin, then room for instruction prefetch
    behind it            for an emulated GPU only: the PTX, names, and each entry's variables and functions
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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
MOST_CLUSTER_BLOCKS = 8  # that every GPU has; more are for kernels that the driver has allowed them
PTX_REGISTERS = 32  # what a launch says of a kernel that has no machine code
STACK_RESERVE_BYTES = 1024  # for what MIN_STACK_SIZE does not count: recursion, alloca, indirect calls
_ALLOCA = re.compile(rb"\balloca\.")


@dataclass(frozen=True)
class Kernel:
    """What a launch needs.

    static_shared     as a cubin's section counts it
    stack_bytes       of each thread; 0 when nothing is kept in local memory
    banks             constant bank -> (offset in the image, bytes), without bank 0
    code_at           where its code begins in the image
    largest_block     threads, from the code's own bounds; 0 when it has none
    cluster           blocks of a cluster in each direction, which run at a time and reach each other's shared memory
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
    code_at: int = CODE_AT
    cluster: tuple[int, int, int] = (1, 1, 1)


class Linked:
    """Entries of a bundle, laid out for `size_bytes` of memory; `place(va)` gives the bytes for an address.

    entry      the only one that is wanted; None for all that can run here
    entries    names of all of them
    variables  name -> (offset in the image, size in bytes)
    keeps_ptx  whether the PTX lies beside the code: an emulated GPU runs it, and a real one has no use for it
    """

    def __init__(
        self, bundle: Bundle, entry: str | None, chip: Chip, label: str, keeps_ptx: bool = True
    ) -> None:
        self.bundle, self.chip, self.label = bundle, chip, label
        self.keeps_ptx = keeps_ptx and bool(bundle.ptx)
        self.module = ptx.read_module(bundle.ptx.decode("utf-8", "replace"), label) if bundle.ptx else None
        self.cubin = Cubin(bundle.cubin, label) if bundle.cubin else None
        known = [
            set(form)
            for form in (self.module and self.module.entries, self.cubin and self.cubin.kernels)
            if form
        ]
        self.entries = sorted(set.intersection(*known))
        if entry is not None:
            _check_entry(entry, self.entries, label)
        self._wanted = self.entries if entry is None else [entry]
        self._refused: dict[str, UsageError] = {}  # entries that cannot run here, and why
        self.kernels: dict[str, Kernel] = {}
        if self.cubin is not None:
            self._check_arch(self.cubin.arch)
            self._lay_out(self.cubin, entry is not None)
        else:
            assert self.module is not None
            ptx.check_target(self.module, chip.arch, label)
            slot = CODE_AT + -(-len(EMPTY_CODE) // CODE_AT) * CODE_AT
            for number, name in enumerate(self._wanted):
                self.kernels[name] = replace(
                    self._of_ptx(self.module.entries[name]), code_at=CODE_AT + slot * number
                )
            self.layout = Layout({}, slot * len(self._wanted))
        self.size_bytes = self._tail = -(-self.layout.size_bytes // 16) * 16
        self.has_writable = False  # a variable of such that kernels write
        self.variables = self._variables()
        if not self.keeps_ptx:
            return
        self._names_at = self._tail + len(bundle.ptx)
        self._symbols = {entry: self._symbols_of(entry) for entry in self.kernels}
        self._names = dict.fromkeys(self.kernels)
        for symbols in self._symbols.values():
            self._names.update(dict.fromkeys(symbols))
        names = sum(len(name.encode()) + 1 for name in self._names)
        self._symbols_at = -(-(self._names_at + names) // 16) * 16
        self.size_bytes = self._symbols_at + images.SYMBOL_BYTES * sum(map(len, self._symbols.values()))

    @property
    def kernel(self) -> Kernel:
        """The one that was wanted."""
        return self.kernel_of(self._wanted[0])

    def kernel_of(self, entry: str) -> Kernel:
        """What a launch of an entry needs. Raises UsageError for one that cannot run here."""
        if entry in self._refused:
            raise self._refused[entry]
        return self.kernels[entry]

    def place(self, va: int) -> bytes:
        """The image for this address, relocated; a multiple of ALIGNMENT."""
        if self.cubin is not None:
            memory = bytearray(self.cubin.link(self.layout, va, may_miss=self.keeps_ptx))
        else:
            memory = bytearray(self.layout.size_bytes)
            for kernel in self.kernels.values():
                memory[kernel.code_at : kernel.code_at + len(EMPTY_CODE)] = EMPTY_CODE
        if self.keeps_ptx:
            memory = memory.ljust(self.size_bytes, b"\0")
            self._place_ptx(memory, va)
        return bytes(memory)

    def _place_ptx(self, memory: bytearray, va: int) -> None:
        text = self.bundle.ptx
        memory[self._tail : self._names_at] = text
        at = self._names_at
        names = {}
        for name in self._names:
            encoded = name.encode() + b"\0"
            memory[at : at + len(encoded)] = encoded
            names[name] = va + at
            at += len(encoded)
        checksum = images.crc32(text)
        at = self._symbols_at
        for entry, kernel in self.kernels.items():
            symbols = self._symbols[entry]
            descriptor = KernelDescriptor(
                ptx_address=va + self._tail,
                ptx_bytes=len(text),
                entry_name_address=names[entry],
                symbols_address=va + at if symbols else 0,
                symbol_count=len(symbols),
                param_bytes=kernel.param_bytes,
                ptx_crc32=checksum,
            )
            memory[kernel.code_at - DESCRIPTOR_BYTES : kernel.code_at] = descriptor.to_bytes()
            for name, (offset, is_in_image) in symbols.items():
                symbol = SymbolEntry(name_address=names[name], address=va + offset if is_in_image else offset)
                memory[at : at + images.SYMBOL_BYTES] = symbol.to_bytes()
                at += images.SYMBOL_BYTES

    def _symbols_of(self, entry: str) -> dict[str, tuple[int, bool]]:
        """Variables and functions as an entry's code has them: where, and whether that is an offset in the image."""
        found = {name: (offset, True) for name, (offset, _) in self.variables.items()}
        if self.cubin is None or self.module is None or not self.module.variables:
            return found  # nothing holds an address of a function then
        for name, (section, offset) in self.cubin.functions(entry).items():
            if not section:
                found[name] = offset, False
            elif section in self.layout.places:
                found[name] = self.layout.places[section].offset + offset, True
        return found

    def _variables(self) -> dict[str, tuple[int, int]]:
        """Offsets and sizes of the module's variables in the image; none where their section is not in it."""
        if self.cubin is None:
            if self.module is not None and self.module.variables and self.keeps_ptx:
                some = ", ".join(self.module.variables[:4])
                raise UsageError(
                    f"load({self.label!r}): the PTX has variables ({some}), whose first "
                    "contents are in machine code. Load what nvJitLink makes of it: hcq.nv.toolchain.images.of_ptx."
                )
            return {}
        found = {}
        for name, (section, offset, size_bytes) in self.cubin.variables().items():
            if section in self.layout.places:
                self.has_writable |= section.startswith(".nv.global")
                found[name] = self.layout.places[section].offset + offset, size_bytes
        return found

    # ------------------------------------------------------------ facts

    def _lay_out(self, cubin: Cubin, is_one: bool) -> None:
        """Place what can run here; an entry that cannot is refused alone, when it is asked for."""
        for name in self._wanted:
            try:
                self._check_runs(cubin.kernels[name])
            except UsageError as error:
                if is_one:
                    raise
                self._refused[name] = error
        running = [name for name in self._wanted if name not in self._refused]
        if not running:
            raise next(iter(self._refused.values()))
        self.layout = self._code_first(cubin.layout(running), [cubin.kernels[name].code for name in running])
        self.kernels = {name: self._of_cubin(cubin, cubin.kernels[name]) for name in running}

    def _check_runs(self, found: CubinKernel) -> None:
        if (
            found.runtime_calls and not self.keeps_ptx
        ):  # an emulated GPU runs the PTX, and has the device runtime
            raise UsageError(
                f"load({self.label!r}): {found.name} calls {', '.join(found.runtime_calls)}, functions of the device "
                "runtime, which only the vendor's driver supplies. Compile without printf, malloc and assert."
            )
        self._cluster(found.name, found.cluster)

    def _cluster(self, name: str, sizes: tuple[int, ...]) -> tuple[int, int, int]:
        """The shape of a kernel's clusters."""
        x, y, z = (max(size, 1) for size in (*sizes, 1, 1, 1)[:3])
        if x * y * z > (most := MOST_CLUSTER_BLOCKS if self.chip.has_clusters else 1):
            raise UsageError(
                f"load({self.label!r}): {name} needs clusters of {(x, y, z)} blocks; on {self.chip.arch} a cluster has "
                f"{most} at most. Compile it with other __cluster_dims__, or without."
            )
        return x, y, z

    def _of_cubin(self, cubin: Cubin, found: CubinKernel) -> Kernel:
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
            entry = self.module.entries[found.name].based(found.param_base)
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
            self.layout.places[found.code].offset,
            self._cluster(found.name, found.cluster),
        )

    def _has_alloca(self) -> bool:
        """Which a cubin does not describe; one that comes without its PTX has no memory for it."""
        return _ALLOCA.search(self.bundle.ptx) is not None

    def _code_first(self, plain: Layout, codes: list[str]) -> Layout:
        """The entries' code at multiples of CODE_AT, so that a descriptor lies before each; everything else behind."""
        places: dict[str, Place] = {}
        at = 0
        for code in codes:
            places[code] = Place(code, at + CODE_AT, plain.places[code].size_bytes)
            at = -(-(at + CODE_AT + plain.places[code].size_bytes) // CODE_AT) * CODE_AT
        last = places[codes[-1]]
        at = last.offset + last.size_bytes
        for name, place in plain.places.items():
            if name not in places:
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
            cluster=self._cluster(entry.name, entry.cluster),
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
