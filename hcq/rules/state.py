"""State: what the rules know of signals, programs, blocks of packets and order (vector clocks).

In       events, from devices that validate or from a trace
Out      what happened before what; which waits nobody will end
Changes  itself
Next     memory.py (buffers), submission_check.py (one submission being looked at), waits.py (waits that never end)

Order is a vector clock. Everyone who does things one after the other is an agent: each queue of each device, and the
host. An agent counts its own steps; its clock says how many steps of each other agent surely came before. A submission
comes after all that the host had seen when it was made; a wait comes after the first signal that reaches its value. A
wait whose signal has not been submitted yet leaves the agent's order open: until then nothing of that agent is called
unordered (deferred.py judges it then).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hcq.rules.effects import Model, ProgramFacts
from hcq.rules.memory import Allocation, Memory, PastAccess

MAX_UNLOADED = 4096  # programs that are remembered
MAX_DEFERRED = 8192  # accesses; the oldest are forgotten, which can hide a collision and never invents one
MAX_PROMISES = 2048  # of one signal; from then on the older half is forgotten

Clock = dict["Agent", int]


class OpenWait(NamedTuple):
    """A wait for a value that nobody has promised yet."""

    cell: int
    value: int
    where: Any  # what a Finding needs: see SubmissionCheck.finding


class Agent:
    """One who does things one after the other. `at` counts its steps."""

    __slots__ = ("at", "barrier_at", "clock", "flushed", "invalidated", "joined", "name", "open")

    def __init__(self, name: str) -> None:
        self.name = name
        self.at = 0
        self.clock: Clock = {}
        self.barrier_at = 0
        self.flushed: dict[str, int] = {}  # cache -> when it was last written back
        self.invalidated: dict[str, int] = {}
        self.joined: dict[Agent, tuple[int, int]] = {}  # agent -> (how far we knew it, since when)
        self.open: tuple[OpenWait, ...] = ()

    def knows(self, agent: Agent, at: int) -> bool:
        """Whether that step of that agent surely came before our next one."""
        return agent is self or self.clock.get(agent, 0) >= at

    def join(self, clock: Mapping[Agent, int]) -> None:
        """From now on we come after all of this."""
        own = self.clock
        for agent, at in clock.items():
            if agent is self:
                # another agent saw that this one was done so far
                self.barrier_at = max(self.barrier_at, at + 1)
            elif at > own.get(agent, 0):
                own[agent] = at
                self.joined[agent] = (at, self.at)

    def snapshot(self) -> Clock:
        """What it has seen of every agent, itself included, at this point."""
        return {**self.clock, self: self.at}

    def save(self) -> tuple[Any, ...]:
        """What `restore` needs to forget everything that comes now."""
        return (
            dict(self.clock),
            self.barrier_at,
            dict(self.flushed),
            dict(self.invalidated),
            dict(self.joined),
            self.open,
        )

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to what was saved, when a submission is refused."""
        self.clock, self.barrier_at, self.flushed, self.invalidated, self.joined, self.open = saved

    def __repr__(self) -> str:
        return f"Agent({self.name})"


class Promise(NamedTuple):
    """A signal will reach a value, and whoever waits for it comes after `clock`."""

    value: int
    clock: Clock
    open: tuple[OpenWait, ...]
    agent: Agent
    submission: int


class Cell:
    """One signal. `level` is what it was last promised to become; promises rise from one to the next."""

    __slots__ = ("level", "promises")

    def __init__(self) -> None:
        self.level = 0
        self.promises: list[Promise] = []

    def reaches(self, value: int) -> Promise | None:
        """The first promise of at least this value."""
        at = bisect.bisect_left(self.promises, value, key=lambda promise: promise.value)
        return self.promises[at] if at < len(self.promises) else None


class GraphBlock(NamedTuple):
    """Packets in memory as they were when last run."""

    address: int
    size_words: int
    label: str
    words: bytes
    home: Allocation | None
    device: DeviceState
    submission: int


class Deferred(NamedTuple):
    """An access behind waits that nobody had ended when it was submitted: what comes before it is not known yet.

    clock  what its agent knew then; device, submission: what it is a part of; where: what a Finding needs
    """

    block: Allocation
    access: PastAccess
    clock: Clock
    open: tuple[OpenWait, ...]
    device: str
    submission: int
    where: Any


