"""Transforms of a kernel's ranges, which come before all others: two become one, one becomes longer, a sum becomes two.

In       a nest whose loops are still as they began
Out      a nest anew, over a graph with other ranges and the same results
Next     nest.py, padding.py (what lies beyond the end), loop_nest.py (all transforms)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.nest import Nest, ScheduleError
from hcq.ir.affine import floordiv, modulo
from hcq.ir.node import Node, index, substitute, toposort
from hcq.ir.op import Op
from hcq.ir.symbolic import replace

if TYPE_CHECKING:
    from typing_extensions import Self


class Ranges(Nest):
    """merge, join, fuse, pad, flip."""

    def merge(self, outer: str, inner: str) -> Self:
        """Two untouched neighbouring ranges become one of n_outer * n_inner values, named as the inner one.

        They must be walked as one by every index: wherever the inner range counts c, the outer one counts c * n_inner.
        Raises ScheduleError where some index or condition tells the two apart.
        """
        a, b = self.loop(outer).axis, self.loop(inner).axis
        if any(not choice.startswith(("merge", "join")) for choice in self.choices):
            raise ScheduleError(f"merge {outer} {inner}: merges come before all other transforms")
        if not self.can_merge(a, b):
            raise ScheduleError(f"merge {outer} {inner}: an index or a condition tells the two ranges apart")
        merged = Node(Op.RANGE, b.range.dtype, (index(a.size * b.size),), b.range.arg)
        mapping = {a.range: index(0), b.range: merged}
        reduces = {}
        for reduce in self.reduces:  # a REDUCE names its ranges: drop the outer one there
            if a.range in reduce.src:
                kept = tuple(r for r in reduce.src if r is not a.range)
                reduces[reduce] = reduce.replace(src=kept)
        if reduces:
            mapping[a.range] = a.range
            self.sink = substitute((self.sink,), reduces)[0]
            mapping[a.range] = index(0)
        self.sink = substitute((self.sink,), mapping)[0]
        self._begin()
        self.choices.append(f"merge {outer} {inner}")
        return self

    def can_merge(self, a: Axis, b: Axis) -> bool:
        """True when `a` then `b` is one walk for every index, condition and reduction."""
        if a is b or a.is_reduce != b.is_reduce or a.is_ordered or b.is_ordered or 0 in (a.size, b.size):
            return False
        for reduce in self.reduces:
            if (a.range in reduce.src) != (b.range in reduce.src):
                return False
        for node, mask in self.masks.items():
            if not mask & (a.bit | b.bit) or node.op is Op.RANGE:
                continue
            for source in node.src[1:] if node.op is Op.REDUCE else node.src:
                if node.op is Op.REDUCE or source.op in (Op.PARAM,):
                    continue
                if not self.affine.is_index(source) or self.affine.is_inner(node, source):
                    continue
                form = self.affine.of(source)
                if form.coefficient(a.range) != form.coefficient(b.range) * b.size:
                    return False
        return True

    def join(self, outer: str, inner: str) -> Self:
        """Two untouched ranges, neighbours or not, are counted as one: `outer` is its quotient by the size of `inner`,
        `inner` its remainder.

        What `merge` does where an index tells the two apart. Raises ScheduleError for an ordered range, for an output
        and a reduced one, for two that are not reduced together, and after other transforms than merges and joins.
        """
        a, b, text = self.loop(outer).axis, self.loop(inner).axis, f"join {outer} {inner}"
        if any(not choice.startswith(("merge", "join")) for choice in self.choices):
            raise ScheduleError(f"{text}: only merges come before")
        if a is b or a.is_reduce != b.is_reduce or a.is_ordered or b.is_ordered or 0 in (a.size, b.size):
            raise ScheduleError(f"{text}: the ranges are not two outputs, or two of one reduction")
        if any((a.range in node.src[1:]) != (b.range in node.src[1:]) for node in self.reduces):
            raise ScheduleError(f"{text}: a reduction is over one of the two alone")
        both = Node(Op.RANGE, b.range.dtype, (index(a.size * b.size),), b.range.arg)
        made: dict[Node, Node] = {}
        for node in toposort((self.sink,)):
            src = tuple([made[source] for source in node.src])
            if node.op is Op.REDUCE and a.range in node.src[1:]:
                src = (src[0], *[both if r is b.range else r for r in node.src[1:] if r is not a.range])
            made[node] = node if src == node.src else node.replace(src=src)
        mapping = {a.range: floordiv(both, b.size), b.range: modulo(both, b.size)}
        self.sink = replace((made[self.sink],), mapping)[0]
        self._begin()
        self.choices.append(text)
        return self

    def fuse(self, name: str, into: str) -> Self:
        """Walk two untouched ranges of one size as one, `into`: what both read is read once, and kept.

        So a row that is reduced, and then stored or reduced again, stays on the chip. For that all steps of the range
        are made at once: they are threads, lanes and written out; linearize refuses a loop. Raises ScheduleError for
        ranges of two sizes, for ordered ones, for two whose places some value tells apart, for one along which a
        reduction has results and one that is walked for it, and after other transforms than merges.
        """
        a, b, text = self.loop(name).axis, self.loop(into).axis, f"fuse {name} {into}"
        if any(not choice.startswith(("merge", "join", "fuse")) for choice in self.choices):
            raise ScheduleError(f"{text}: only merges come before")
        if a is b or a.size != b.size or a.is_ordered or b.is_ordered:
            raise ScheduleError(f"{text}: the ranges are not two of one size, or are ordered")
        if self.needs_both(a, b):
            raise ScheduleError(f"{text}: some value needs both")
        if self._differs_inside(a, b) or self._differs_inside(b, a):
            raise ScheduleError(
                f"{text}: a reduction that walks one of them makes a result for each place of the other"
            )
        self.sink = substitute((self.sink,), {a.range: b.range})[0]
        self.whole.add(b.name)
        self._begin()
        self.choices.append(text)
        return self

    def _differs_inside(self, place: Axis, walked: Axis) -> bool:
        """Whether some reduction has a result for each place of a range, and the other one is walked for it.

        What is stored along a range that is walked for something else, too, would be made inside of that walk.
        """
        if not walked.is_reduce:
            return False
        for node in self.reduces:
            if self.masks[node] & place.bit and not place.is_reduce:
                return True
            if self.masks[node] & place.bit and any(
                inner.op is Op.REDUCE and walked.range in inner.src[1:] for inner in toposort(node.src[:1])
            ):
                return True
        return False

    def pad(self, name: str, multiple: int) -> Self:
        """Make an untouched range longer, to a multiple: beyond its end nothing is read, added or stored.

        Raises ScheduleError for an ordered range, and after transforms other than merges and pads.
        """
        text, axis = f"pad {name} {multiple}", self.loop(name).axis
        if any(not choice.startswith(("merge", "join", "fuse", "pad")) for choice in self.choices):
            raise ScheduleError(f"{text}: pads come before all other transforms but merges and fuses")
        if multiple < 1 or (axis.is_ordered and not axis.is_scanned):
            raise ScheduleError(
                f"{text}: {'the multiple must be at least 1' if multiple < 1 else 'it is ordered'}"
            )
        size = -(-axis.size // multiple) * multiple
        if size != axis.size:
            from hcq.compiler.loops.padding import padded

            self.sink = padded(self.sink, axis.range, size)
            self._begin()
        self.choices.append(text)
        return self

    def flip(self, load: int) -> Self:
        """Take a factor of 8 bits with the other sign; a sum over ranges of its own, the last ones, puts that right.

        Raises ScheduleError for what is no factor of a sum of products in int32, and after other transforms than
        merges and pads.
        """
        text = f"flip {load}"
        if any(not choice.startswith(("merge", "join", "fuse", "pad")) for choice in self.choices):
            raise ScheduleError(f"{text}: only merges, fuses and pads come before")
        from hcq.compiler.loops.flipping import flipped

        made = flipped(self.sink, self.loads[load]) if 0 <= load < len(self.loads) else None
        if made is None:
            raise ScheduleError(f"{text}: it is no factor of 8 bits of one sum of products in int32")
        self.sink = made
        self._begin()
        self.choices.append(text)
        return self
