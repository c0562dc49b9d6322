"""Moves: which schedules are tried next to one that is known.

In       a lowered kernel, its target, the text of a schedule
Out      texts of schedules that differ from it in one decision, all legal, each written in one way
Next     decisions.py (what is edited), beam.py (who asks), ../loops/loop_nest.py (who says what is legal)

A move edits `Decisions`: a loop gets twice or half as many steps, a factor of two goes to the neighbouring loop, a loop
appears, disappears, or is run by somebody else; two loops change places; a load is staged, or not, or elsewhere. What a
move makes need not be legal: the transforms refuse what is not, with the sentences that people get. A schedule with
transforms that decisions.py does not know is edited as text: its numbers double and halve, its items go one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.search.decisions import LAST_VERBS, Decisions, Level, inner_size, place_of, read, write
from hcq.compiler.target import Target
from hcq.ir.node import Node

UNROLLED = (2, 3, 4, 6, 8)
COUNTED = (4, 16, 64)  # steps of a loop that keeps operands in a cache
THREADS = (16, 32, 64)
CHUNKS = (2, 4, 16)  # steps that a group does one after another
MOST_TILES = 4  # of a pipeline
THROUGH_REGISTERS = 2  # of one on GPUs that do not copy by themselves
COPIERS = ("", "bulk", "producer")  # who copies the tiles of a pipeline
MOST_LEVELS = 6  # loops of a range
GPU_LANES = (2, 4, 8)


class Moves:
    """The neighbours of schedules of one kernel.

    lowered   the kernel after the passes
    target    what it is compiled for
    """

    def __init__(self, lowered: Node, target: Target) -> None:
        self.lowered = lowered
        self.is_gpu = target.name != "cpu"
        self.most_tiles = MOST_TILES if target.copies_ahead else THROUGH_REGISTERS
        self._sizes: dict[tuple[str, ...], dict[str, int]] = {}
        lanes = target.vector_bits // 8
        self.lanes = GPU_LANES if self.is_gpu else tuple(n for n in (4, 8, 16, 32, 64) if n <= lanes)

    def canonical(self, text: str) -> str | None:
        """A schedule as this file writes it; None where it is not legal."""
        try:
            nest = LoopNest(self.lowered).apply(text)
        except (ScheduleError, ValueError):
            return None
        found = read(nest)
        if found is None:
            return nest.choice
        written = write(found)
        return written if written == nest.choice or self._makes(written, found) else nest.choice

    def neighbours(self, text: str, rng: Random) -> Iterator[str]:
        """Legal schedules one move away, in an order drawn from `rng`."""
        tried = {text}
        made = self._edits(text)
        rng.shuffle(made)
        for edit in made:
            if edit in tried:
                continue
            tried.add(edit)
            found = self.canonical(edit)
            if found is not None and (found == edit or found not in tried):
                tried.add(found)
                yield found

    def _makes(self, text: str, found: Decisions) -> bool:
        try:
            return read(LoopNest(self.lowered).apply(text)) == found
        except (ScheduleError, ValueError):
            return False

    def _edits(self, text: str) -> list[str]:
        """Texts one move away, legal or not, in one order."""
        try:
            nest = LoopNest(self.lowered).apply(text)
        except (ScheduleError, ValueError):
            return []
        found = read(nest)
        if found is None or not self._makes(write(found), found):
            return list(dict.fromkeys(_text_edits(text)))
        moves = [
            *self._tilings(found, nest),
            *_orders(found),
            *_stagings(found, nest),
            *_pipelines(found, self.most_tiles),
            *_last(found),
        ]
        return list(dict.fromkeys(write(move) for move in moves))

    def _unpadded(self, ranges: tuple[str, ...]) -> dict[str, int]:
        """The sizes of the ranges before they are padded."""
        if ranges not in self._sizes:
            nest = LoopNest(self.lowered).apply("; ".join(ranges))
            self._sizes[ranges] = {axis.name: axis.size for axis in nest.axes}
        return self._sizes[ranges]

    # -- loops of a range -------------------------------------------------------------------------------------------

    def _tilings(self, found: Decisions, nest: LoopNest) -> Iterator[Decisions]:
        sizes = self._unpadded(found.ranges)
        ordered = {axis.name for axis in nest.axes if axis.is_ordered}
        for axis, levels in found.axes:
            if sizes[axis] < 2 or axis in ordered:
                continue
            for made in self._levels(found, axis, levels, sizes[axis]):
                if inner_size(made) < 2 * sizes[axis]:  # else most of it would be padding, or never done
                    yield found.with_levels(axis, made)
            if self.is_gpu or any(level.kind == "vector" for level in levels):
                continue
            for other, theirs in found.axes:  # lanes along another range
                if other != axis and theirs[-1].kind == "vector":
                    moved = found.with_levels(other, theirs[:-1] or (Level(0),))
                    yield moved.with_levels(
                        axis, (*levels, Level(theirs[-1].size or self.lanes[-1], "vector"))
                    )

    def _levels(
        self, found: Decisions, axis: str, levels: tuple[Level, ...], size: int
    ) -> Iterator[tuple[Level, ...]]:
        """Other loops for one range."""
        for place, level in enumerate(levels):
            before, after = levels[:place], levels[place + 1 :]
            if level.kind in ("matrix", "dot"):
                continue
            for kind in self._kinds(found, axis, place, level):
                yield (*before, kind, *after)
            if not place:
                continue
            for steps in _sizes(level):
                yield (*before, replace(level, size=steps), *after)
            yield (*before, *after)  # without it
            inner = after[0] if after else None
            if inner is not None and inner.kind not in ("matrix", "dot"):
                if level.size % 2 == 0 and level.size > 2:
                    yield (*before, _times(level, 1, 2), _times(inner, 2), *after[1:])
                if inner.size % 2 == 0 and inner.size > 2:
                    yield (*before, _times(level, 2), _times(inner, 1, 2), *after[1:])
        if levels[0].kind not in ("serial", "group"):
            yield (Level(0), replace(levels[0], size=_whole(levels, size)), *levels[1:])
            return
        if len(levels) >= MOST_LEVELS:
            return
        for place in range(1, len(levels) + 1):
            if place < len(levels) and levels[place].kind == "dot":
                continue
            for new in self._new(found, axis, place == len(levels)):
                if new.size < size:
                    yield (*levels[:place], new, *levels[place:])

    def _kinds(self, found: Decisions, axis: str, place: int, level: Level) -> Iterator[Level]:
        """The same loop, run by somebody else."""
        outside = found.levels(axis)[:place]
        if axis not in found.reduced and level.kind in ("serial", "group"):
            if all(other.kind == "group" for other in outside):
                yield replace(level, kind="serial" if level.kind == "group" else "group")
        if level.kind == "thread":
            yield Level(level.size, "unroll")
            yield Level(level.size)
        elif level.kind in ("serial", "unroll", "vector"):
            for kind in ("serial", "unroll", "vector"):
                if kind != level.kind:
                    yield replace(level, kind=kind)
            if self.is_gpu:
                yield Level(level.size, "thread", _next_digit(found))

    def _new(self, found: Decisions, axis: str, is_innermost: bool) -> Iterator[Level]:
        """A loop that is not there yet."""
        for steps in UNROLLED:
            yield Level(steps, "unroll")
        for steps in COUNTED if axis in found.reduced else CHUNKS:
            yield Level(steps)
        if is_innermost:
            for steps in self.lanes:
                yield Level(steps, "vector")
        if self.is_gpu:
            for steps in THREADS:
                yield Level(steps, "thread", _next_digit(found))


def _times(level: Level, factor: int, divisor: int = 1) -> Level:
    return replace(level, size=level.size * factor // divisor)


def _sizes(level: Level) -> Iterator[int]:
    """Other numbers of steps."""
    yield 2 * level.size
    if level.size % 2 == 0 and level.size > 2:
        yield level.size // 2
    if level.kind == "unroll" and level.size > 2:
        yield level.size - 1
    if level.kind == "unroll":
        yield level.size + 1
    if level.kind == "serial" and level.size > 4:
        yield level.size * 3 // 4
        yield level.size * 3 // 2


def _whole(levels: tuple[Level, ...], size: int) -> int:
    """Steps of an outermost loop that is written out."""
    for level in levels[1:]:
        size = -(-size // level.size)
    return size


def _next_digit(found: Decisions) -> int:
    return 1 + max((level.digit for _, levels in found.axes for level in levels), default=-1)


# -- order, staging -------------------------------------------------------------------------------------------------


def _orders(found: Decisions) -> Iterator[Decisions]:
    """Two neighbours among the loops change places."""
    for place in range(len(found.order) - 1):
        a, b = found.order[place : place + 2]
        if place_of(a)[0] != place_of(b)[0]:
            yield replace(found, order=(*found.order[:place], b, a, *found.order[place + 2 :]))


def _stagings(found: Decisions, nest: LoopNest) -> Iterator[Decisions]:
    """A load is staged, or not, or at another loop."""
    staged = {load: (verb, at) for verb, load, at in found.stages}
    for number, load in enumerate(nest.loads):
        rest = tuple(one for one in found.stages if one[1] != number)
        if number in staged:
            yield _staged(found, rest)
        if nest.never_staged(load) or nest.affine.is_index(load):
            continue
        for at in ("-", *found.order):
            for verb in ("stage", "box"):
                if staged.get(number) != (verb, at):
                    yield _staged(found, (*rest, (verb, number, at)))


def _staged(found: Decisions, stages: tuple[tuple[str, int, str], ...]) -> Decisions:
    kept = {at for _, _, at in stages}
    return replace(found, stages=stages, pipelines=tuple(one for one in found.pipelines if one[0] in kept))


def _pipelines(found: Decisions, most: int) -> Iterator[Decisions]:
    """What is staged in a reduction is copied a step ahead, or more, or not."""
    tiles = {at: (count, by) for at, count, by in found.pipelines}
    for at in dict.fromkeys(
        at for _, _, at in found.stages if at != "-" and place_of(at)[0] in found.reduced
    ):
        others = tuple(one for one in found.pipelines if one[0] != at)
        if at in tiles:
            yield replace(found, pipelines=others)
        for count in range(1, most + 1):
            for by in COPIERS:
                if (count, by) != tiles.get(at):
                    yield replace(found, pipelines=(*others, (at, count, by)))


def _last(found: Decisions) -> Iterator[Decisions]:
    """Items that name no loop, or not."""
    for verb in LAST_VERBS:
        others = tuple(item for item in found.last if item != verb)
        yield replace(found, last=others if verb in found.last else (*others, verb))


# -- schedules as text ----------------------------------------------------------------------------------------------


def _text_edits(text: str) -> Iterator[str]:
    """Items without one of them; numbers twice and half as large."""
    items = [item.strip() for item in text.split(";") if item.strip()]
    for place, item in enumerate(items):
        before, after = items[:place], items[place + 1 :]
        yield "; ".join([*before, *after])
        words = item.split()
        for at, word in enumerate(words[1:], 1):
            if word.isdecimal():
                for number in (2 * int(word), int(word) // 2):
                    if number:
                        changed = " ".join([*words[:at], str(number), *words[at + 1 :]])
                        yield "; ".join([*before, changed, *after])
