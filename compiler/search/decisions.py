"""Decisions: a schedule as data to edit: for each range its loops and who runs them, and what is staged where.

In       a loop nest with its schedule
Out      `Decisions`; the text of a schedule that makes the same nest
Next     moves.py (who edits), ../loops/loop_nest.py (the transforms)

The text of a schedule is hard to edit: without a split, all later loops have other names. Here the loops of a range are
a list, and names are given when it is written: the outermost loop of r0 is r0, those inside it are r0.1, r0.2, ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import TRANSFORMS, LoopNest

RANGE_VERBS = ("merge", "join", "fuse", "flip")  # what changes the ranges themselves
WORDS = {  # the transforms that this file knows, and how many words they take: one that has grown a word is unknown
    **dict.fromkeys(("merge", "join", "fuse", "pad", "split", "thread", "dot", "order", "stage", "box"), 2),
    **dict.fromkeys(("flip", "unroll", "vectorize", "parallel"), 1),
    "pipeline": 3,
    "matrix": 4,
    "collect": 0,
}
LAST_VERBS = ("collect",)  # what names no loop


@dataclass(frozen=True)
class Level:
    """One loop of a range.

    size    steps; of the outermost loop of a range 0: as many as are left
    kind    serial, group, thread, unroll, vector, dot, or matrix: what one instruction of a matrix unit does
    digit   of kind thread: which digit of a thread's number counts it
    """

    size: int
    kind: str = "serial"
    digit: int = -1


@dataclass(frozen=True)
class Decisions:
    """A schedule. Loops are named by range and place: r0, r0.1, r0.2, from the outermost inwards.

    ranges       the items that change ranges, as text
    pads         range -> multiple
    axes         range -> its loops, the outermost first
    reduced      the ranges that are reduced
    order        loops that are counted, outermost first: groups, then the others
    unit         the instruction that does the loops of kind matrix or dot
    unit_axes    the ranges of a matrix unit: m, n, k
    stages       verb, load, loop or "-"
    pipelines    loop, tiles, who copies ("" for the threads themselves)
    last         items that name no loop
    """

    ranges: tuple[str, ...]
    pads: tuple[tuple[str, int], ...]
    axes: tuple[tuple[str, tuple[Level, ...]], ...]
    reduced: frozenset[str]
    order: tuple[str, ...]
    unit: str = ""
    unit_axes: tuple[str, ...] = ()
    stages: tuple[tuple[str, int, str], ...] = ()
    pipelines: tuple[tuple[str, int, str], ...] = ()
    last: tuple[str, ...] = ()

    def levels(self, axis: str) -> tuple[Level, ...]:
        """The loops of a range."""
        return dict(self.axes)[axis]

    def with_levels(self, axis: str, levels: tuple[Level, ...]) -> Decisions:
        """The same with other loops for one range. What names loops that are gone is left out."""
        axes = tuple((name, levels if name == axis else old) for name, old in self.axes)
        made = replace(self, axes=axes, pads=_pads(self.pads, axes))
        plain = made.plain_order()
        counted = set(plain)
        kept = [name for name in self.order if name in counted]
        missing = [name for name in plain if name not in kept]
        order = tuple(kept) if not missing else _filled(kept, plain)
        stages = tuple(one for one in self.stages if one[2] == "-" or one[2] in counted)
        staged = {at for _, _, at in stages}
        pipelines = tuple(one for one in self.pipelines if one[0] in staged)
        return replace(made, order=made.groups_first(order), stages=stages, pipelines=pipelines)

    def kind_of(self, name: str) -> str:
        """Who runs the loop of that name."""
        axis, place = place_of(name)
        return self.levels(axis)[place].kind

    def groups_first(self, order: tuple[str, ...]) -> tuple[str, ...]:
        """Counted loops in an order that the transforms can make: groups, outputs, reductions."""

        def rank(name: str) -> int:
            return 0 if self.kind_of(name) == "group" else 2 if place_of(name)[0] in self.reduced else 1

        return tuple(sorted(order, key=rank))

    def plain_order(self) -> tuple[str, ...]:
        """The counted loops as splitting leaves them: those of outputs, then those of reductions."""
        names = []
        for is_reduced in (False, True):
            for axis, levels in self.axes:
                if (axis in self.reduced) is is_reduced:
                    places = [i for i, level in enumerate(levels) if level.kind in ("serial", "group")]
                    names += [loop_name(axis, i) for i in places]
        return tuple(names)


def loop_name(axis: str, place: int) -> str:
    """The name of a loop by its place, 0 for the outermost."""
    return f"{axis}.{place}" if place else axis


def place_of(name: str) -> tuple[str, int]:
    """The inverse of `loop_name`."""
    axis, _, place = name.partition(".")
    return axis, int(place or 0)


def inner_size(levels: tuple[Level, ...]) -> int:
    """Values of a range that one step of its outermost loop covers."""
    return prod(level.size for level in levels[1:])


def read(nest: LoopNest) -> Decisions | None:
    """What was decided about a nest; None where a transform was used that this file does not know."""
    verbs = [choice.split()[0] for choice in nest.choices]
    if any(len(TRANSFORMS[verb][1].split()) != WORDS.get(verb) for verb in verbs):
        return None
    names: dict[Loop, str] = {}
    axes, own_digits = [], 0
    if nest.unit is not None:
        own_digits = len(nest.unit.unit.digits)
    for axis in nest.axes:
        loops, unit_size = _before_unit(nest, axis)
        levels = []
        for place, loop in enumerate(loops):
            names[loop] = loop_name(axis.name, place)
            if loop.kind == "thread" and loop.digit < own_digits:
                return None  # a loop in the threads of a matrix unit
            levels.append(
                Level(
                    loop.size if place else 0, loop.kind, loop.digit - own_digits if loop.digit >= 0 else -1
                )
            )
        if unit_size:
            levels.append(Level(unit_size, "matrix"))
        axes.append((axis.name, tuple(levels)))
    unit = ""
    unit_axes: tuple[str, ...] = ()
    if nest.unit is not None:
        unit = nest.unit.unit.name
        unit_axes = tuple(axis.name for axis in (nest.unit.m, nest.unit.n, nest.unit.k))
    elif nest.dots is not None:
        unit = nest.dots.unit.name
    stages = []
    for stage in nest.stages:
        at = "-" if stage.at is None else names.get(stage.at, "")
        stages.append(("box" if stage.is_box else "stage", nest.loads.index(stage.load), at))
    pads = [choice.split() for choice, verb in zip(nest.choices, verbs, strict=True) if verb == "pad"]
    made = Decisions(
        ranges=tuple(choice for choice, verb in zip(nest.choices, verbs, strict=True) if verb in RANGE_VERBS),
        pads=_pads(tuple((axis, int(multiple)) for _, axis, multiple in pads), tuple(axes)),
        axes=tuple(axes),
        reduced=frozenset(axis.name for axis in nest.axes if axis.is_reduce),
        order=tuple(names[loop] for loop in nest.order),
        unit=unit,
        unit_axes=unit_axes,
        stages=tuple(stages),
        pipelines=tuple((names[loop], tiles, _copier(nest, loop)) for loop, tiles in nest.pipelined.items()),
        last=tuple(choice for choice, verb in zip(nest.choices, verbs, strict=True) if verb in LAST_VERBS),
    )
    return made


def _copier(nest: LoopNest, loop: Loop) -> str:
    """The third word of a loop's pipeline."""
    items = [choice.split() for choice in nest.choices]
    return next((words[3] for words in items if words[:2] == ["pipeline", loop.name] and len(words) > 3), "")


