"""Submission check: one submission while its effects are looked at, one after the other.

In       the state before it, its device and its queue
Out      what checks ask: ranges, the current kernel, what came before; `commit` or `undo` at the end
Changes  the state, so that later packets see earlier ones; all of it is taken back when the submission is refused
Next     examine.py (makes one for each submission), addresses.py and its neighbours (the checks)

A submission may give work to several queues of its device. Each is an agent of its own, and `enter` says whose packets
are looked at now; what one of them waits for, and another one will signal, is looked at first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hcq.rules.effects import Argument, Effect, Launch, ProgramFacts, Step, Wait
from hcq.rules.memory import Allocation, PastAccess
from hcq.rules.rule import Finding, Violation
from hcq.rules.state import Agent, Clock, Deferred, DeviceState, GraphBlock, OpenWait, Promise, State
from hcq.system.call_site import Site, where


class Where(NamedTuple):
    """A packet of a submission, for a Finding that comes later."""

    device: str
    queue: str
    submission: int
    word: int
    packet: str
    site: str


# (entry, buffers) of each launch, in order, where the words of the packets do not have them
KnownArguments = list[tuple[int, tuple[Argument, ...]]]


class SubmissionCheck:
    """What a check sees.

    value   what the device's timeline has once this submission is done
    step    the current packet
    kernel  the program it launches, or None
    site    the line that submitted, as text or as callsite.site() took it
    depth   0 in the ring, 1 in a block of packets
    arguments   of launches to come, where they are known from elsewhere
    """

    def __init__(self, state: State, device: DeviceState, queue: str, value: int, site: Site | str) -> None:
        self.state = state
        self.device = device
        self.model = device.model
        self.queue = queue
        self.agent: Agent = device.agent(queue)
        self.value = value
        self.site = site
        self.step: Step | None = None
        self.kernel: ProgramFacts | None = None
        self.depth = 0
        self.arguments: KnownArguments = []
        self.label = ""  # of that block
        self.is_last = False  # the packet that ends the submission
        self.signals: list[tuple[int, int, Clock, tuple[OpenWait, ...], Agent]] = []
        self.blocks: list[GraphBlock] = []
        self.log: list[tuple[Agent, int, int, bool, Where]] = []
        # of touched.py: launches and copies, where somebody wants to know what they touch
        self.works: list[Any] = []
        self.deferred: list[Deferred] = []  # accesses behind waits that nobody has ended yet
        # the waits after which the order of accesses, of it or from before, is known now
        self.settled: set[tuple[OpenWait, ...]] = set()
        self.goes_past_waits = (
            False  # one wait: all queues wait, and none of what this submission signals is left
        )
        self._main = queue
        self._places: dict[str, tuple[Step | None, ProgramFacts | None, int, str, bool]] = {}
        self._agents_before = {self.agent: self.agent.save()}
        self._touched: list[tuple[Allocation, tuple[PastAccess, ...], bool]] = []
        self.agent.join(state.host.snapshot() if state.host.at else state.host.clock)

    # ------------------------------------------------------------ several queues

    @property
    def is_split(self) -> bool:
        """Whether packets of another queue than the first one have been looked at."""
        return bool(self._places)

    def enter(self, queue: str) -> None:
        """Go on with the packets of this queue, where they were left."""
        queue = queue or self._main
        if queue == self.queue and queue in self._places:
            return
        self._places[self.queue] = self.step, self.kernel, self.depth, self.label, self.is_last
        self.queue, agent = queue, self.device.agent(queue)
        self.agent = agent
        self.step, self.kernel, self.depth, self.label, self.is_last = self._places.setdefault(
            queue, (None, None, 0, "", False)
        )
        if agent not in self._agents_before:
            self._agents_before[agent] = agent.save()
            host = self.state.host
            agent.join(host.snapshot() if host.at else host.clock)

    def must_wait(self, effect: Effect) -> bool:
        """Whether another queue's packets come first: of a wait for what none of those seen so far has signalled."""
        if not isinstance(effect, Wait) or not self.is_split or self._promise(effect.cell, effect.value):
            return False
        is_first = not self.goes_past_waits
        self.goes_past_waits = False
        return is_first

    def is_signal(self, va: int) -> bool:
        """Whether a cell is a signal: values in an ordinary buffer need not rise, and anybody may write there."""
        return va == self.device.timeline or self.state.is_signal(va, self.model.signal_bytes)

    # ------------------------------------------------------------ what the effects do to the state

    def touch(self, block: Allocation, low: int, high: int, is_write: bool, domain: str, label: str) -> None:
        """Remember an access. Behind an open wait nobody knows yet what it comes after, so it is put off."""
        agent = self.agent
        made = PastAccess(agent, agent.at, low, high, is_write, domain, label)
        if is_write:
            self.write_mark(block)
        if agent.open:
            order = agent.snapshot(), agent.open, self.device.name, self.value, self.where()
            self.deferred.append(Deferred(block, made, *order))
            return
        self.remember(block, [made])

    def remember(self, block: Allocation, accesses: Sequence[PastAccess]) -> None:
        """Note accesses whose order is known, until the submission is refused."""
        self._touched.append((block, block.touches, block.is_written))
        for made in accesses:
            block.touch(made)

    def write_mark(self, block: Allocation) -> None:
        """Note that a block holds something, until the submission is refused."""
        if not block.is_written:
            self._touched.append((block, block.touches, False))
            block.is_written = True

    def signal(self, va: int, value: int) -> None:
        """Note that a signal is set."""
        agent = self.agent
        self.signals.append((va, value, agent.snapshot(), agent.open, agent))
        if self.state.log is not None:
            self.log.append((agent, va, value, False, self.where()))

    def promised(self, va: int) -> int | None:
        """What this submission itself last set a signal to."""
        found: int | None = None
        for cell, value, *_ in self.signals:
            found = value if cell == va else found
        return found

    def _promise(self, va: int, value: int) -> tuple[int, int, Clock, tuple[OpenWait, ...], Agent] | None:
        """The first signal of this submission that reaches a value."""
        return next((made for made in self.signals if made[0] == va and made[1] >= value), None)

    def wait(self, va: int, value: int) -> None:
        """Note a wait, and what it makes visible when this submission does not itself set the value."""
        own = self._promise(va, value)
        if own is None:
            self.state.wait(self.agent, va, value, self.where())
        elif own[4] is not self.agent:
            self.agent.join(own[2])
            if own[3]:
                self.agent.open = (*self.agent.open, *own[3])
                self.state.waiting.add(self.agent)
        if self.state.log is not None:
            self.log.append((self.agent, va, value, True, self.where()))

    def commit(self) -> None:
        """It was submitted."""
        state, agent = self.state, self.agent
        for va, value, clock, still, by in self.signals:
            state.promise(va, Promise(value, clock, still, by, self.value))
        timeline = self.device.timeline
        if self.promised(timeline) != self.value:
            state.promise(timeline, Promise(self.value, agent.snapshot(), agent.open, agent, self.value))
            if state.log is not None:
                self.log.append((agent, timeline, self.value, False, self.where()))
        if self.deferred or self.settled:
            state.defer(self.deferred, self.settled)
        for block in self.blocks:
            state.blocks[block.address] = block
        if state.log is not None:
            state.log.extend(self.log)
        self.device.submitted = self.value

    def undo(self) -> None:
        """It was refused, or did not reach the device."""
        for agent, before in self._agents_before.items():
            agent.restore(before)
            if not agent.open:
                self.state.waiting.discard(agent)
        for block, touches, is_written in reversed(self._touched):
            block.touches = touches
            block.is_written = is_written

    def with_arguments(self, launch: Launch) -> Launch:
        """A launch with the buffers it is given, where its packets do not have them and someone else knows.

        What the kernel does with each is what its loader said.
        """
        arguments = launch.arguments
        if not arguments and self.arguments and self.arguments[0][0] == launch.entry:
            arguments = self.arguments.pop(0)[1]
        if any(arg.kind == "buffer" and not arg.value for arg in arguments):  # null: no memory that is used
            arguments = tuple(arg for arg in arguments if arg.kind != "buffer" or arg.value)
        facts = self.device.programs.get(launch.entry)
        if facts is not None and facts.access is not None and arguments:
            access, extents = dict(enumerate(facts.access)), dict(enumerate(facts.extents or ()))
            arguments = tuple(
                arg if arg.access else arg._replace(access=access.get(arg.position, "")) for arg in arguments
            )
            if extents:
                arguments = tuple(arg._replace(size_bytes=extents.get(arg.position, 0)) for arg in arguments)
        return launch if arguments is launch.arguments else launch._replace(arguments=arguments)

    # ------------------------------------------------------------ words

    def where(self) -> Where:
        """The packet that is looked at, for messages."""
        step = self.step
        return Where(
            self.device.name,
            self.queue,
            self.value,
            step.at if step is not None else 0,
            ("" if step is None else f"{step.packet!r} of {self.label}" if self.depth else repr(step.packet)),
            self.site if isinstance(self.site, str) else where(self.site),
        )

    def finding(self, broken: Violation) -> Finding:
        """A violation with the place where it happened."""
        block = self.state.memory.find(broken.va) if broken.va else None
        where = self.where()
        return Finding(
            broken.rule.id,
            broken.rule.level,
            broken.what,
            broken.rule.fix,
            where.device,
            where.queue,
            where.submission,
            where.word,
            where.packet,
            self.kernel.name if self.kernel is not None else "",
            block.name if block is not None else "",
            where.site,
        )
