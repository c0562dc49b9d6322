"""Foreign devices: a GPU used by another program (HIP, CUDA), reported by the same events as our own devices.

In       memory, programs, submissions and faults, which a vendor's reader finds in calls and packets
Out      events for `Observer`s; lists of live, running and finished work for a report
Changes  itself
Next     kernel_observer.py (the source of events), amd/foreign/ and nv/foreign/ (the readers), observe/foreign/ (trace,
         rules, report)
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hcq.command import Command
from hcq.events.kernel_faults import KernelFault
from hcq.events.kernel_observer import Call, Client, GpuFault, Read
from hcq.performance.counters import Counters
from hcq.program import Program

KEPT = 64  # finished submissions that a report may show


class _Nobody:
    """Who loaded a foreign program: nobody that we know."""

    name = "a foreign program"

    def unloaded(self, entry: int) -> None:
        """Nothing of ours goes with it."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel. letter: b buffer, f float, ? a number whose type nobody said."""

    name: str
    letter: str
    offset: int
    size_bytes: int


class ForeignProgram(Program):
    """A kernel that another program loaded.

    symbol      what the code object calls its entry
    image       the code object, whole where the process still had it; empty where none was found
    parameters  what it takes; None where nobody says
    code_va     where its first instruction is; `entry` is what launches name, which may be its descriptor
    locate      an instruction's address -> "file:line", or ""
    caller      the same -> the line that called its function, where that was inlined
    kernarg_place  on AMD GPUs the first of the two registers that have the address of its arguments, and how many bytes
                these are; None where nobody says
    """

    def __init__(
        self,
        name: str,
        entry: int,
        symbol: str = "",
        image: bytes = b"",
        parameters: Sequence[Parameter] | None = None,
        scratch_bytes: int = 0,
        locate: Callable[[int], str] = lambda pc: "",
        code_va: int = 0,
        kernarg_place: tuple[int, int] | None = None,
        caller: Callable[[int], str] = lambda pc: "",
    ) -> None:
        kinds = None if parameters is None else [_KINDS.get(one.letter, "") for one in parameters]
        args = tuple(kinds) if kinds and all(kinds) else None
        super().__init__(_Nobody(), name, entry, args, scratch_bytes, lambda: None)
        self.symbol, self.image, self.locate, self.caller = symbol or name, image, locate, caller
        self.code_va = code_va or entry
        self.kernarg_place = kernarg_place
        self.parameters = None if parameters is None else tuple(parameters)

    @property
    def numbers(self) -> tuple[Parameter, ...]:
        """The parameters that are numbers, which arguments are shown of; structures are left out."""
        return tuple(one for one in self.parameters or () if one.size_bytes in (1, 2, 4, 8))

    @property
    def letters(self) -> str:
        """Their letters."""
        return "".join(one.letter for one in self.numbers)

    @functools.cached_property
    def without_arguments(self) -> ForeignProgram:
        """The same kernel, for launches whose arguments cannot be read."""
        size = self.scratch_bytes
        return ForeignProgram(
            self.name,
            self.entry,
            self.symbol,
            self.image,
            None,
            size,
            self.locate,
            self.code_va,
            caller=self.caller,
        )

    @property
    def is_found(self) -> bool:
        """Whether its code object was found."""
        return bool(self.image)


_KINDS = {"b": "buffer", "f": "float"}


@dataclass
class ForeignBlock:
    """Packets in memory that a ring runs indirectly, as they were when it was about to."""

    va: int
    label: str
    words: bytes
    commands: Sequence[Command]


@dataclass
class ForeignSubmission:
    """What one look at a ring showed.

    value     its number on the device, from 1
    at, end   where its packets lie, in bytes since the queue was made
    started_ns, finished_ns   0 until then
    """

    value: int
    queue: str
    number: int
    at: int
    end: int
    words: bytes
    commands: Sequence[Command]
    blocks: Sequence[ForeignBlock]
    taken_ns: int
    started_ns: int = 0
    finished_ns: int = 0


