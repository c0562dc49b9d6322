"""Commands: the entries of a queue, independent of any device's packet format. Frozen data, addresses checked.

In       addresses, sizes and values; a dispatch also names its program
Out      dataclasses that a device's `encode` turns into words; `flat` and `described`, for those who look at them
Next     queue.py (the verbs that make them), cpu/encode.py (one device's encoding)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from hcq.program import Program
from hcq.record import record


class Dispatch(NamedTuple):
    """Run a program over a grid.

    args                  addresses and numbers, in the program's order
    grid, block           workgroups per launch, threads per workgroup: (x, y, z)
    groups_per_claim      how many groups a worker takes at a time; 0 leaves it to the device
    dynamic_shared_bytes  shared memory of each workgroup, beyond the kernel's own
    """

    program: Program
    args: tuple[int | float, ...]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    groups_per_claim: int = 0
    dynamic_shared_bytes: int = 0

    def __str__(self) -> str:
        args = ", ".join(
            f"{arg:#x}" if isinstance(arg, int) and arg > 0xFFFF else str(arg) for arg in self.args
        )
        shared = f" shared={self.dynamic_shared_bytes}" if self.dynamic_shared_bytes else ""
        return f"dispatch {self.program.name}({args}) grid={self.grid}{shared}"


@record(frozen=True)
class Copy:
    """Copy bytes between device addresses; the ranges may overlap."""

    dst: int
    src: int
    size_bytes: int

    def __str__(self) -> str:
        return f"copy {self.size_bytes} bytes {self.src:#x} -> {self.dst:#x}"


@record(frozen=True)
class Fill:
    """Repeat the 8 bytes of `pattern`, lowest first, over `size_bytes` from the device address `dst`."""

    dst: int
    pattern: int
    size_bytes: int

    def __str__(self) -> str:
        return f"fill {self.size_bytes} bytes at {self.dst:#x} with {self.pattern:#018x}"


@record(frozen=True)
class Wait:
    """Go on once the signal at device address `signal` is at least `value`."""

    signal: int
    value: int

    def __str__(self) -> str:
        return f"wait signal@{self.signal:#x} >= {self.value}"


@record(frozen=True)
class Signal:
    """Store the time and `value` in the signal at device address `signal`."""

    signal: int
    value: int

    def __str__(self) -> str:
        return f"signal signal@{self.signal:#x} = {self.value}"


@record(frozen=True)
class Timestamp:
    """Store the device's clock, in nanoseconds, at an address."""

    address: int

    def __str__(self) -> str:
        return f"timestamp at {self.address:#x}"


@record(frozen=True)
class Barrier:
    """Make all memory written before it visible to all that comes after."""

    def __str__(self) -> str:
        return "barrier"


@record(frozen=True)
class Indirect:
    """Run the packets of another block: how a graph is replayed."""

    address: int
    size_words: int
    label: str = "graph"
    commands: tuple[Command, ...] = ()  # what the block holds, for messages

    def __str__(self) -> str:
        inside = "; ".join(str(what) for what in self.commands[:2])
        more = f"; and {len(self.commands) - 2} more" if len(self.commands) > 2 else ""
        return f"replay {self.label} ({self.size_words} words at {self.address:#x}: {inside}{more})"


@record(frozen=True)
class Packets:
    """Packets that the program made itself, as they are, for the ring of this name: whole ones, and checked.

    names   what the device's decoder calls them, one for each
    """

    ring: str
    words: bytes
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = f" and {len(self.names) - 4} more" if len(self.names) > 4 else ""
        return f"packets {', '.join(self.names[:4])}{more} on the {self.ring} ring"


Command = Dispatch | Copy | Fill | Wait | Signal | Timestamp | Barrier | Indirect | Packets


def flat(commands: Iterable[Command]) -> Iterator[Command]:
    """The commands, with those of a block in its place."""
    for what in commands:
        if isinstance(what, Indirect):
            yield from flat(what.commands)
        else:
            yield what


def described(what: Command, name: Callable[[int], str]) -> str:
    """A command in words for reports. name: says what is at an address."""
    if isinstance(what, Dispatch):
        kinds = what.program.args or ("",) * len(what.args)
        args = []
        for kind, arg in zip(kinds, what.args):
            is_address = kind == "buffer" or (not kind and isinstance(arg, int) and arg > 1 << 20)
            args.append(name(int(arg)) if is_address else str(arg))
        return f"kernel {what.program.name}({', '.join(args)}) grid={what.grid} block={what.block}"
    if isinstance(what, Copy):
        return f"copy {what.size_bytes} bytes {name(what.src)} -> {name(what.dst)}"
    if isinstance(what, Fill):
        return f"fill {what.size_bytes} bytes at {name(what.dst)}"
    if isinstance(what, Wait):
        return f"wait for {name(what.signal)} >= {what.value}"
    if isinstance(what, Signal):
        return f"signal {name(what.signal)} = {what.value}"
    if isinstance(what, Timestamp):
        return f"timestamp to {name(what.address)}"
    return str(what)


class PatchPoint(NamedTuple):
    """Where a replay of recorded commands writes an argument: the 64-bit word, or fewer bytes, of the block."""

    byte_offset: int
    kind: str
    command_index: int
    argument_index: int
    size_bytes: int = 8
