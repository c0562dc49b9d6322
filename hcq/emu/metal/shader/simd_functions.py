"""What threads of a SIMD group give each other, and functions of numbers, for all threads of a batch.

In       arrays with a number for each thread; which threads are there
Out      arrays; a KernelFault for a thread that asks one which is not there
Next     machine.py (who asks), exchanges.py (what compiled kernels have of it)
Source   Metal Shading Language Specification: "SIMD-group Functions", "Common Functions", "Math Functions"
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.metal.shader.errors import KernelFault

Array = Any  # NumPy's own annotations do not describe arrays of unknown dtype
SIMD = 32
LANES = np.arange(SIMD)
_REDUCTIONS: dict[str, Any] = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_FUNCTIONS: dict[str, Any] = {
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "fmin": np.fmin,
    "fmax": np.fmax,
    "pow": np.power,
    "fmod": np.fmod,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "round": lambda x: np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x),
    "fma": lambda a, b, c: np.asarray(a, np.float64) * b + c,
    **{name: getattr(np, name) for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "rint")},
}


def function(name: str, kind: str, values: tuple[Any, ...]) -> Any:
    """One of typed.py's NUMBERS or FLOATS, of each thread; the result is of this kind."""
    made = _FUNCTIONS[name](*values)
    return made.astype(kind) if isinstance(made, np.ndarray) else np.dtype(kind).type(made)


class Groups:
    """The threads of a batch by SIMD groups: rows of 32, the last of a threadgroup perhaps not full."""

    def __init__(self, groups: int, threads: int, there: Array) -> None:
        self.groups, self.threads = groups, threads
        self.per_group = -(-threads // SIMD)
        self.there = self.rows(there, False)

    def rows(self, values: Array, rest: Any) -> Array:
        """(SIMD group, lane) of what each thread has; `rest` where there is no thread."""
        made = np.full((self.groups, self.per_group * SIMD), rest, values.dtype)
        made[:, : self.threads] = values.reshape(self.groups, self.threads)
        return made.reshape(-1, SIMD)

    def flat(self, rows: Array) -> Array:
        """Of each thread again."""
        return rows.reshape(self.groups, -1)[:, : self.threads].reshape(-1)

    def whole(self) -> bool:
        """Whether all threads of a SIMD group are there, or none."""
        exists = self.rows(np.ones(self.groups * self.threads, bool), False)
        some, every = self.there.any(axis=1), (self.there == exists).all(axis=1)
        return bool((some == every).all())


def exchange(groups: Groups, kernel: str, name: str, values: list[Array]) -> Array:
    """One of typed.py's SIMD_MOVES or SIMD_REDUCTIONS, any, all, is_first, broadcast_first."""
    there = groups.there
    if name in ("any", "all"):
        rows = groups.rows(values[0], False)
        found = (rows & there).any(axis=1) if name == "any" else (rows | ~there).all(axis=1)
        return groups.flat(np.repeat(found[:, None], SIMD, axis=1))
    first = there.argmax(axis=1)
    if name == "is_first":
        return groups.flat(first[:, None] == LANES)
    rows = groups.rows(values[0], 0)
    if name == "broadcast_first":
        return groups.flat(np.repeat(rows[np.arange(len(rows)), first][:, None], SIMD, axis=1))
    if name in _REDUCTIONS:
        return groups.flat(np.repeat(_reduced(name, rows, there)[:, None], SIMD, axis=1))
    if name.startswith("prefix"):
        sums = np.where(there, rows, np.zeros(1, rows.dtype)).cumsum(axis=1, dtype=rows.dtype)
        return groups.flat(sums if name == "prefix_inclusive_sum" else sums - rows)
    by = groups.rows(values[1], 0).astype(np.int64)
    lane = {"shuffle_up": LANES - by, "shuffle_down": LANES + by}.get(name, by)
    beyond = (lane < 0) | (lane >= SIMD)
    if name in ("shuffle_up", "shuffle_down"):  # what is beyond the ends is left open
        lane = np.where(beyond, LANES, lane)
    elif (beyond & there).any():
        asked = int(lane[beyond & there][0])
        raise KernelFault(f"{kernel}: simd_{name} of {asked} reaches a thread that is not in the SIMD group.")
    lane = np.where(there, lane, LANES)
    line = np.arange(len(rows))[:, None]
    if (there & ~there[line, lane]).any():
        raise KernelFault(f"{kernel}: simd_{name} asks a thread that is not there.")
    return groups.flat(rows[line, lane])


def _reduced(name: str, rows: Array, there: Array) -> Array:
    """Of the threads that are there, one after the other."""
    operation = _REDUCTIONS[name]
    found, some = rows[:, 0].copy(), there[:, 0].copy()
    for lane in range(1, SIMD):
        here = there[:, lane]
        made = operation(found, rows[:, lane]).astype(rows.dtype)
        found = np.where(here, np.where(some, made, rows[:, lane]), found)
        some |= here
    return found
