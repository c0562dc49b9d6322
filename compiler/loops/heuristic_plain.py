"""The heuristic for a machine of which little is known: results side by side, each sum one after the other.

In       a LoopNest; how many threads a group may have
Out      the same nest with its loops bound
Changes  the nest it is given
Next     heuristic_gpu.py (for GPUs, which share memory and units), ../codegen.py (who calls a heuristic),
         docs/adding-a-device.md (devices that begin with this one)

It asks a renderer for no vectors, no memory of a group and no exchange between threads.
"""

from __future__ import annotations

from hcq.compiler.loops.heuristic import merge_all
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError

MOST_RESULTS = 8  # of a thread, where they read the same


def choose(nest: LoopNest, most_threads: int) -> LoopNest:
    """Groups, and threads of a group: as many results as divide the ranges.

    A thread computes several sums at once, where these read the same.
    """
    merge_all(nest)
    results = [axis for axis in nest.axes if not axis.is_reduce and not axis.is_ordered and axis.size > 1]
    shared = _shared(nest, results)
    if shared is not None:
        count = next(count for count in (MOST_RESULTS, 4, 2, 1) if shared.size % count == 0)
        if count > 1 and may(nest, "split", shared.name, count):
            may(nest, "unroll", shared.loops[-1].name)
    for axis in reversed(results):
        steps = axis.loops[0].size
        threads = min(_power_below(most_threads // nest.threads), steps & -steps)
        if threads > 1 and may(nest, "split", axis.loops[0].name, threads):
            may(nest, "thread", axis.loops[1].name)
    for axis in results:
        if axis.loops[0].kind == "serial":
            may(nest, "parallel", axis.loops[0].name)
    return nest


def may(nest: LoopNest, verb: str, *words: str | int) -> bool:
    """Do something with a loop where that changes no result; the nest knows."""
    try:
        getattr(nest, verb)(*words)
    except ScheduleError:
        return False
    return True


def _shared(nest: LoopNest, results: list[Axis]) -> Axis | None:
    """The range whose results have most of what they read in common: of a product's rows, the right matrix.

    Steps of the last range are neighbours in a group, each with loads of its own: those are worth keeping.
    """
    if len(results) < 2 or not any(axis.is_reduce for axis in nest.axes):
        return None
    *others, last = results

    def kept(axis: Axis) -> int:
        return sum(
            bool(nest.masks[load] & last.bit) and not nest.masks[load] & axis.bit for load in nest.loads
        )

    best = max(others, key=kept)
    return best if kept(best) else None


def _power_below(value: int) -> int:
    """The greatest power of two that is no greater."""
    return 1 << max(value, 1).bit_length() - 1
