"""Effects: a common description of what packets do (read, write, wait, signal), which the rules check.

In       packets as a kind's decoder gives them, and what is known of the loaded programs
Out      a Model per kind of device: effects of packets in order, limits, and how its queues and caches order things
Next     rules/ (what must hold), examine.py (who runs them), cpu/validate.py (the smallest model)

A kind of device gets every rule by giving a Model: which effects its packets have, and what its hardware promises. A
model that declares less is checked less, never wrongly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.layout import Packet

if TYPE_CHECKING:
    from hcq.rules.rule import Check

Size = tuple[int, int, int]


class Access(NamedTuple):
    """The packet itself reads or writes memory. `what` names the range in messages: "timestamp", "kernel arguments".

    domain     the cache it goes through; "" when all see the same memory
    alignment  bytes that the address must be a multiple of
    in_turn    the queue's own processor does it, one packet after the other: nobody can say more of its order
    """

    va: int
    size_bytes: int
    is_write: bool
    what: str
    domain: str = ""
    alignment: int = 1
    in_turn: bool = False


class Fill(NamedTuple):
    """Write a pattern."""

    dst: int
    size_bytes: int
    domain: str = ""
    alignment: int = 1


class Copy(NamedTuple):
    """Read one range, write another of the same size. may_overlap: the engine gets overlapping ranges right."""

    dst: int
    src: int
    size_bytes: int
    may_overlap: bool = False
    domain: str = ""
    alignment: int = 1


class Wait(NamedTuple):
    """Everything after it happens once the cell holds at least `value`."""

    cell: int
    value: int


class Signal(NamedTuple):
    """The cell gets `value` once everything before is done."""

    cell: int
    value: int


class Argument(NamedTuple):
    """One argument of a launch.

    kind        "buffer", "int" or "float"
    access      what the kernel does with a buffer: "read", "write", "both", or "" when nobody said
    size_bytes  how much of the buffer it uses; 0 when nobody said
    """

    position: int
    kind: str
    value: int
    access: str = ""
    size_bytes: int = 0
    alignment: int = 1


class Launch(NamedTuple):
    """Run a program over a grid. A resource is None where the packets do not say it.

    carried         how many arguments the packets carry
    argument_bytes  size of the block of arguments
    registers       for each thread
    """

    entry: int
    grid: Size
    block: Size = (1, 1, 1)
    arguments: tuple[Argument, ...] = ()
    carried: int | None = None
    argument_bytes: int | None = None
    shared_bytes: int | None = None
    scratch_bytes: int | None = None
    registers: int | None = None
    domain: str = ""


class Barrier(NamedTuple):
    """Everything before is finished before anything after starts, on this queue."""


class Flush(NamedTuple):
    """What was written through a cache is in memory."""

    domain: str


class Invalidate(NamedTuple):
    """What a cache held from before is forgotten."""

    domain: str


class Run(NamedTuple):
    """Run the packets of another block of memory, then go on."""

    address: int
    size_words: int


def declared_accesses(packet: Packet) -> list[Access]:
    """What a packet does at the addresses among its fields, as their declarations say it: at least one byte each."""
    return [
        Access(packet.values[name], 1, field.address == "write", name.replace("_", " "), in_turn=True)
        for name, field in packet.fields.items()
        if field.address and packet.values[name]
    ]


Effect = Access | Fill | Copy | Wait | Signal | Launch | Barrier | Flush | Invalidate | Run

ABILITY: dict[type, str] = {
    Fill: "fill",
    Copy: "copy",
    Wait: "wait",
    Signal: "signal",
    Launch: "dispatch",
    Run: "run",
}


class Step(NamedTuple):
    """One packet of a submission: where it starts, in words, what it is, and what it does."""

    at: int
    packet: Packet
    effects: Sequence[Effect]


@dataclass(frozen=True)
class Limits:
    """The most that a launch may ask for; None where the device has no limit, or nobody knows it."""

    grid: Size | None = None
    block: Size | None = None
    threads: int | None = None  # in one block
    shared_bytes: int | None = None
    scratch_bytes: int | None = None
    registers: int | None = None


@dataclass(frozen=True)
class ProgramFacts:
    """What is known of a loaded program, from its code object and from who loaded it; None where nobody said."""

    name: str
    entry: int
    args: tuple[str, ...] | None = None
    access: tuple[str, ...] | None = None  # of each argument: "read", "write", "both" or ""
    extents: tuple[int, ...] | None = None  # of each argument: bytes that it uses, 0 for all
    argument_bytes: int | None = None
    block: Size | None = None  # the one block size it was compiled for
    threads: int | None = None  # the largest block it was compiled for
    shared_bytes: int | None = None
    scratch_bytes: int | None = None
    registers: int | None = None


Programs = Mapping[int, ProgramFacts]


class Model(ABC):
    """What one device promises, for the rules. A subclass for each kind of device, made from its arch and its facts.

    declares_effects  False for a kind that only has packets: then its device's own `validate` is asked, too
    finishes_packets  each packet is finished before the next one starts: no barrier is ever missing
    knows_order       packets say what comes after what; False where queues are ordered in ways that they do not show
    write_back        caches whose writes others see only after a Flush
    stale             caches that may hold old data until an Invalidate
    abilities         queue -> what its packets may do, of the values of ABILITY; a queue not named may do everything
    checks            rules of this kind alone: kind of effect -> functions, as in rules/
    """

    declares_effects = True
    finishes_packets = False
    knows_order = True
    write_back: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    abilities: Mapping[str, frozenset[str]] = {}
    signal_bytes = 8
    signal_alignment = 8
    stored_bytes = (
        0  # what a Signal writes, and is aligned to, in a buffer that is no signal; 0: signal_alignment
    )
    limits = Limits()
    checks: Mapping[type, tuple[Check, ...]] = {}

    def __init__(self, arch: str = "", facts: Mapping[str, Any] | None = None) -> None:
        self.arch = arch
        self.facts = {} if facts is None else facts

    @abstractmethod
    def decode(self, words: Sequence[int], queue: str) -> list[Packet]:
        """Words as packets; never raises."""

    def malformed(self, packet: Packet) -> tuple[str, str] | None:
        """Why the hardware would not understand a packet: "packet-unknown" or "packet-length", and what is wrong."""
        return None

    def effects(self, packet: Packet, programs: Programs) -> Sequence[Effect]:
        """What one packet does, in order."""
        return ()

    def program(self, facts: ProgramFacts, image: bytes) -> ProgramFacts:
        """What is known of a program: what its loader said, and what a kind reads in its code object `image`."""
        return facts

    def own_steps(self, words: bytes, ring: str) -> list[Step]:
        """Packets that a program made itself, for the ring of this name: see hcq/work/own_packets.py."""
        return self.steps(words, "", {})

    def own_fault(self, packet: Packet, ring: str) -> str:
        """Why such a packet cannot go into that ring, "" where it can."""
        wrong = self.malformed(packet)
        return "" if wrong is None else wrong[1]

    def own_name(self, packet: Packet) -> str:
        """How lists of commands call such a packet."""
        return type(packet).__name__

    def ranges(self, effect: Any) -> list[tuple[str, int, int, str]]:
        """The memory that an effect names: what it is to the packet, address, bytes, and "read", "write" or "run"."""
        if isinstance(effect, Copy):
            return [
                ("source", effect.src, effect.size_bytes, "read"),
                ("destination", effect.dst, effect.size_bytes, "write"),
            ]
        if isinstance(effect, Fill):
            return [("destination", effect.dst, effect.size_bytes, "write")]
        if isinstance(effect, Access):
            return [(effect.what, effect.va, effect.size_bytes, "write" if effect.is_write else "read")]
        if isinstance(effect, Signal):
            return [("signal", effect.cell, self.stored_bytes or self.signal_bytes, "write")]
        if isinstance(effect, Wait):
            return [("signal", effect.cell, 4, "read")]
        if isinstance(effect, Launch):
            return [("code", effect.entry, 1, "run")]
        if isinstance(effect, Run):
            return [("block", effect.address, 4 * effect.size_words, "read")]
        return []

    def split(self, words: bytes, queue: str) -> list[bytes]:
        """Words in pieces whose meaning does not depend on each other. Equal pieces are taken apart only once.

        A piece of a class of its own (with what is uploaded beside the words, say) is taken apart every time.
        """
        return [words]

    def lanes(self, words: Sequence[bytes]) -> Sequence[tuple[str, Sequence[tuple[int, bytes]]]]:
        """Which words of a submission go to which queue of the device: (queue, [(where in the submission, words)]).

        Queue "" is the one that submissions are made to; it comes first. Another one is an agent of its own: only what
        its packets wait for is before it. What the device itself keeps in order, whatever rings it goes to, is one.
        """
        found: list[tuple[int, bytes]] = []
        at = 0
        for blob in words:
            found.append((at, blob))
            at += len(blob) // 4
        return [("", found)]

    def steps(self, words: bytes, queue: str, programs: Programs) -> list[Step]:
        """What a piece does. Override it where one packet's meaning depends on those before."""
        found: list[Step] = []
        at = 0
        for packet in self.decode(memoryview(words).cast("I"), queue):
            found.append(Step(at, packet, self.effects(packet, programs)))
            at += len(packet.words)
        return found
