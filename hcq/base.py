"""Base: the interface of a device that its memory, signals and queues use.

In       nothing; device.py and the drivers implement it
Out      `Base`, which memory.py, signal.py, queue.py and graph.py use without an import of Device
Next     hcq/lifetime/dead_device.py (how a device dies), device.py (the implementation that all devices share),
         hcq/events/observer.py (observers)
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from hcq.command import Command
from hcq.config import Config
from hcq.errors import WaitTimeout
from hcq.events.observer import Observer, diagnostics
from hcq.layout import Packet
from hcq.program import Program, Slot
from hcq.system import native
from hcq.system.call_site import Site
from hcq.system.port import Port

Grid = tuple[int, int, int]


class Sent(Enum):
    """How much of a submission a device has."""

    NOTHING = 0
    ALL = 1
    A_PART = 2  # the ring was full in the middle of it


class RingState(NamedTuple):
    """A ring as both sides see it; `packet` is what stands where the device reads next, `around` what is near that."""

    name: str
    put: int
    get: int
    size: int
    packet: str
    around: Sequence[tuple[int, str]] = ()  # (0 for what is read next, -1 just before it, ...; the packet)


class Cell(Protocol):
    """A signal, as far as memory and waits need it."""

    @property
    def va(self) -> int:
        """The device address of its 16 bytes."""
        ...

    _cell: Any  # its two words: value and timestamp

    @property
    def name(self) -> str:
        """How messages call it."""
        ...

    @property
    def value(self) -> int:
        """What it holds now."""
        ...

    @property
    def timestamp_ns(self) -> int:
        """When that was stored, on the clock of time.monotonic_ns."""
        ...

    def timeout(self, value: int, timeout_ms: float, why: str) -> WaitTimeout:
        """The error for a wait for `value` that took too long; `why` ends its message."""
        ...


class Progress(Cell, Protocol):
    """The timeline: the number of the last submission made, and of the last one done."""

    submitted: int

    @property
    def has_all_done(self) -> bool:
        """Whether nothing is in flight."""
        ...

    @property
    def is_elsewhere(self) -> bool:
        """Whether it belongs to the parent of this process."""
        ...

    def has_reached(self, value: int) -> bool:
        """Whether a submission is done."""
        ...

    def found_done(self) -> None:
        """The host saw that work was done, and gives other devices what need not wait for it."""
        ...


class BufferPool(Protocol):
    """The pool, as far as buffers and the end of a device need it."""

    regions: dict[int, int]
    quarantined: set[int]

    def owners(self) -> list[Any]:
        """Every live buffer."""
        ...

    def adopt(self, buffer: Any) -> None:
        """List a buffer among the owners whose memory is not the pool's."""
        ...

    def disown(self, buffer: Any) -> None:
        """Undo `adopt`."""
        ...

    def take_back(self, va: int, capacity: int, name: str | None = None, fence: int = 0) -> None:
        """A buffer's block is free again; work in flight may still use it."""
        ...

    def abandon(self) -> None:
        """In a child of fork: nothing of the memory is given back from here."""
        ...

    def retire(self) -> None:
        """The device has stopped: nothing is handed out any more."""
        ...

    def close(self, is_last: bool = False) -> None:
        """Unmap what is free; all of it when `is_last`."""
        ...


class Compared(NamedTuple):
    """One moment on two clocks, as moment_ns says it of the device's; how far off that may be, to either side."""

    device_ns: int
    host_ns: int
    error_ns: int


