"""Random schedules of GPUs: every transform, in any legal place, tried at random; what refuses is left out.

In       what makes a fresh LoopNest, a target, a random generator
Out      a schedule that the nest accepts, as text
Next     test_random_gpu_schedules.py (runs them), hcq/compiler/loops/loop_nest.py (the transforms)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from math import prod

from hcq.compiler import pipeline
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import UNITS, MatrixUnit
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.target import Target
from hcq.ir.node import Node

TRIES = 20
MOST_ALONE = 1000  # places of all ranges that one thread goes through


def random_gpu_schedule(make: Callable[[], LoopNest], target: Target, rng: random.Random) -> str:
    """A schedule of the nest that `make` gives, by which no thread has very much to do; "" where none is found."""
    for _ in range(TRIES):
        nest = make()
        _merge_and_fuse(nest, rng)
        units = [unit for unit in UNITS.values() if target.arch in unit.archs and not unit.needs]
        rng.shuffle(units)
        for unit in units if rng.random() < 0.8 else ():
            if _has_operands(nest, unit) and (
                text := _with_matrix(LoopNest(nest.sink), nest.choice, unit, rng)
            ):
                _replay(nest, text)
                break
        else:
            _bind(nest, _padded(nest, rng), rng)
        _finish(nest, rng, target.copies_ahead)
        places = prod(axis.size for axis in nest.axes)
        if places // (nest.group_count * nest.threads) <= MOST_ALONE:
            return nest.choice
    return ""


def choose_at_random(seed: int) -> None:
    """From now on this process's compiler gives every kernel of a GPU a random schedule, where one is found for it."""
    heuristic = pipeline._chosen

    def chosen(lowered: Node, target: Target, schedule: str | None) -> LoopNest:
        if schedule is not None or target.name not in ("amdgpu", "nvptx"):
            return heuristic(lowered, target, schedule)
        rng = random.Random(f"{seed} {target.arch} {lowered}")
        text = random_gpu_schedule(lambda: LoopNest(lowered), target, rng)
        for tried in dict.fromkeys((text, without_copies(text))):
            with suppress(ScheduleError):
                nest = LoopNest(lowered).apply(tried)
                linearize(nest, "k", target.shared_bytes, target.wave_copy_bytes)
                return LoopNest(lowered).apply(tried)
        return heuristic(lowered, target, schedule)

    pipeline._chosen = chosen


def without_copies(text: str) -> str:
    """The same schedule with its operands left in memory."""
    return "; ".join(item for item in text.split("; ") if not item.startswith(("stage", "pipeline")))


def _merge_and_fuse(nest: LoopNest, rng: random.Random) -> None:
    for verb, chance in (("merge", 0.3), ("join", 0.1), ("fuse", 0.7)):
        for a in [axis.name for axis in nest.axes]:
            for b in [axis.name for axis in nest.axes]:
                known = {axis.name for axis in nest.axes}
                if a != b and {a, b} <= known and rng.random() < chance:
                    with suppress(ScheduleError):
                        getattr(nest, verb)(a, b)


def _padded(nest: LoopNest, rng: random.Random) -> dict[str, list[int]]:
    """Range -> how its innermost loops are divided: counted, written out, threads, lanes. Ranges are padded to it."""
    shares: dict[str, list[int]] = {}
    for name in [axis.name for axis in nest.axes if not axis.is_ordered]:
        axis = _axis(nest, name)
        parts = [1, rng.choice([1, 1, 2, 4]), rng.choice([1, 2, 4, 8, 32, 64]), rng.choice([1, 1, 2, 4])]
        while prod(parts) >= 2 * axis.size and max(parts) > 1:
            parts[parts.index(max(parts))] //= 2  # padding is not what takes the time
        if name in nest.whole:  # nothing of it is counted
            while prod(parts) < axis.size:
                parts[rng.choice([1, 2])] *= 2
        elif rng.random() < 0.3:
            parts[0] = 2
        if name in nest.whole or rng.random() < 0.8:
            nest.pad(name, prod(parts))
            shares[name] = parts
    return shares


