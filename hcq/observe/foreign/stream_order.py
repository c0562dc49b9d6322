"""The order of a HIP program's launches and copies, as its calls of streams and events make it (HCQ_SANITIZE=race).

In       calls as HIP's runtime logs them, in order; what each launch has touched, once it has ended
Out      pairs of works of which nothing orders one before the other, and that touch one byte
Changes  itself
Next     runtime_log.py (who reads the log), sanitizer.py (who says it), hcq/rules/touched.py (the same for hcq's own)
Source   HIP's documentation: streams and events; the default stream waits for all blocking streams, and these for it

A stream's works follow each other. An event has what its stream had when it was recorded; a stream that waits for it,
or a host that does, comes after that. The threads of the host are one. Where it is not sure that works are not ordered,
they count as ordered: around allocations and hipFree, for streams of which it is not known that they are non-blocking,
and, for good, once a program uses values in memory, or captures a graph while another of its threads calls. A graph's
works are its stream's, one after the other as the runtime enqueues them; the host knows all that a callback waits for.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from hcq.events.kernel_touches import Touches
from hcq.rules.touched import overlaps

Clock = dict[str, int]
NULL = "<null>"
MOST_PAST = 256  # works that later ones are compared with
MOST_STREAMS = 256  # variables that were given to hipStreamCreate...
STREAM = re.compile(r"stream:(<null>|0x[0-9a-f]+)")
EVENT = re.compile(r"event:(0x[0-9a-f]+)")
CREATE = re.compile(r"hipStreamCreate\w* \( (?:0x)?([0-9a-f]+)(?:, (\d+))?")
COPY = re.compile(
    r"hipMemcpy(?:HtoD|DtoH|DtoD|WithStream)?(Async)? \( (?:0x)?([0-9a-f]+), (?:0x)?([0-9a-f]+), (\d+)"
)
NAME = re.compile(r"\w+")
WAITS = (
    "hipDeviceSynchronize",
    "hipFree",
    "hipHostFree",
    "hipMallocAsync",
    "hipMallocFromPoolAsync",
    "hipDeviceReset",
)
UNKNOWN = re.compile(
    r"hipGraphAdd(Host|Mem(Alloc|Free)|Event|External|Batch)|hipStream(WaitValue|WriteValue|BatchMemOp)"
    r"|hip\w*ExternalSemaphore|hipIpc|hipThreadExchangeStreamCaptureMode"
)
CALLBACKS = ("hipStreamAddCallback", "hipLaunchHostFunc")


class Work(NamedTuple):
    """A launch or a copy. clock: what it comes after, itself among it."""

    stream: str
    number: int
    clock: Clock
    what: str
    entry: int = 0
    touches: Touches | None = None


class Collision(NamedTuple):
    """Two works touch a byte at this address. numbers: of the ranges that do."""

    address: int
    one: Work
    other: Work
    numbers: tuple[int, int]


class StreamOrder:
    """That of one process. read: bytes of its memory."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self.read = read
        self.is_off = False
        self._count: Clock = {}
        self._known: dict[str, Clock] = {}
        self._host: Clock = {}
        self._events: dict[str, Clock] = {}
        self._of_thread: dict[str, str] = {}  # thread of the host -> the stream of its last call that has one
        self._created: deque[tuple[int, int]] = deque(maxlen=MOST_STREAMS)
        self._non_blocking: dict[str, bool] = {}
        self._past: deque[Work] = deque(maxlen=MOST_PAST)
        self._found: list[Collision] = []
        self._captures = ""  # which thread records calls for a graph, of which none is made

    # ------------------------------------------------------------ calls

    def call(self, thread: str, text: str) -> None:
        """A thread of the host begins a call."""
        matched = NAME.match(text)
        if matched is None or self.is_off:
            return
        name = matched[0]
        if UNKNOWN.match(name) or (self._captures not in ("", thread) and name.startswith("hip")):
            self.is_off = True
        if name.startswith("hipStreamBeginCapture"):
            self._captures = thread
        if self._captures:
            self._captures = "" if name == "hipStreamEndCapture" else thread
            return
        found = STREAM.search(text)
        stream = found[1] if found else NULL
        if name.startswith("hip") and found:
            self._of_thread[thread] = stream
        if created := CREATE.match(text):
            self._created.append((int(created[1], 16), int(created[2] or 0)))
        elif name == "hipEventRecord" and (event := EVENT.search(text)):
            self._events[event[1]] = self._all() if stream == NULL else dict(self._stream(stream))
        elif name == "hipStreamWaitEvent" and (event := EVENT.search(text)):
            _join(self._stream(stream), self._events.get(event[1], {}))
        elif name in ("hipEventSynchronize", "hipEventQuery") and (event := EVENT.search(text)):
            _join(self._host, self._events.get(event[1], {}))
        elif name in ("hipStreamSynchronize", "hipStreamQuery", "hipStreamDestroy"):
            _join(self._host, self._all() if stream == NULL else self._stream(stream))
        elif name in CALLBACKS:
            _join(self._host, self._all() if stream == NULL else self._stream(stream))
        elif name in WAITS:
            _join(self._host, self._all())
        elif copied := COPY.match(text):
            self._copy(name, stream, copied)
        elif name.startswith("hipMemset") and not found:
            self._of_thread[thread] = NULL

    def _copy(self, name: str, stream: str, copied: re.Match[str]) -> None:
        to, source, size = int(copied[2], 16), int(copied[3], 16), int(copied[4])
        ranges = sorted(((source, source + size, False), (to, to + size, True)))
        columns = [list(column) for column in zip(*ranges)]
        touches = Touches(columns[0], columns[1], columns[2], [-1, -1], lambda place: "")
        work = self._work(stream, name)._replace(touches=touches)
        self._ended(work)
        if not copied[1]:
            _join(self._host, work.clock)

    def dispatch(self, thread: str) -> Work | None:
        """A kernel's packet was written to a queue by a call of this thread."""
        return None if self.is_off else self._work(self._of_thread.get(thread, NULL), "")

    def touched(self, work: Work, entry: int, touches: Touches) -> list[Collision]:
        """A launch has ended. Returns what was found until now."""
        if not self.is_off:
            self._ended(work._replace(entry=entry, touches=touches))
        found, self._found = self._found, []
        return found

    # ------------------------------------------------------------ order

    def _stream(self, name: str) -> Clock:
        return self._known.setdefault(name, {})

    def _all(self) -> Clock:
        return dict(self._count)

    def _work(self, stream: str, what: str) -> Work:
        clock = dict(self._host)
        _join(clock, self._stream(stream))
        if stream == NULL:
            for name, known in self._known.items():
                if not self._is_non_blocking(name):
                    _join(clock, known)
        elif not self._is_non_blocking(stream):
            _join(clock, self._stream(NULL))
        number = self._count[stream] = clock[stream] = self._count.get(stream, 0) + 1
        self._known[stream] = clock
        return Work(stream, number, dict(clock), what)

    def _is_non_blocking(self, stream: str) -> bool:
        """Whether it surely is: the variable that it was created into still has it."""
        if stream == NULL:
            return False
        known = self._non_blocking.get(stream)
        if known is None:
            known = self._non_blocking[stream] = any(
                flags & 1 and self._word(at) == int(stream, 16) for at, flags in self._created
            )
        return known

    def _word(self, address: int) -> int:
        try:
            found: tuple[int] = struct.unpack("<Q", self.read(address, 8))
        except Exception:  # the program has unmapped it meanwhile, or it ends
            return 0
        return found[0]

    def _ended(self, work: Work) -> None:
        assert work.touches is not None
        for before in self._past:
            if before.number <= work.clock.get(before.stream, 0) or work.number <= before.clock.get(
                work.stream, 0
            ):
                continue
            found = next(self._collisions(before, work), None)
            if found is not None:
                self._found.append(found)
        self._past.append(work)

    def _collisions(self, before: Work, work: Work) -> Iterator[Collision]:
        mine, its = work.touches, before.touches
        assert mine is not None and its is not None
        for n, other in overlaps(mine, its):
            if mine.is_write[n] or its.is_write[other]:
                yield Collision(max(mine.low[n], its.low[other]), before, work, (other, n))


def _join(clock: Clock, other: Clock) -> None:
    for name, number in other.items():
        clock[name] = max(clock.get(name, 0), number)