class Base(ABC):
    """What the parts of a device know of the whole.

    observers         notified of what it does; empty unless something was asked for
    failures          first and last timeline value of what failed, and what happened
    wraps_dispatches  whether one of them puts commands around dispatches
    asks_device       whether a wait must ask native code even when the signal is there already
    runs_side_by_side whether kernels of a graph that nothing orders may overlap
    alignment         where buffers of more than 64 bytes begin, in bytes
    is_open           it opened, and was not closed
    is_stopped        nothing of it runs any more: its memory may be unmapped
    is_lost           it could not be rebuilt after a fault; what it holds is given back when it closes
    dead              why it may not be used, or ""
    """

    name: str
    arch: str
    port: Port
    config: Config
    lock: Any  # a lock that its holder may take again
    observers: tuple[Observer, ...] = ()
    failures: list[tuple[int, int, str]]
    timeline: Progress
    memory: BufferPool
    signals: Any  # address -> signal, held weakly
    graphs: Any  # those replayed on this device, held weakly
    asks_device: bool
    wraps_dispatches = False
    alignment = 64
    runs_side_by_side = False
    unmaps_anywhere = False  # in destructors, too: no kernel driver is asked
    is_open = False
    is_stopped = False
    is_lost = False
    dead = ""

    # ------------------------------------------------------------ life

    @abstractmethod
    def check_alive(self) -> None:
        """Raises UsageError when this device cannot be used any more."""

    @abstractmethod
    def check_readable(self) -> None:
        """Raises UsageError when what its memory holds cannot be read any more."""

    @abstractmethod
    def revive(self) -> bool:
        """In a child that inherited the device: make it work. False when it cannot."""

    @abstractmethod
    def die(self, why: str) -> None:
        """From now on every verb refuses."""

    @abstractmethod
    def hold_still(self, end: float) -> None:
        """Before a fork: no work in flight and no lock held, if that can be had until `end` on time.monotonic."""

    @abstractmethod
    def let_go(self) -> None:
        """After a fork, in the parent: go on."""

    @abstractmethod
    def inherit(self) -> bool:
        """After a fork, in the child. False when nothing of the device is of use there."""

    @abstractmethod
    def end(self, why: str, timeout_ms: float) -> None:
        """Die, and stop what runs."""

    @abstractmethod
    def give_back(self) -> None:
        """Unmap what a stop has left for those who kept completions and signals: nobody does any more."""

    @abstractmethod
    def hangs_as_told(self) -> bool:
        """Whether a wait has said that the work in flight hangs, and nothing of it has finished since."""

    @abstractmethod
    def rests_within(self, limit_ms: float) -> bool:
        """Wait for what is in flight now; False when that took too long."""

    @abstractmethod
    def note_fault(self, is_asked_for: bool = False) -> None:
        """Make the device usable again if it stopped, and remember what failed."""

    # ------------------------------------------------------------ memory

    @abstractmethod
    def map_memory(self, size_bytes: int) -> int:
        """New memory that device and host see, page aligned. Raises DriverError when the system refuses."""

    @abstractmethod
    def unmap_memory(self, va: int, size_bytes: int) -> None:
        """Give memory of `map_memory` back to the system. No work in flight uses it."""

    # how the host reaches device memory; a device whose memory it reads slowly, or does not see, has it copied
    view_memory: Callable[[int, int, object], memoryview] = staticmethod(native.view)
    write_memory: Callable[[int, Any, int], None] = staticmethod(native.write)
    read_memory = staticmethod(native.read)
    read_memory_into = staticmethod(native.read_into)
    # what is there now, for observers: submits nothing and waits for nothing
    peek_memory: Callable[[int, int], bytes] = staticmethod(native.read)

    @abstractmethod
    def alloc(self, size_bytes: int, name: str | None = None) -> Any:
        """A Buffer of at least this size."""

    def visible(self, size_bytes: int, name: str) -> Any:
        """A Buffer that the host sees, whatever its size: what the driver and observers themselves write and read."""
        return self.alloc(size_bytes, name)

    shares_memory = False  # whether `can_reach` may be true
    is_host_memory = False  # whether buffers are memory of the host, which it reads as fast as any other

    def can_reach(self, buffer: Any) -> bool:
        """Whether work of this device can be given another device's buffer."""
        return False

    has_companions = False  # whether the hardware takes a second channel beside this one

    # its signals are words of memory that the host sees: its queues store there when they signal, and look there again
    # and again while they wait, whoever else stores
    has_plain_signals = False
    # what its queues signal is in memory that the host sees, once `show_signal` was called for it
    shows_signals = False

    def show_signal(self, signal: Any) -> None:
        """Another device is going to look at a signal of this one, in memory."""
        return  # where plain signals are

    def can_watch(self, other: Any) -> bool:
        """Whether this device's queues can wait for another one's timeline and signals by themselves."""
        return other is self

    def can_notify(self, other: Any) -> bool:
        """Whether this device's queues can set another one's signals, and that one's queues see it."""
        return other is self

    # ------------------------------------------------------------ waiting

    @abstractmethod
    def signal_set(self, va: int, value: int) -> None:
        """Store a value and the time in the signal at an address, from the host, and wake the device."""

    @abstractmethod
    def wait_cell(self, signal: Cell, value: int, timeout_ms: float | None = None) -> None:
        """Return once a signal has reached `value`; sees faults of this device meanwhile."""

    @abstractmethod
    def wait_value(self, value: int, timeout_ms: float | None = None) -> None:
        """Return once the timeline has reached `value`. Raises DeviceFault when that submission failed."""

    @abstractmethod
    def drain(self, value: int, timeout_ms: float | None = None) -> None:
        """Return once the timeline has reached `value`, whether the work failed or not."""

    # ------------------------------------------------------------ work

    @abstractmethod
    def unloaded(self, entry: int) -> None:
        """A program is gone. Called by destructors."""

    def moment_ns(self, ticks: int) -> int:
        """When a Timestamp command stored this, on the clock of time.monotonic_ns; here they are the same."""
        return ticks

    def compare_clocks(self) -> Compared | None:
        """Look at the device's clock and the host's at one moment, for clocks drift; here they are one: None."""
        return None

    def duration_ns(self, ticks: int) -> int:
        """How long so many ticks of the clock are that Timestamp commands store; here they are nanoseconds."""
        return ticks

    @abstractmethod
    def encode(self, what: Command) -> bytes:
        """One command as packets. A pure function, and `decode` inverts it."""

    @abstractmethod
    def decode(self, words: Sequence[int]) -> list[Packet]:
        """Words of this device's rings and blocks as packets.

        Never raises: what it does not know is a packet that says so.
        """
        ...

    @abstractmethod
    def encode_dispatch(
        self, program: Program, args: Sequence[Any], grid: Grid, block: Grid, groups_per_claim: int
    ) -> tuple[bytes, tuple[int | float, ...]]:
        """A dispatch as packets, and its arguments as plain numbers; checks everything before the doorbell."""

    @abstractmethod
    def argument_slot(self, program: Program, args: Sequence[Any], index: int) -> Slot:
        """Where an argument is in a dispatch's packet, or in what it uploads: a graph patches it there."""

    @abstractmethod
    def submit(
        self, words: list[bytes], commands: Sequence[Command], held: Sequence[Any] = (), at: Site = None
    ) -> Any:
        """Send encoded commands; returns their Completion."""

    @abstractmethod
    def settle(self, value: int) -> Sent:
        """A submission was cut short at some line: take back what the device has not, or give it all of it."""

    @abstractmethod
    def describe(self, value: int) -> str:
        """A submission in words."""

    @abstractmethod
    def note(self, value: int, commands: Sequence[Command], at: Site) -> None:
        """Remember what a timeline value stands for."""

    def report(self, title: str, key: tuple[Any, ...], signal: int | None = None) -> None:
        """A page about this device on stderr and in a file, once for each key. Never raises."""
        diagnostics().report.publish(self, title, key, signal)

    def say(self, text: str) -> None:
        """One line of HCQ_DEBUG output."""
        print(f"hcq {self.name}: {text}", file=sys.stderr)