class DeviceState:
    """One open device."""

    def __init__(
        self, name: str, model: Model, timeline: int, finished: Callable[[int], bool] = lambda value: True
    ) -> None:
        self.name = name
        self.model = model
        self.timeline = timeline
        self.submitted = 0
        self.finished = finished  # whether a submission is surely done by now
        self.agents: dict[str, Agent] = {}
        self.programs: dict[int, ProgramFacts] = {}
        self.unloaded: dict[int, ProgramFacts] = {}
        self.scratch_bytes = 0  # the most that a program loaded so far needs
        self.generation = 0  # counts loads and unloads: what packets do depends on the programs
        self.known: dict[Any, Any] = {}  # the engine's: pieces of words it has taken apart before
        self.known_generation = 0

    def agent(self, queue: str) -> Agent:
        """The agent of a queue, made when first asked for."""
        found = self.agents.get(queue)
        if found is None:
            found = self.agents[queue] = Agent(f"{self.name} {queue}")
        return found

    def load(self, facts: ProgramFacts) -> None:
        """A program was loaded."""
        self.unloaded.pop(facts.entry, None)
        if len(self.unloaded) > MAX_UNLOADED:
            self.unloaded.clear()
        self.generation += 1
        self.scratch_bytes = max(self.scratch_bytes, facts.scratch_bytes or 0)
        self.programs[facts.entry] = facts

    def unload(self, entry: int) -> None:
        """Safe from destructors."""
        facts = self.programs.pop(entry, None)
        if facts is not None:
            self.generation += 1
            self.unloaded[entry] = facts