def _before_unit(nest: LoopNest, axis: Axis) -> tuple[list[Loop], int]:
    """The loops of a range outside a matrix unit's, and how many values the unit's have."""
    if nest.unit is None:
        return axis.loops, 0
    for dimension, mine in zip("mnk", (nest.unit.m, nest.unit.n, nest.unit.k), strict=True):
        if mine.name == axis.name:
            size = nest.unit.unit.size(dimension)
            return [loop for loop in axis.loops if loop.stride >= size], size
    return axis.loops, 0


def _pads(
    pads: tuple[tuple[str, int], ...], axes: tuple[tuple[str, tuple[Level, ...]], ...]
) -> tuple[tuple[str, int], ...]:
    """Ranges in threads or in a matrix unit divide by their inner loops; other pads stay."""
    given = dict(pads)
    made = []
    for axis, levels in axes:
        divides = any(level.kind in ("thread", "matrix") for level in levels)
        multiple = inner_size(levels) * (levels[0].size or 1) if divides else given.get(axis, 1)
        if divides and levels[0].kind in ("thread", "unroll", "vector"):
            multiple = max(multiple, given.get(axis, 1))
        if multiple > 1:
            made.append((axis, multiple))
    return tuple(made)


def write(found: Decisions) -> str:
    """The text of a schedule that makes these decisions."""
    flips = [item for item in found.ranges if item.startswith("flip")]
    items = [item for item in found.ranges if item not in flips]
    items += [f"pad {axis} {multiple}" for axis, multiple in found.pads]
    items += flips
    for axis, levels in found.axes:
        for place in range(1, len(levels)):
            items.append(f"split {loop_name(axis, place - 1)} {prod(level.size for level in levels[place:])}")
    if found.unit_axes:
        loops = [loop_name(axis, len(found.levels(axis)) - 1) for axis in found.unit_axes]
        items.append(f"matrix {' '.join(loops)} {found.unit}")
    items += _bindings(found)
    groups = [name for name in found.order if found.kind_of(name) == "group"]
    items += [f"parallel {name}" for name in groups]
    serial = [name for name in found.order if name not in groups]
    if serial != [name for name in found.plain_order() if name not in groups]:
        items.append(f"order {' '.join(serial)}")
    items += [f"{verb} {load} {at}" for verb, load, at in found.stages]
    for name, tiles, by in found.pipelines:
        items.append(f"pipeline {name}{f' {tiles}' if tiles != 2 or by else ''}{f' {by}' if by else ''}")
    return "; ".join([*items, *found.last])


