"""Transforms that say who runs the steps of a loop: a loop itself, groups, threads, lanes, or nobody.

In       a nest
Out      the nest with a loop split, bound or in another place
Next     loop.py (the kinds of loops), nest.py, loop_nest.py (all transforms)
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.nest import Nest, ScheduleError

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_COPIES = 512  # written-out copies of a loop body; more than this is a mistake, not a speed-up
MAX_THREADS = 1024  # of a group: what every GPU takes


class Binding(Nest):
    """split, unroll, vectorize, parallel, thread, order."""

    def split(self, name: str, factor: int) -> Self:
        """`name` (n steps) becomes `name` (ceil(n / factor) steps) around a new loop of `factor` steps.

        Raises ScheduleError for a loop that is bound, and for a factor that does not divide it where it is not the
        outermost loop of its range.
        """
        loop = self.loop(name)
        axis = loop.axis
        if axis.threads and loop.size % factor:
            raise ScheduleError(
                f"split {name} {factor}: {axis.name} is shared among threads and has no partial step; "
                f"{loop.size} steps are not a multiple of {factor}"
            )
        if factor < 1:
            raise ScheduleError(f"split {name} {factor}: the factor must be at least 1")
        if loop.kind != "serial":
            raise ScheduleError(
                f"split {name} {factor}: the loop is already bound ({loop.kind}); split it before"
            )
        if loop.size % factor and axis.loops[0] is not loop:
            raise ScheduleError(
                f"split {name} {factor}: {loop.size} steps are not a multiple of {factor}, and only the outermost "
                f"loop of a range may end in a partial step; split {axis.name} in another order"
            )
        axis.splits += 1
        inner = Loop(f"{axis.name}.{axis.splits}", axis, factor, loop.stride)
        loop.size = -(-loop.size // factor)
        loop.stride *= factor
        axis.loops.insert(axis.loops.index(loop) + 1, inner)
        self.order.insert(self.order.index(loop) + 1, inner)
        self.choices.append(f"split {name} {factor}")
        return self

    def unroll(self, name: str) -> Self:
        """Write every step of the loop out.

        Raises ScheduleError where a loop inside it, in its range, is not written out, or copies exceed MAX_COPIES.
        """
        return self._write_out(name, "unroll")

    def vectorize(self, name: str) -> Self:
        """The steps of the loop become the lanes of vectors: the innermost loop of its range.

        Raises ScheduleError for lanes that are no power of two, and for two ranges in lanes where some value depends
        on both (a row's sum and what is stored along the row may be).
        """
        loop = self.loop(name)
        if loop.axis.loops[-1] is not loop:
            raise ScheduleError(f"vectorize {name}: lanes must be the innermost loop of {loop.axis.name}")
        for axis in self.axes:
            for other in axis.loops:
                is_apart = self.is_walked(axis, loop.axis) or self.is_walked(loop.axis, axis)
                if other.kind == "vector" and self.needs_both(axis, loop.axis) and not is_apart:
                    raise ScheduleError(
                        f"vectorize {name}: {other.name} is in lanes already, and some value needs both"
                    )
        return self._write_out(name, "vector")

    def _write_out(self, name: str, kind: str) -> Self:
        verb = "vectorize" if kind == "vector" else kind
        loop = self.loop(name)
        if kind == "vector" and loop.size & (loop.size - 1):
            raise ScheduleError(f"vectorize {name}: {loop.size} lanes are not a power of two; split it first")
        if loop.kind != "serial":
            raise ScheduleError(f"{verb} {name}: the loop is already bound ({loop.kind})")
        if loop.axis.is_ordered and not loop.axis.is_scanned:
            raise ScheduleError(
                f"{verb} {name}: {loop.axis.name} is ordered, its steps must run one after another"
            )
        inside = loop.axis.loops[loop.axis.loops.index(loop) + 1 :]
        if any(other.kind in ("serial", "group") for other in inside):
            raise ScheduleError(f"{verb} {name}: write out the loops inside it first")
        copies = loop.size * self._copies(loop.axis)
        if copies > MAX_COPIES:
            raise ScheduleError(
                f"{verb} {name}: {copies} copies of the body exceed {MAX_COPIES}; split off a smaller loop first"
            )
        loop.kind = kind
        self.order.remove(loop)
        self.choices.append(f"{verb} {name}")
        return self

    def _copies(self, axis: Axis) -> int:
        """How often what differs along an axis is written out already, for other ranges that it differs along."""
        most = 1
        for mask in {mask for mask in self.masks.values() if mask & axis.bit}:
            copies = 1
            for other in self.axes:
                if other.bit & mask:
                    copies *= prod(l.size for l in other.loops if l.kind == "unroll" and not l.is_held)
            most = max(most, copies)
        return most

    def parallel(self, name: str) -> Self:
        """Each step of the loop is one group, and groups run on any thread in any order.

        They are numbered in the order of these transforms, the last loop's fastest: a GPU begins its blocks so, and
        what blocks of neighbouring numbers share is in its cache. Raises ScheduleError for a reduction, an ordered
        range, and a loop that is not the outermost of its range, nor inside of groups alone in one that is whole.
        """
        loop = self.loop(name)
        if loop.axis.is_reduce or loop.axis.is_ordered:
            what = "a reduction" if loop.axis.is_reduce else "ordered"
            raise ScheduleError(
                f"parallel {name}: {loop.axis.name} is {what}, its steps depend on each other"
            )
        if loop.kind != "serial":
            raise ScheduleError(f"parallel {name}: the loop is already bound ({loop.kind})")
        outside = loop.axis.loops[: loop.axis.loops.index(loop)]
        if any(other.kind != "group" for other in outside):
            raise ScheduleError(f"parallel {name}: only the outermost loop of {loop.axis.name} can be groups")
        if outside and loop.axis.size % outside[0].stride:
            raise ScheduleError(f"parallel {name}: {loop.axis.name} is cut short; pad it first")
        loop.kind = "group"
        self.order.remove(loop)
        self.order.insert(len(self.groups), loop)
        self.choices.append(f"parallel {name}")
        return self

    def thread(self, name: str, like: str = "") -> Self:
        """Each step of the loop is a thread of the group; the threads of a group run at the same time.

        like   a loop in threads already, of as many steps: the same threads count both, which no value may need at once

        What differs by no thread is computed by all of them, and stored by one; a reduction's threads put their parts
        together. Raises ScheduleError for steps that are no power of two, for an ordered range, for a range that is cut
        short (`pad` it first), for a loop around one that is counted, and for more than MAX_THREADS threads.
        """
        loop, text = self.loop(name), f"thread {name} {like}".rstrip()
        axis = loop.axis
        if loop.kind != "serial":
            raise ScheduleError(f"{text}: the loop is already bound ({loop.kind})")
        if axis.is_ordered and not axis.is_scanned:
            raise ScheduleError(f"{text}: {axis.name} is ordered, its steps must run one after another")
        if axis.is_scanned and (like or not axis.may_scan(loop)):
            raise ScheduleError(
                f"{text}: a scan has threads of its own, of neighbouring loops, the inner ones bound first"
            )
        if loop.size & (loop.size - 1):
            raise ScheduleError(f"{text}: {loop.size} threads are not a power of two; split it first")
        if axis.size % axis.loops[0].stride:
            raise ScheduleError(
                f"{text}: the last step of {axis.loops[0].name} is cut short at {axis.size}; "
                f"pad {axis.name} to a multiple of {axis.loops[0].stride} first"
            )
        if any(other.kind in ("serial", "group") for other in axis.loops[axis.loops.index(loop) + 1 :]):
            raise ScheduleError(f"{text}: a loop inside it is counted; bind that first")
        loop.digit = self._digit(text, loop, like)
        loop.kind = "thread"
        self.order.remove(loop)
        self.choices.append(text)
        return self

    def _digit(self, text: str, loop: Loop, like: str) -> int:
        """The digit of a thread's number that counts a loop: a new one, or that of another loop."""
        if not like:
            if self.threads * loop.size > MAX_THREADS:
                raise ScheduleError(f"{text}: {self.threads * loop.size} threads exceed {MAX_THREADS}")
            self.digits.append(loop.size)
            return len(self.digits) - 1
        other = self.loop(like)
        if other.kind != "thread" or other.size != loop.size:
            raise ScheduleError(f"{text}: {like} is not in {loop.size} threads")
        for axis in self.axes:
            if any(mine.digit == other.digit for mine in axis.threads) and (
                axis is loop.axis or self.needs_both(axis, loop.axis)
            ):
                raise ScheduleError(f"{text}: some value needs {axis.name} and {loop.axis.name}")
        return other.digit

    def reorder(self, *names: str) -> Self:
        """The named counted loops take each other's places, in this order, outermost first.

        Raises ScheduleError where an output loop would run inside a reduction or a scan, or loops of one range change
        places.
        """
        loops = [self.loop(n) for n in names]
        if any(loop not in self.order or loop.kind != "serial" for loop in loops) or len(set(names)) < len(
            names
        ):
            raise ScheduleError(f"order {' '.join(names)}: name each serial loop once")
        places = sorted(self.order.index(loop) for loop in loops)
        order = list(self.order)
        for place, loop in zip(places, loops, strict=True):
            order[place] = loop
        seen_reduce = seen_scan = False
        for loop in order:
            if seen_reduce and not loop.axis.is_reduce:
                raise ScheduleError(
                    f"order {' '.join(names)}: output loop {loop.name} would run inside a reduction; unroll it instead"
                )
            if seen_scan and not loop.axis.is_reduce and not loop.axis.is_scanned:
                raise ScheduleError(
                    f"order {' '.join(names)}: output loop {loop.name} would run inside a scan; unroll it instead"
                )
            seen_reduce = seen_reduce or loop.axis.is_reduce
            seen_scan = seen_scan or loop.axis.is_scanned
        for axis in self.axes:
            if [loop for loop in order if loop.axis is axis] != axis.counted:
                raise ScheduleError(
                    f"order {' '.join(names)}: the loops of {axis.name} must stay outer to inner"
                )
        self.order = order
        self.choices.append(f"order {' '.join(names)}")
        return self
