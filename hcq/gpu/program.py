"""Programs of GPUs: how a kernel's arguments are checked and packed as its code object says.

In       arguments: a Buffer, an int, a float, bytes for a structure passed by value; None or 0 for a null pointer
Out      the packed arguments; where each one is in them
Next     the driver's own program.py (what a launch is made of), hcq/program.py (what all programs are)

A code object says how large each argument is, and often no more than that: whether four bytes are an int or a float is
then what the caller passes, or what `args` of load() says.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import index
from types import NoneType
from typing import Any, NamedTuple, Protocol

from hcq import checks
from hcq.base import Grid
from hcq.errors import UsageError
from hcq.memory import Buffer, kind_of
from hcq.program import Loader, Program, Slot

INTEGERS = {1: "B", 2: "H", 4: "I", 8: "Q"}
FLOATS = {2: "e", 4: "f", 8: "d"}
MAX_KNOWN = 1024  # sizes of launches that a program remembers


class Shape(NamedTuple):
    """How arguments of certain types are packed. masks: a negative integer is packed as these bits of it."""

    pack: Callable[..., bytes]
    slots: tuple[Slot, ...]
    masks: tuple[int, ...]  # 0 for what is no integer


class GpuLoader(Loader, Protocol):
    """A GPU, as far as its programs need it."""

    @property
    def arch(self) -> str:
        """What code objects must be for."""
        ...

    @property
    def failures(self) -> list[tuple[int, int, str]]:
        """First and last timeline value of what failed, and what happened."""
        ...

    @property
    def observers(self) -> tuple[object, ...]:
        """Notified of what the device does."""
        ...

    def can_reach(self, buffer: Buffer) -> bool:
        """Whether its kernels can be given a buffer, its own or a peer's."""
        ...


