"""Loop nest: the loops over a kernel's ranges, and the transforms that make a slow nest a fast one.

In       a kernel-stage graph SINK(STORE(PARAM, index, value[, valid]), ...)
Out      the same graph with a decision for every range: which loops it becomes, in what order, which run as groups,
         which are written out, which are vector lanes, which operands are packed into scratch
Next     heuristic.py (who chooses), ../linear/linearize.py (who writes the loops down); the transforms: ranges.py,
         binding.py, instructions.py, operands.py

A range of n values is a mixed-radix number. It starts as one loop; `split r0 8` makes it two, `r0` (outer, ceil(n/8)
steps of 8) and `r0.1` (inner, 8 steps of 1). Only the outermost loop of a range may be cut short by n: the last,
partial step is written out a second time with its own sizes, so full steps carry no test. A range that is shared among
threads divides: `pad` makes it longer, and what lies beyond its end is neither read nor stored.

A schedule is text, one transform per item, separated by `;`, replayed by `apply`:

    merge r0 r1; split r0 64; split r0.1 16; vectorize r0.2; unroll r0.1; parallel r0 8; order r2 r0; stage 1 r0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hcq.compiler.loops.binding import Binding
from hcq.compiler.loops.instructions import Instructions
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.loops.operands import Operands
from hcq.compiler.loops.ranges import Ranges


class LoopNest(Ranges, Binding, Instructions, Operands):
    """A kernel and its schedule. Transforms change the schedule and return the nest, so that they chain."""

    def apply(self, text: str) -> LoopNest:
        """Replay a schedule; the inverse of `choice`. Raises ScheduleError at the first item that does not apply.

        >>> from hcq.compiler.loops.loop_nest import LoopNest
        >>> from hcq.ir.node import Node, Param, const, index
        >>> from hcq.ir.op import Op
        >>> place = Node(Op.RANGE, dtypes.index, (index(1000),), 0)
        >>> out = Node(Op.PARAM, dtypes.float32, (), Param(0, (1000,), writable=True))
        >>> store = Node(Op.STORE, dtypes.float32, (out, place, const(1.0, dtypes.float32)))
        >>> nest = LoopNest(Node(Op.SINK, dtypes.float32, (store,)))
        >>> print(nest.apply("split r0 16; vectorize r0.1; parallel r0"))
        schedule: split r0 16; vectorize r0.1; parallel r0
        group r0 in 63 (x16)
          vector r0.1 of 16 (x1)
        """
        for item in filter(None, (part.strip() for part in text.split(";"))):
            verb, *words = item.split()
            if verb not in TRANSFORMS:
                raise ScheduleError(f"{item!r}: no transform {verb!r}; there are {', '.join(TRANSFORMS)}")
            transform, usage = TRANSFORMS[verb]
            arguments = _arguments(words, usage)
            if arguments is None:
                raise ScheduleError(f"{item!r}: it is written {verb} {usage}")
            transform(self, *arguments)
        return self


NUMBERS = ("FACTOR", "MULTIPLE", "LOAD", "TILES")


def _arguments(words: Sequence[str], usage: str) -> list[str | int] | None:
    """The words after a transform's name, numbers where it takes numbers; None where they are not as in its usage."""
    names = usage.split()
    if names[-1:] == ["..."]:
        names = names[:1] * len(words)
    least = sum(not name.startswith("[") for name in names)
    kinds = [name.strip("[]") for name in names[: len(words)]]
    if not least <= len(words) <= len(names):
        return None
    if any(kind in NUMBERS and not word.isdecimal() for kind, word in zip(kinds, words, strict=True)):
        return None
    return [int(word) if kind in NUMBERS else word for kind, word in zip(kinds, words, strict=True)]


TRANSFORMS: dict[str, tuple[Callable[..., LoopNest], str]] = {  # by name, with what follows the name
    "merge": (LoopNest.merge, "OUTER INNER"),
    "join": (LoopNest.join, "OUTER INNER"),
    "fuse": (LoopNest.fuse, "LOOP INTO"),
    "pad": (LoopNest.pad, "LOOP MULTIPLE"),
    "flip": (LoopNest.flip, "LOAD"),
    "split": (LoopNest.split, "LOOP FACTOR"),
    "unroll": (LoopNest.unroll, "LOOP"),
    "vectorize": (LoopNest.vectorize, "LOOP"),
    "parallel": (LoopNest.parallel, "LOOP"),
    "thread": (LoopNest.thread, "LOOP [LIKE]"),
    "matrix": (LoopNest.matrix, "M N K UNIT"),
    "chain": (LoopNest.chain, "LOOP"),
    "collect": (LoopNest.collect, ""),
    "dot": (LoopNest.dot, "LOOP UNIT"),
    "order": (LoopNest.reorder, "LOOP ..."),
    "stage": (LoopNest.stage, "LOAD AT"),
    "box": (LoopNest.box, "LOAD AT"),
    "pipeline": (LoopNest.pipeline, "LOOP [TILES] [BY]"),
}