@dataclass
class ForeignBuffer:
    """Memory that is mapped for the GPU. is_new: the GPU's own, which nobody has written to before."""

    va: int
    size_bytes: int
    name: str
    is_new: bool = False

    @property
    def end(self) -> int:
        """Behind its last byte."""
        return self.va + self.size_bytes


class ForeignObserver:
    """Hears of one foreign device; the sister of hcq.events.observer.Observer. Each method does nothing here."""

    def opened(self) -> None:
        """The process uses the GPU from now on."""

    def closed(self) -> None:
        """It does no more."""

    def called(self, call: Call) -> None:
        """A call to the GPU's driver returned."""

    def alloc(self, buffer: ForeignBuffer) -> None:
        """Memory was mapped for the GPU."""

    def free(self, buffer: ForeignBuffer) -> None:
        """And is no more."""

    def renamed(self, buffer: ForeignBuffer) -> None:
        """It turned out what it is for."""

    def load(self, program: ForeignProgram) -> None:
        """A kernel is launched for the first time."""

    def unload(self, program: ForeignProgram) -> None:
        """The memory of its code is gone."""

    def submitting(self, made: ForeignSubmission) -> None:
        """The GPU is about to read these packets."""

    def finished(self, made: ForeignSubmission) -> None:
        """And has done all of them."""

    def counted(self, made: Counters) -> None:
        """A launch has ended on an emulated GPU (HCQ_PROFILE=counters)."""

    def kernel_fault(self, entry: int, fault: KernelFault) -> None:
        """A launch of code that begins there did something wrong (HCQ_SANITIZE)."""

    def found(self, fields: Mapping[str, Any]) -> None:
        """And that is a finding: what hcq/observe/kernel_findings.py says of it."""

    def fault(self, fault: GpuFault, at: ForeignSubmission | None, program: ForeignProgram | None) -> None:
        """The GPU stopped, in this submission and kernel where that is known."""