class GpuProgram(Program, ABC):
    """An entry of a loaded object.

    has_said_kinds   whether `args` are what the caller of load() said; else the code object did, if anybody
    """

    device: GpuLoader
    has_said_kinds = True

    def __init__(self, *args: Any) -> None:
        # sizes that were found to be right
        self._known_launches: dict[tuple[Grid, Grid], tuple[Grid, Grid]] = {}
        super().__init__(*args)

    @property
    def params_at(self) -> int:
        """Where the packed arguments begin in what a launch uploads, in bytes."""
        return 0

    @abstractmethod
    def dispatch(self, args: Sequence[Any], grid: Grid, block: Grid) -> tuple[Any, tuple[int | float, ...]]:
        """One launch as a piece of a submission, and its arguments as plain numbers."""

    @abstractmethod
    def places(self, args: Sequence[Any]) -> list[tuple[int, int]]:
        """(offset, size in bytes) of each argument. Raises UsageError when their number is wrong."""

    @abstractmethod
    def declared_kind(self, number: int) -> str:
        """The kind of an argument in the code object: "buffer", "float", or "" when it is not there."""

    def rest(self, number: int, arg: object) -> bytes:
        """What follows a buffer's address within its parameter, always the same; b"" where nothing does."""
        return b""

    def pack_args(self, args: Sequence[Any], values: Sequence[Any]) -> bytes:
        """Arguments as the kernel takes them. `values`: the same as numbers and bytes, see `values()`."""
        shape = self.shape(args)
        try:
            return shape.pack(*values)
        except (struct.error, OverflowError):
            # a negative integer, one of another library, or one that does not fit
            return shape.pack(*self._fitting(args, values, shape))

    def _fitting(self, args: Sequence[Any], values: Sequence[Any], shape: Shape) -> list[Any]:
        """The values in a form that packs. Raises UsageError when one does not fit its parameter: none is cut off."""
        found = []
        for number, (value, slot, mask) in enumerate(zip(values, shape.slots, shape.masks)):
            plain = index(value) if mask else value
            if not slot.holds(plain):
                raise UsageError(
                    f"dispatch {self.name}: argument {number} is {checks.shown(args[number])}; it does not fit "
                    f"{8 * slot.size_bytes} bits."
                )
            found.append(plain & mask if mask else plain)
        return found

    def launch_sizes(self, grid: Grid, block: Grid) -> tuple[Grid, Grid]:
        """Grid and block as tuples, checked once for each pair. Raises UsageError when they cannot be right."""
        try:
            return self._known_launches[grid, block]
        except (KeyError, TypeError):  # lists, which are fine, too
            pass
        sizes = self.check_launch(grid, block)
        if len(self._known_launches) >= MAX_KNOWN:
            self._known_launches.clear()
        self._known_launches[sizes] = sizes
        return sizes

    @abstractmethod
    def check_launch(self, grid: Grid, block: Grid) -> tuple[Grid, Grid]:
        """Both as tuples. Raises UsageError when grid or block cannot be right."""

    def values(self, args: Sequence[Any]) -> list[Any]:
        """Arguments as numbers and bytes. Raises UsageError for buffers that are freed, elsewhere or poisoned."""
        found: list[Any] = []
        for arg in args:
            if isinstance(arg, Buffer):
                if arg.device is not self.device and not self.device.can_reach(arg):
                    raise arg.elsewhere(f"dispatch {self.name}", self.device)
                if self.device.failures:
                    arg.check_poison(f"dispatch {self.name}")
                found.append(arg.address)
            else:
                found.append(0 if arg is None else arg)
        return found

    def shape(self, args: Sequence[Any]) -> Shape:
        """Check arguments against the code object, once for each combination of types, and place them."""
        types: Any = tuple(len(arg) if isinstance(arg, bytes) else type(arg) for arg in args)
        known: Shape | None = self.shapes.get(types)
        if known is not None:
            return known
        letters, at = "<", 0
        slots: dict[int, Slot] = {}
        rests: list[tuple[int, bytes]] = []
        places = self.places(args)
        order = sorted(range(len(args)), key=places.__getitem__)  # nearly always the order that they have
        for place, number in enumerate(order):
            arg, (offset, size) = args[number], places[number]
            letter = self._letter(number, arg, size)
            letters += f"{offset - at}x{size}s" if letter == "s" else f"{offset - at}x{letter}"
            at = offset + size
            if rest := self.rest(number, arg):
                letters += f"{len(rest)}s"
                rests.append((place, rest))
                size -= len(rest)
            slots[number] = Slot(offset, size, letter)
        in_order = tuple(slots[number] for number in range(len(args)))
        masks = tuple((1 << 8 * slot.size_bytes) - 1 if slot.letter in "BHIQ" else 0 for slot in in_order)
        pack = struct.Struct(letters).pack
        if rests:
            pack = _with_rests(pack, rests)
        if order != [*range(len(args))]:
            pack = _reordered(pack, order)
        made = Shape(pack, in_order, masks)
        if not any(
            self._is_buffer(number)
            for number, arg in enumerate(args)
            if not isinstance(arg, (Buffer, bytes, NoneType))
        ):
            self.shapes[types] = made  # whether a number is a null pointer is looked at each time
        return made

    def _is_buffer(self, number: int) -> bool:
        """Whether the caller of load() said that a parameter is a buffer: then no number is, but a null pointer."""
        return self.has_said_kinds and self.args is not None and self.args[number] == "buffer"

    def _letter(self, number: int, arg: object, size: int) -> str:
        kind = kind_of(arg)
        wanted = self.args[number] if self.args is not None else ""
        declared = self.declared_kind(number)
        if isinstance(arg, bytes) and len(arg) == size:
            return "s"
        is_pointer = "buffer" in (wanted, declared)
        if arg is None:
            kind = "buffer" if is_pointer or not (wanted or declared or size != 8) else ""
        elif is_pointer and checks.is_whole(arg) and (checks.is_null(arg) or not self._is_buffer(number)):
            kind = "buffer"  # a null pointer, or an address
        if not kind:
            raise UsageError(
                f"dispatch {self.name}: argument {number} is {checks.shown(arg)}. An argument is a Buffer, an int or a "
                f"float, or None for a null pointer; here also {size} bytes."
            )
        is_wanted = not wanted or wanted == kind or (wanted == "float" and kind == "int")
        if not is_wanted or {declared, kind} == {"buffer", "float"}:
            what = declared if declared == "buffer" else wanted or declared
            raise UsageError(f"dispatch {self.name}: argument {number} is a {what}, got {arg!r}.")
        letters = FLOATS if "float" in (wanted, declared, kind) else INTEGERS
        if size not in letters or (kind == "buffer" and size != 8):
            raise UsageError(
                f"dispatch {self.name}: argument {number} has {size} bytes, and {arg!r} is no such value. "
                f"Pass {size} bytes."
            )
        return letters[size]


def _reordered(pack: Callable[..., bytes], order: Sequence[int]) -> Callable[..., bytes]:
    """Arguments packed by where they lie, which is not the order that they are given in."""
    return lambda *values: pack(*(values[number] for number in order))


def _with_rests(pack: Callable[..., bytes], rests: Sequence[tuple[int, bytes]]) -> Callable[..., bytes]:
    """Arguments packed with what follows some of them: (place of the argument, its rest)."""

    def packed(*values: Any) -> bytes:
        found = list(values)
        for number, rest in reversed(rests):
            found.insert(number + 1, rest)
        return pack(*found)

    return packed