def _bind(nest: LoopNest, shares: dict[str, list[int]], rng: random.Random) -> None:
    names = list(shares)
    rng.shuffle(names)
    for name in names:
        axis = _axis(nest, name)
        _, copies, threads, lanes = shares[name]
        loops = {}
        sizes = (prod(shares[name]), copies * threads * lanes, threads * lanes, lanes)
        for what, size in zip(("whole", "unroll", "thread", "vectorize"), sizes, strict=True):
            if axis.loops[-1].size > size:
                nest.split(axis.loops[-1].name, size)
            loops[what] = axis.loops[-1]
        taken = [loop.name for other in nest.axes for loop in other.threads]
        whole = name in nest.whole
        for loop in reversed(axis.loops):
            verbs = [what for what, one in loops.items() if one is loop and what != "whole"]
            for verb in (*reversed(verbs), *["unroll"] * whole):
                words = [rng.choice(taken)] if verb == "thread" and taken and rng.random() < 0.5 else []
                for more in (words, []):
                    with suppress(ScheduleError):
                        if loop.kind == "serial" and (whole or rng.random() < 0.9):
                            getattr(nest, verb)(loop.name, *more)


def _has_operands(nest: LoopNest, unit: MatrixUnit) -> bool:
    return {unit.a, unit.b} <= {load.dtype for load in nest.loads}


def _with_matrix(nest: LoopNest, before: str, unit: MatrixUnit, rng: random.Random) -> str:
    """A schedule with this matrix unit; "" where it does not fit."""
    outputs = [axis.name for axis in nest.axes if not axis.is_reduce and not axis.is_ordered]
    sums = [axis.name for axis in nest.axes if axis.is_reduce and not axis.is_ordered]
    rng.shuffle(outputs)
    for m in outputs:
        for n in outputs:
            for k in sums:
                trial = LoopNest(nest.sink)
                with suppress(ScheduleError):
                    inner, bound = [], []
                    parts = [(rng.choice([1, 2]), rng.choice([1, 2])) for _ in range(3)]
                    for name, (outer, copies), dimension in zip((m, n, k), parts, "mnk", strict=True):
                        trial.pad(name, outer * copies * unit.size(dimension))
                    for name, (outer, copies), dimension in zip((m, n, k), parts, "mnk", strict=True):
                        axis, size = _axis(trial, name), unit.size(dimension)
                        for step in (outer * copies * size, copies * size, size):
                            if axis.loops[-1].size > step:
                                trial.split(axis.loops[-1].name, step)
                        inner.append(axis.loops[-1].name)
                        bound.append(
                            [loop.name for loop in axis.loops if size <= loop.stride < outer * copies * size]
                        )
                    trial.matrix(*inner, unit.name)
                    for name, names in zip((m, n, k), bound, strict=True):
                        for loop in reversed(names):
                            verb = "unroll" if name == k or rng.random() < 0.5 else "thread"
                            if rng.random() < 0.9 or unit.reads_shared:
                                getattr(trial, verb)(loop)
                    counted = _axis(trial, k).counted
                    for number, load in enumerate(trial.loads) if unit.reads_shared and counted else ():
                        if trial.masks[load] & _axis(trial, k).bit:
                            trial.stage(number, counted[-1].name)
                    return "; ".join(filter(None, [before, trial.choice]))
    return ""


def _replay(nest: LoopNest, text: str) -> None:
    done = len(nest.choices)
    nest.apply("; ".join(text.split("; ")[done:]))


def _finish(nest: LoopNest, rng: random.Random, is_asynchronous: bool) -> None:
    """Blocks, another order of loops, operands in shared memory, copies ahead."""
    for axis in nest.axes:
        for loop in axis.counted:
            if rng.random() < 0.6:
                with suppress(ScheduleError):
                    nest.parallel(loop.name)
    for is_reduce in (False, True):
        names = [
            loop.name for loop in nest.order if loop.kind == "serial" and loop.axis.is_reduce is is_reduce
        ]
        if len(names) > 1 and rng.random() < 0.5:
            for _ in range(4):
                rng.shuffle(names)
                with suppress(ScheduleError):
                    nest.reorder(*names)
                    break
    if not nest.digits:
        return
    staged = {stage.load for stage in nest.stages}
    for number, load in enumerate(nest.loads):
        places = ["-", *[loop.name for loop in nest.order]]
        if load not in staged and rng.random() < 0.6:
            for _ in range(3):
                with suppress(ScheduleError):
                    nest.stage(number, rng.choice(places))
                    break
    for loop in dict.fromkeys(stage.at for stage in nest.stages):
        if loop is not None and rng.random() < 0.6:
            words = rng.choice([(), (2,), (3,), (4,), (3, "bulk")]) if is_asynchronous else ()
            with suppress(ScheduleError):
                nest.pipeline(loop.name, *words)


def _axis(nest: LoopNest, name: str) -> Axis:
    return next(axis for axis in nest.axes if axis.name == name)