@dataclass(eq=False)
class ForeignDevice:
    """One GPU as one process uses it."""

    name: str
    kind: str
    arch: str
    gpu_id: int
    client: Client
    observers: list[ForeignObserver] = field(default_factory=list)
    live: dict[int, ForeignBuffer] = field(default_factory=dict)
    freed: deque[ForeignBuffer] = field(default_factory=lambda: deque(maxlen=256))
    programs: dict[int, ForeignProgram] = field(default_factory=dict)
    in_flight: dict[int, deque[ForeignSubmission]] = field(default_factory=dict)  # by queue
    recent: deque[ForeignSubmission] = field(default_factory=lambda: deque(maxlen=KEPT))  # finished
    submitted: int = 0
    finished: int = 0

    def facts(self) -> dict[str, Any]:
        """What a trace keeps of it."""
        return {"foreign": True, "gpu_id": self.gpu_id}

    # ------------------------------------------------------------ memory

    def alloc(self, va: int, size_bytes: int, name: str, is_new: bool = False) -> None:
        """Memory was mapped for the GPU."""
        buffer = self.live[va] = ForeignBuffer(va, size_bytes, name, is_new)
        for one in self.observers:
            one.alloc(buffer)

    def free(self, va: int) -> None:
        """It is unmapped; so are the programs in it."""
        buffer = self.live.pop(va, None)
        if buffer is None:
            return
        self.freed.append(buffer)
        for entry in [entry for entry in self.programs if buffer.va <= entry < buffer.end]:
            program = self.programs.pop(entry)
            for one in self.observers:
                one.unload(program)
        for one in self.observers:
            one.free(buffer)

    def rename(self, va: int, name: str) -> None:
        """The buffer that holds an address is for this."""
        buffer = self.find(va)
        if buffer is not None:
            buffer.name = name
            for one in self.observers:
                one.renamed(buffer)

    def find(self, va: int) -> ForeignBuffer | None:
        """The live buffer that holds an address."""
        found = self.live.get(va)
        if found is not None:
            return found
        return next((one for one in list(self.live.values()) if one.va <= va < one.end), None)

    # ------------------------------------------------------------ work

    def load(self, program: ForeignProgram) -> None:
        """A kernel that was not launched before, or whose memory holds another one now."""
        self.programs[program.entry] = program
        for one in self.observers:
            one.load(program)

    def submit(
        self,
        number: int,
        queue: str,
        at: int,
        words: bytes,
        commands: Sequence[Command],
        blocks: Sequence[ForeignBlock],
        size_bytes: int | None = None,
    ) -> None:
        """The GPU is about to read these packets.

        size_bytes   what they take in the queue, where that is not how long they are: a ring may only point to them
        """
        self.submitted += 1
        end = at + (len(words) if size_bytes is None else size_bytes)
        made = ForeignSubmission(
            self.submitted, queue, number, at, end, words, commands, blocks, time.monotonic_ns()
        )
        waiting = self.in_flight.setdefault(number, deque())
        if not waiting:
            made.started_ns = made.taken_ns
        waiting.append(made)
        for one in self.observers:
            one.submitting(made)

    def done(self, number: int, at: int) -> None:
        """The GPU has finished with all packets of a queue before `at`."""
        waiting = self.in_flight.get(number)
        now = time.monotonic_ns()
        while waiting and waiting[0].end <= at:
            made = waiting.popleft()
            made.finished_ns = now
            self.finished += 1
            self.recent.append(made)
            if waiting:
                waiting[0].started_ns = now
            for one in self.observers:
                one.finished(made)

    def counted(self, made: Counters) -> None:
        """A launch of one of its programs has ended on an emulated GPU."""
        program = next((one for one in self.programs.values() if one.code_va == made.entry), None)
        if program is not None:
            known = {"kernel": program.name, "entry": program.entry}
            made = Counters.from_fields({**made.as_fields(), **known})
            for one in self.observers:
                one.counted(made)

    def kernel_fault(self, entry: int, fault: KernelFault) -> None:
        """A launch that has ended on an emulated GPU did something wrong."""
        for one in self.observers:
            one.kernel_fault(entry, fault)

    def ended(self, number: int) -> None:
        """A queue is destroyed, with what was left in it."""
        self.in_flight.pop(number, None)

    def faulted(self, fault: GpuFault, program: ForeignProgram | None) -> None:
        """The GPU stopped."""
        waiting = None if fault.queue is None else self.in_flight.get(fault.queue)
        at = waiting[0] if waiting else None
        for one in self.observers:
            one.fault(fault, at, program)

    def close(self) -> None:
        """The process uses it no more."""
        for one in self.observers:
            one.closed()


class Calls:
    """Calls of a process. Each is told once, of the first GPU that it uses, and is kept until there is one."""

    def __init__(self) -> None:
        self._first: ForeignDevice | None = None
        self._before: list[Call] = []

    def tell(self, call: Call) -> None:
        """A call returned."""
        if self._first is None:
            self._before.append(call)
        else:
            self._tell(self._first, call)

    def uses(self, device: ForeignDevice) -> ForeignDevice:
        """The process uses this GPU. Returns it."""
        if self._first is None:
            self._first = device
            before, self._before = self._before, []
            for call in before:
                self._tell(device, call)
        return device

    def _tell(self, device: ForeignDevice, call: Call) -> None:
        for one in device.observers:
            one.called(call)


class Reader(Protocol):
    """What a vendor makes of one process's use of its driver. `devices` gives it the ForeignDevice of a GPU's id."""

    def called(self, call: Call) -> None:
        """As KernelObserver.called."""
        ...

    def taken(self, queue: int, at: int, words: bytes, read: Read) -> None:
        """As KernelObserver.taken."""
        ...

    def done(self, queue: int, at: int) -> None:
        """As KernelObserver.done."""
        ...

    def faulted(self, fault: GpuFault, read: Read) -> None:
        """As KernelObserver.faulted."""
        ...


MakeReader = Callable[[Client, Callable[[int], ForeignDevice]], Reader]
Gpus = Mapping[int, str]
