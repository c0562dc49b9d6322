"""What HIP's runtime logs of a program's calls: which memory hipFreeAsync has given back before a kernel is launched,
and what orders its launches.

In       the file that AMD_LOG_LEVEL_FILE names in the program's environment (hcq/emu/amd/kfd.py asks for it)
Out      `given_back`: the pointers that were freed when a dispatch was written to its queue; `touched`: races of works
Changes  itself: how far it has read
Next     sanitizer.py (who asks), stream_order.py (the order), hcq/emu/supervisor/supervisor.py (who sets the
         program's environment)
Source   libamdhip64 5.2, its own log with AMD_LOG_LEVEL=4 and AMD_LOG_MASK=9 (calls; packets of queues)

The pools behind hipMallocAsync keep what was freed, so no call of the kernel driver shows it. The log has each call but
a program's first before it is made, and each dispatch, by the address of its arguments. Whoever launches a kernel after
hipFreeAsync, on that stream or on another one, has nothing that orders it before the memory is free. Where the runtime
hands memory out again its log does not say: all that was freed and is large enough for what was asked for counts as
handed out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from hcq.events.kernel_touches import Touches
from hcq.observe.foreign.stream_order import Collision, StreamOrder, Work

FILE = b"AMD_LOG_LEVEL_FILE="
LINE = re.compile(r":\d:.*? us: +(\d+) *: +\[tid:0x([0-9a-f]+)\] (?:\x1b\[\d+m)?(.*)")
FREE = re.compile(r"hipFreeAsync \( (?:0x)?([0-9a-f]+),")
ALLOCATE = re.compile(r"hipMalloc(?:FromPool)?Async \( (?:0x)?[0-9a-f]+, (\d+),")
DISPATCH = re.compile(r".*Dispatch Header.*kernarg_address=0x([0-9a-f]+)")
MOST_DISPATCHES = 1 << 16  # of which it is remembered what was freed before them


class RuntimeLog:
    """Of one process.

    size_of  how many bytes the buffer has that begins at an address; 0: there is none
    order    that of its works, where races are looked for
    """

    def __init__(self, pid: int, size_of: Callable[[int], int], order: StreamOrder | None) -> None:
        self.pid, self.size_of, self.order = pid, size_of, order
        self._works: dict[int, Work] = {}  # by their arguments
        self.path = _path_of(pid)
        self._at, self._rest = 0, b""
        self._freed: dict[int, int] = {}  # address -> bytes
        self._before: dict[int, tuple[int, ...]] = {}  # a dispatch, by its arguments -> what was freed

    def given_back(self, arguments: int) -> tuple[int, ...]:
        """Where the memory begins that was freed before the dispatch with these arguments."""
        if self.path is None:
            return ()
        self._read()
        return self._before.get(arguments, ())

    def touched(self, arguments: int, entry: int, touches: Touches) -> list[Collision]:
        """The launch with these arguments has ended, and has touched this. Returns what it races with."""
        if self.path is None or self.order is None:
            return []
        self._read()
        work = self._works.pop(arguments, None)
        return [] if work is None else self.order.touched(work, entry, touches)

    def _read(self) -> None:
        assert self.path is not None
        try:
            with self.path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
        except OSError:
            return
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            if found := LINE.match(line.decode("ascii", "replace")):
                self._take(int(found[1]), found[2], found[3])

    def _take(self, pid: int, thread: str, text: str) -> None:
        if self.order is not None and ": Returned" not in text and DISPATCH.match(text) is None:
            self.order.call(thread, text)
        if pid != self.pid:  # two processes write over each other's lines
            self.path = None
            self._before.clear()
            self._works.clear()
        elif found := FREE.match(text):
            address = int(found[1], 16)
            if size := self.size_of(address):
                self._freed[address] = size
        elif found := ALLOCATE.match(text):
            wanted = int(found[1])
            self._freed = {address: size for address, size in self._freed.items() if size < wanted}
        elif found := DISPATCH.match(text):
            if len(self._before) >= MOST_DISPATCHES:
                self._before.clear()
                self._works.clear()
            arguments = int(found[1], 16)
            self._before[arguments] = tuple(self._freed)
            work = self.order.dispatch(thread) if self.order is not None else None
            if work is not None:
                self._works[arguments] = work


def _path_of(pid: int) -> Path | None:
    """The file that a process logs to; None where it does not."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((Path(one[len(FILE) :].decode()) for one in words if one.startswith(FILE)), None)
