"""Dependences: the order that recorded commands must keep, because of the memory that they read and write.

In       commands, and for a dispatch which of its arguments it reads and writes
Out      Dependences: for each command the earlier ones that it depends on, and the smallest set that implies the rest
Next     hardware_queues.py (uses them), hcq/graph.py (records), rules/order.py (checks the order, by its own analysis)

Two commands are independent when they share no byte, or only read the bytes that they share. Ranges of addresses are
compared, so overlapping views and buffers are found. A command with unknown effects keeps its place among all others:
a signal, a wait, a timestamp, a barrier, and a program that was loaded without `access` for its arguments.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hcq import command


class Use(NamedTuple):
    """Bytes that a command reads or writes: addresses, or those of a place that each replay names anew.

    place   None, or the key of a symbol: then the addresses count from its beginning
    """

    low: int
    high: int
    is_write: bool
    place: Any = None


Uses = Sequence[Use] | None  # None: nobody knows


def uses_of(what: command.Command) -> Uses:
    """What a command that is no dispatch reads and writes."""
    if isinstance(what, command.Copy):
        read = Use(what.src, what.src + what.size_bytes, False)
        return read, Use(what.dst, what.dst + what.size_bytes, True)
    if isinstance(what, command.Fill):
        return (Use(what.dst, what.dst + what.size_bytes, True),)
    return None


class Dependences:
    """Of numbered commands, in the order in which they were recorded.

    needs     for each those before it that it must come after, without those that others of them imply
    behind    for each, as bits of a number, all that come before it whichever way
    """

    def __init__(self, uses: Sequence[Uses]) -> None:
        self.needs: list[tuple[int, ...]] = []
        self.behind: list[int] = []
        touched: dict[Any, _Touched] = {}
        fence = -1  # the last command that is ordered with everything
        for number, own in enumerate(uses):
            if own is None:
                found = set(range(fence + 1, number)) or ({fence} if fence >= 0 else set())
                fence = number
                touched = {}
            else:
                found = {fence} if fence >= 0 else set()
                for use in own:
                    map_of = touched.setdefault(use.place, _Touched())
                    found.update(map_of.before(use))
                for use in own:
                    touched[use.place].add(use, number)
            self._add(number, found)

    def _add(self, number: int, found: set[int]) -> None:
        """Keep of those that it needs the ones that no other one comes after."""
        behind = 0
        kept = []
        for one in sorted(found, reverse=True):
            if not behind >> one & 1:
                kept.append(one)
                behind |= self.behind[one] | 1 << one
        self.needs.append(tuple(reversed(kept)))
        self.behind.append(behind)

    def __len__(self) -> int:
        return len(self.needs)

    def __str__(self) -> str:
        return "\n".join(
            f"{number:4} after {', '.join(map(str, few))}" for number, few in enumerate(self.needs)
        )


class _Touched:
    """Who last wrote each byte of some memory, and who has read it since: pieces without gaps or overlaps, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: list[tuple[int, int, tuple[int, ...]]] = []  # (end, writer or -1, readers)

    def before(self, use: Use) -> Iterator[int]:
        """Whoever must be done before this use."""
        for at in self._overlapping(use.low, use.high):
            _, writer, readers = self._pieces[at]
            if writer >= 0:
                yield writer
            if use.is_write:
                yield from readers

    def add(self, use: Use, number: int) -> None:
        """This command uses these bytes now."""
        low, high = use.low, use.high
        if low >= high:
            return
        self._cut(low)
        self._cut(high)
        found = self._overlapping(low, high)
        starts: list[int] = []
        pieces: list[tuple[int, int, tuple[int, ...]]] = []
        if use.is_write:
            starts, pieces = [low], [(high, number, ())]
        else:
            at = low
            for index in found:
                start, (end, writer, readers) = self._starts[index], self._pieces[index]
                if at < start:
                    starts.append(at)
                    pieces.append((start, -1, (number,)))
                starts.append(start)
                pieces.append((end, writer, (*readers, number) if readers[-1:] != (number,) else readers))
                at = end
            if at < high:
                starts.append(at)
                pieces.append((high, -1, (number,)))
        self._starts[found.start : found.stop] = starts
        self._pieces[found.start : found.stop] = pieces

    def _overlapping(self, low: int, high: int) -> range:
        if low >= high:
            return range(0)
        first = bisect.bisect_right(self._starts, low) - 1
        if first < 0 or self._pieces[first][0] <= low:
            first += 1
        return range(first, max(first, bisect.bisect_left(self._starts, high)))

    def _cut(self, at: int) -> None:
        """Let no piece go across an address."""
        index = bisect.bisect_right(self._starts, at) - 1
        if index < 0 or self._starts[index] == at or self._pieces[index][0] <= at:
            return
        end, writer, readers = self._pieces[index]
        self._pieces[index] = at, writer, readers
        self._starts.insert(index + 1, at)
        self._pieces.insert(index + 1, (end, writer, readers))
