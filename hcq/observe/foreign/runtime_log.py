"""What HIP's runtime logs of a program's calls: which memory hipFreeAsync has given back before a kernel is launched.

In       the file that AMD_LOG_LEVEL_FILE names in the program's environment (hcq/emu/amd/kfd.py asks for it)
Out      `given_back`: the pointers that were freed when a dispatch was written to its queue
Changes  itself: how far it has read
Next     sanitizer.py (who asks), hcq/emu/supervisor/supervisor.py (who sets the program's environment)
Source   libamdhip64 5.2, its own log with AMD_LOG_LEVEL=4 and AMD_LOG_MASK=9 (calls; packets of queues)

The pools behind hipMallocAsync keep what was freed, so no call of the kernel driver shows it. The log has each call
before it is made, and each dispatch, by the address of its arguments. Whoever launches a kernel behind hipFreeAsync, on that
stream or on another one, has nothing that orders it before the memory is free. Where the runtime hands memory out again
its log does not say: all that was freed and is large enough for what was asked for counts as handed out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

FILE = b"AMD_LOG_LEVEL_FILE="
LINE = re.compile(r":\d:.*? us: +(\d+): +\[tid:0x[0-9a-f]+\] (?:\x1b\[\d+m)?(.*)")
FREE = re.compile(r"hipFreeAsync \( (?:0x)?([0-9a-f]+),")
ALLOCATE = re.compile(r"hipMalloc(?:FromPool)?Async \( (?:0x)?[0-9a-f]+, (\d+),")
DISPATCH = re.compile(r".*Dispatch Header.*kernarg_address=0x([0-9a-f]+)")
MOST_DISPATCHES = 1 << 16  # of which it is remembered what was freed before them


class RuntimeLog:
    """Of one process. size_of: how many bytes the buffer has that begins at an address; 0: there is none."""

    def __init__(self, pid: int, size_of: Callable[[int], int]) -> None:
        self.pid, self.size_of = pid, size_of
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
                self._take(int(found[1]), found[2])

    def _take(self, pid: int, text: str) -> None:
        if pid != self.pid:  # two processes write over each other's lines
            self.path = None
            self._before.clear()
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
            self._before[int(found[1], 16)] = tuple(self._freed)


def _path_of(pid: int) -> Path | None:
    """The file that a process logs to; None where it does not."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((Path(one[len(FILE) :].decode()) for one in words if one.startswith(FILE)), None)