def _bindings(found: Decisions) -> list[str]:
    """dot, vectorize, unroll and thread: the loops of a range from the innermost outwards, threads by their digits."""
    waiting = {
        axis: [(place, level) for place, level in enumerate(levels) if level.kind != "matrix"]
        for axis, levels in found.axes
    }
    digits = sorted({level.digit for _, levels in found.axes for level in levels if level.kind == "thread"})
    first: dict[int, str] = {}
    items, again = [], True
    while again:
        again = False
        for axis, left in waiting.items():
            while left and left[-1][1].kind not in ("serial", "group"):
                place, level = left[-1]
                name = loop_name(axis, place)
                if level.kind == "thread":
                    if level.digit in first:
                        items.append(f"thread {name} {first[level.digit]}")
                    elif level.digit == digits[len(first)]:
                        items.append(f"thread {name}")
                        first[level.digit] = name
                    else:
                        break  # another range's threads come first
                elif level.kind == "dot":
                    items.append(f"dot {name} {found.unit}")
                else:
                    items.append(f"{'vectorize' if level.kind == 'vector' else level.kind} {name}")
                left.pop()
                again = True
    return items


def _filled(kept: list[str], plain: tuple[str, ...]) -> tuple[str, ...]:
    """Loops in the order of `kept`, new ones behind the loop that they follow in the plain order."""
    order = list(kept)
    for place, name in enumerate(plain):
        if name not in order:
            before = [order.index(other) for other in plain[:place] if other in order]
            order.insert(max(before) + 1 if before else 0, name)
    return tuple(order)
