"""Timeline: launches that were recorded, their snapshots, and runs that are watched instruction by instruction.

In       a Work, memory; what to stop at
Out      Probe, which a run tells of each instruction; Record, a launch with its snapshots; History, all launches kept
Changes  itself; memory of its own, when a launch is run again
Next     session.py (the debugger, who decides what to stop at), pages.py (memory), moment.py (Work, Moment)

Time is a place in a launch: how many instructions have begun, counted once for all waves that execute one together. A
launch that is run again begins at the nearest snapshot before the place that is wanted. There are at most
MOST_SNAPSHOTS of each launch: when there are more, every other one goes, and they are taken half as often from then on.
A run towards a place takes some on its way, ever closer together, so that the next step back from there is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hcq.debug.moment import Moment, Test, Work
from hcq.debug.pages import Content, Pages, Pool, Replay
from hcq.errors import UsageError

NEVER = 1 << 62
FIRST_SPACING = 2048  # instructions between snapshots, at first
MOST_SNAPSHOTS = 48
CLOSEST = 64  # between snapshots on the way to a place
MOST_BYTES = 1 << 30  # of pages of all launches
MOST_LAUNCHES = 4096


class Place(NamedTuple):
    """A place in time: a launch by its number, and how many of its instructions have begun: 1 is before the first."""

    launch: int
    tick: int


class Snapshot(NamedTuple):
    """A launch after so many instructions: its machine, and the pages that changed since the snapshot before."""

    tick: int
    done: int
    state: Any
    changed: dict[int, Content]


class Enough(Exception):
    """A run again has come to where it was wanted to."""


class Unwanted(UsageError):
    """Somebody has stopped a run again on its way."""


class Record:
    """One launch. `ticks`: how many instructions it has begun so far; `is_over`: it runs no more."""

    def __init__(self, number: int, work: Work, space: Any, pool: Pool, title: str) -> None:
        self.number, self.work, self.pool, self.title = number, work, pool, title
        self.ranges = tuple(space.ranges)
        self.first: dict[int, Content] = {}
        self.written: set[int] = set()
        self.snapshots: list[Snapshot] = []
        self.spacing = FIRST_SPACING
        self.ticks = self.done = 0
        self.is_over = False
        self.fault = ""
        self._replay: Replay | None = None

    def snapshot(self, tick: int, done: int, state: Any, changed: dict[int, Content]) -> None:
        """Keep one; perhaps with fewer of the others."""
        at = next((n for n, one in enumerate(self.snapshots) if one.tick >= tick), len(self.snapshots))
        if at < len(self.snapshots) and self.snapshots[at].tick == tick:
            return
        self.snapshots.insert(at, Snapshot(tick, done, state, changed))
        if len(self.snapshots) > MOST_SNAPSHOTS:
            self.spacing *= 2
            self._thin()

    def _thin(self) -> None:
        """Without those that stand closest to the one before them: what changed there changed by the next."""
        kept: list[Snapshot] = []
        carried: dict[int, Content] = {}
        last = 0
        for number, one in enumerate(self.snapshots):
            changed = {**carried, **one.changed}
            if number + 1 < len(self.snapshots) and one.tick - last < self.spacing:
                self.pool.drop(carried[page] for page in carried if page in one.changed)
                carried = changed
                continue
            self.pool.drop(carried[page] for page in carried if page in one.changed)
            kept.append(one._replace(changed=changed))
            carried, last = {}, one.tick
        self.snapshots = kept

    def replay(self) -> Replay:
        """Memory for running it again."""
        if self._replay is None:
            self._replay = Replay(self.work, self.ranges, self.first, self.pool)
        return self._replay

    def rest(self) -> None:
        """Its memory for running it again is not needed now."""
        self._replay = None

    def starts(self, before: int) -> Iterator[Snapshot]:
        """Where it can begin, to come to a place after it: the nearest first; last its beginning."""
        for one in reversed(self.snapshots):
            if one.tick < before:
                yield one
        yield Snapshot(0, 0, None, {})

    def again(self, probe: Probe, start: Snapshot) -> None:
        """Run it again from one of them. Raises what the probe raises."""
        replay = self.replay()
        replay.reset(one.changed for one in self.snapshots if one.tick <= start.tick)
        probe.pages, probe.tick, probe.done = replay.pages, start.tick, start.done
        self.work.run(probe, replay.memory, start.state)


class Probe:
    """What a run tells of its instructions.

    tick     instructions that have begun; done: the same, times the waves of each
    due      from this tick on `look` is asked before every instruction
    keys     of the instructions before which it is asked anyway
    watch    what `look` calls with a Moment
    """

    def __init__(self, record: Record, watch: Callable[[Probe, Moment], None], is_live: bool = False) -> None:
        self.record, self.watch, self.is_live = record, watch, is_live
        self.tick = self.done = 0
        self.due = NEVER
        self.keys: frozenset[int] = frozenset()
        self.pages: Pages | None = None
        self.goal = 0  # a place that it is on its way to
        self.is_unwanted = False
        self._next = record.spacing

    def look(self, key: int, context: Any) -> None:
        """By the run, before an instruction that somebody may want to stop at."""
        self._go_on()
        self.watch(self, self.record.work.moment(key, context))  # type: ignore[attr-defined]

    def between(self, machine: Any) -> None:
        """By the run, where its machine can be saved: between two blocks of instructions."""
        self._go_on()
        if self.tick < self._next or self.pages is None:
            return
        record = self.record
        if all(one.tick != self.tick for one in record.snapshots):
            state = record.work.save()  # type: ignore[attr-defined]
            if state is None:
                self._next = self.tick + CLOSEST
                return
            record.snapshot(self.tick, self.done, state, self.pages.take_dirty())
        else:
            self.pages.dirty = set()
        ahead = max(CLOSEST, (self.goal - self.tick) // 2) if self.goal > self.tick else record.spacing
        self._next = self.tick + min(ahead, record.spacing)

    def cancel(self) -> None:
        """End this run soon, by Unwanted; from any thread, perhaps in a signal handler."""
        self.is_unwanted = True
        self.due = 0

    def _go_on(self) -> None:
        if self.is_unwanted:
            raise Unwanted("interrupted.")


class History:
    """The launches that are kept, in the order in which they began."""

    def __init__(self) -> None:
        self.pool = Pool()
        self.records: list[Record] = []
        self.count = 0
        self.scanning: Probe | None = None  # the run in which something is looked for
        self._awake: list[Record] = []

    def begin(self, work: Work, space: Any, title: str) -> Record:
        """A launch begins. The oldest are dropped where all take too much."""
        while (
            self.records
            and self.records[0].is_over
            and (self.pool.size_bytes > MOST_BYTES or len(self.records) >= MOST_LAUNCHES)
        ):
            gone = self.records.pop(0)
            self.pool.drop(gone.first.values())
            for one in gone.snapshots:
                self.pool.drop(one.changed.values())
        self.count += 1
        record = Record(self.count, work, space, self.pool, title)
        self.records.append(record)
        return record

    def record(self, number: int) -> Record | None:
        """A launch by its number; None when it is not kept."""
        first = self.records[0].number if self.records else 0
        return self.records[number - first] if 0 <= number - first < len(self.records) else None

    def wake(self, record: Record) -> None:
        """It is about to be run again: only a few launches have memory for that."""
        if record in self._awake:
            self._awake.remove(record)
        self._awake.append(record)
        while len(self._awake) > 3:
            self._awake.pop(0).rest()

    def scan(
        self,
        record: Record,
        start: Snapshot,
        before: int,
        test: Test,
        keys: frozenset[int] | None,
        is_on_way: bool = True,
    ) -> tuple[Place, str] | None:
        """The last place from a snapshot to before a tick where a test says why to stop.

        keys   of the instructions that can be it; None: any
        is_on_way   more is going to be asked about what is right before that tick
        """
        found: list[tuple[Place, str]] = []

        def watch(probe: Probe, moment: Moment) -> None:
            if probe.tick >= before:
                raise Enough
            reason = test(moment)
            if reason is not None:
                found[:] = [(Place(record.number, probe.tick), reason)]

        self.wake(record)
        probe = Probe(record, watch)
        probe.keys = frozenset() if keys is None else keys
        probe.due = start.tick + 1 if keys is None else before
        probe.goal = before if is_on_way else 0
        self.scanning = probe
        try:
            record.again(probe, start)
        except Enough:
            pass
        except Unwanted:
            raise
        except Exception:
            if not record.fault:
                raise
        finally:
            self.scanning = None
        return found[0] if found else None

    def last(
        self,
        before: Place,
        test: Test,
        keys: Callable[[Work], frozenset[int] | None],
        within: int | None = None,
    ) -> tuple[Place, str] | None:
        """The last place before another where a test says why to stop. within: look at this launch alone."""
        for record in reversed(self.records):
            if record.number > before.launch or (within is not None and record.number != within):
                continue
            wanted = keys(record.work)
            if wanted is not None and not wanted:
                continue
            end = before.tick if record.number == before.launch else record.ticks + 1
            for start in list(record.starts(end)):
                if (found := self.scan(record, start, end, test, wanted)) is not None:
                    return found
                end = start.tick + 1
        return None