class State:
    """Everything that is known. `host` is the program itself, all its threads as one."""

    def __init__(
        self, knows_host_writes: bool = True, keeps_log: bool = False, signals: str = "anywhere"
    ) -> None:
        self.memory = Memory()
        # where they are: "anywhere", in "buffers of their own", or where it was "told" that one was made
        self.signals = signals
        self.cells: dict[int, Cell] = {}
        self._places: list[int] = []  # where they are, in order
        self.blocks: dict[int, GraphBlock] = {}
        self.host = Agent("the host")
        self.knows_host_writes = knows_host_writes
        self.waiting: set[Agent] = set()  # agents with open waits
        # accesses, by the waits they are behind
        self.deferred: dict[tuple[OpenWait, ...], list[Deferred]] = {}
        self._deferred_count = 0
        self.touched: Any = (
            None  # a Touched (touched.py): what launches really touch, where somebody wants to know
        )
        self.circles: list[OpenWait] = []  # waits that only come to an end behind themselves
        # (agent, cell, value, is_wait, where), in order, when kept: see waits.py
        self.log: list[tuple[Agent, int, int, bool, Any]] | None = [] if keeps_log else None

    def cell(self, va: int) -> Cell:
        """The signal at an address, made when first asked for."""
        found = self.cells.get(va)
        if found is None:
            found = self.cells[va] = Cell()
            bisect.insort(self._places, va)
        return found

    def is_signal(self, va: int, size_bytes: int) -> bool:
        """Whether a cell is a signal, of so many bytes, and no place in a buffer that packets may set to anything."""
        if self.signals == "anywhere":
            return True
        block = self.memory.find(va)
        if block is None or va >= block.end:
            return True
        is_cell = block.is_cell if self.signals == "told" else block.size_bytes == size_bytes
        return is_cell and va == block.va

    def _forget_cells(self, low: int, high: int) -> None:
        """The memory from low to high has other contents now: no signals that were there."""
        first, last = bisect.bisect_left(self._places, low), bisect.bisect_left(self._places, high)
        for va in self._places[first:last]:
            del self.cells[va]
        del self._places[first:last]

    def name(self, va: int) -> str:
        """A signal in words."""
        home = self.memory.find(va)
        return f"{home.name}@{va:#x}" if home is not None and home.name else f"{va:#x}"

    # ------------------------------------------------------------ buffers

    def alloc(self, va: int, size_bytes: int, name: str, device: str, access: str = "both") -> None:
        """A buffer was handed out; signals that were in the memory before are gone."""
        self.memory.alloc(va, size_bytes, name, device, access)
        self._forget_cells(va, va + max(size_bytes, 1))

    def unmap(self, va: int, size_bytes: int) -> None:
        """Memory goes back to the system: whatever comes to lie there next has no signals of old in it."""
        self.memory.unmap(va, size_bytes)
        self._forget_cells(va, va + size_bytes)

    # ------------------------------------------------------------ signals

    def promise(self, va: int, made: Promise) -> None:
        """A signal will get a value once an agent is there."""
        cell = self.cell(va)
        if cell.promises and made.value < cell.promises[-1].value:
            cell.promises.clear()  # it went back: nothing older says when it gets there again
        elif len(cell.promises) >= MAX_PROMISES:
            del cell.promises[: MAX_PROMISES // 2]
        cell.promises.append(made)
        cell.level = made.value
        self.circles += [still for still in made.open if still.cell == va and still.value <= made.value]
        if self.waiting:
            self._resolve(va, made)

    def wait(self, agent: Agent, va: int, value: int, where: Any) -> None:
        """The agent goes on once the signal is there."""
        cell = self.cells.get(va)
        promise = None if cell is None else cell.reaches(value)
        if promise is None:
            agent.open = (*agent.open, OpenWait(va, value, where))
            self.waiting.add(agent)
        else:
            self._follow(agent, promise)

    def defer(self, more: Sequence[Deferred], settled: set[tuple[OpenWait, ...]]) -> None:
        """Put accesses off, and forget those behind waits after which their order is known."""
        for waits in settled:
            self._deferred_count -= len(self.deferred.pop(waits, ()))
        for one in more:
            if one.open not in settled:
                self.deferred.setdefault(one.open, []).append(one)
                self._deferred_count += 1
        while self._deferred_count > MAX_DEFERRED:
            self._deferred_count -= len(self.deferred.pop(next(iter(self.deferred))))

    def _keep_deferred(self, is_kept: Callable[[Deferred], bool]) -> None:
        kept = {waits: [one for one in every if is_kept(one)] for waits, every in self.deferred.items()}
        self.deferred = {waits: every for waits, every in kept.items() if every}
        self._deferred_count = sum(map(len, self.deferred.values()))

    def host_set(self, va: int, value: int) -> None:
        """The program stored a value itself."""
        cell = self.cell(va)
        self.circles = [still for still in self.circles if still.cell != va or still.value > value]
        if value < cell.level:
            cell.promises.clear()
        self.host.at += 1
        if self.log is not None:
            self.log.append((self.host, va, value, False, None))
        self.promise(va, Promise(value, self.host.snapshot(), (), self.host, 0))

    def host_saw(self, va: int, value: int) -> None:
        """The program looked at a signal and saw at least this value: what it does next comes after."""
        cell = self.cells.get(va)
        if cell is None:
            return
        at = bisect.bisect_right(cell.promises, value, key=lambda promise: promise.value)
        if at:
            self.host.join(cell.promises[at - 1].clock)

    def drop(self, device: DeviceState, first: int, last: int) -> None:
        """These submissions failed: what they promised does not come from them."""
        agents = set(device.agents.values())
        for va, cell in list(self.cells.items()):
            if va == device.timeline:
                continue  # a failed submission still ends
            cell.promises = [
                p for p in cell.promises if not (p.agent in agents and first <= p.submission <= last)
            ]
            cell.level = cell.promises[-1].value if cell.promises else 0
        for agent in agents:
            agent.open = ()
            self.waiting.discard(agent)
        self._keep_deferred(lambda one: one.device != device.name or not first <= one.submission <= last)
        self.circles = [
            still
            for still in self.circles
            if still.where.device != device.name or not first <= still.where.submission <= last
        ]
        if self.log is not None:
            self.log = [
                event
                for event in self.log
                if event[0] not in agents
                or event[1] == device.timeline
                or not first <= event[4].submission <= last
            ]

    def close(self, device: DeviceState) -> None:
        """A device has ended: nothing that it waited for matters any more."""
        for agent in device.agents.values():
            agent.open = ()
            self.waiting.discard(agent)
        self._keep_deferred(lambda one: one.device != device.name)

    def _follow(self, agent: Agent, promise: Promise) -> None:
        """The agent comes after a promise, and after whatever that one still waits for."""
        pending, seen = [promise], {id(promise)}
        while pending:
            now = pending.pop()
            agent.join(now.clock)
            for still in now.open:
                cell = self.cells.get(still.cell)
                kept = None if cell is None else cell.reaches(still.value)
                if kept is None:
                    agent.open = (*(o for o in agent.open if o != still), still)
                    self.waiting.add(agent)
                elif id(kept) not in seen:
                    seen.add(id(kept))
                    pending.append(kept)

    def _resolve(self, va: int, promise: Promise) -> None:
        for agent in list(self.waiting):
            ended = [still for still in agent.open if still.cell == va and still.value <= promise.value]
            if ended:
                agent.open = tuple(still for still in agent.open if still not in ended)
                self._follow(agent, promise)
                if not agent.open:
                    self.waiting.discard(agent)
