"""Atomic read-modify-write: what each operation makes of memory and data, lane after lane.

In       addresses of active lanes in wave and lane order, and their data
Out      the number each lane found
Changes  memory, through the store's update()
Next     memory_ops.py and lds_ops.py (who calls), memory.py (update)

Lanes that name the same address act one after another, in order, so a run is repeatable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.floats import bf16_to_f32, f32_to_bf16, maximum, minimum

Combine = Callable[[Array, Array, Array], Array]  # (memory, data, second data) -> new memory


@dataclass(frozen=True)
class Atomic:
    """An operation on numbers of `dtype`. `fold` is the same as a ufunc, when it is one, for long runs."""

    name: str
    dtype: Any
    combine: Combine
    fold: Any = None
    takes_two: bool = False  # a second operand: compare value or mask


def packed(add: Callable[[Array, Array], Array]) -> Combine:
    """Apply to both 16-bit halves of a word."""

    def run(memory: Array, data: Array, second: Array) -> Array:
        pairs = [
            x.view(np.uint16).reshape(-1, 2)
            for x in (np.ascontiguousarray(memory), np.ascontiguousarray(data))
        ]
        return np.ascontiguousarray(add(*pairs)).view(np.uint32)[:, 0]

    return run


def add_f16(a: Array, b: Array) -> Array:
    """Bits of float16, added; bits."""
    return (a.view(np.float16) + b.view(np.float16)).view(np.uint16)


def add_bf16(a: Array, b: Array) -> Array:
    """Bits of bfloat16, added and rounded; bits."""
    return f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b))


COMBINES: dict[str, tuple[Combine, Any]] = {
    "swap": (lambda m, d, e: d, None),
    "add": (lambda m, d, e: m + d, np.add),
    "sub": (lambda m, d, e: m - d, np.subtract),
    "rsub": (lambda m, d, e: d - m, None),
    "condsub": (lambda m, d, e: np.where(m >= d, m - d, m), None),
    "csub": (lambda m, d, e: np.where(m >= d, m - d, m.dtype.type(0)), None),
    "min": (lambda m, d, e: np.minimum(m, d), np.minimum),
    "max": (lambda m, d, e: np.maximum(m, d), np.maximum),
    "fmin": (lambda m, d, e: minimum(m, d, True), None),
    "fmax": (lambda m, d, e: maximum(m, d, True), None),
    "and": (lambda m, d, e: m & d, np.bitwise_and),
    "or": (lambda m, d, e: m | d, np.bitwise_or),
    "xor": (lambda m, d, e: m ^ d, np.bitwise_xor),
    "inc": (lambda m, d, e: np.where(m >= d, m.dtype.type(0), m + m.dtype.type(1)), None),
    "dec": (lambda m, d, e: np.where((m == 0) | (m > d), d, m - m.dtype.type(1)), None),
    "cmpswap": (lambda m, d, e: np.where(m == e, d, m), None),  # d new, e compare
    "mskor": (lambda m, d, e: (m & ~d) | e, None),
    "wrap": (lambda m, d, e: np.where(m >= d, m - d, m + e), None),
    "pk_add_f16": (packed(add_f16), None),
    "pk_add_bf16": (packed(add_bf16), None),
}
TWO_OPERANDS = {"cmpswap", "mskor", "wrap"}
SPELLINGS = {  # older names
    "smin": ("min", "i"),
    "smax": ("max", "i"),
    "umin": ("min", "u"),
    "umax": ("max", "u"),
    "storexchg": ("swap", "b"),
    "wrxchg": ("swap", "b"),
    "cmpstore": ("cmpswap", "b"),
    "cmpst": ("cmpswap", "b"),
}


RDNA4_SPELLINGS = (("_num_", "_"), ("cond_sub", "condsub"), ("sub_clamp", "csub"))


def parse_atomic(text: str) -> Atomic | None:
    """From 'add_u32', 'smin_x2', 'cmpst_b64', 'pk_add_f16' and the like, without 'rtn'; None when it names none."""
    for new, plain in RDNA4_SPELLINGS:
        text = text.replace(new, plain)
    parts = text.split("_")
    if parts[0] == "pk" and len(parts) == 3:
        name = "_".join(parts)
        return Atomic(name, np.uint32, COMBINES[name][0]) if name in COMBINES else None
    kind = parts[-1] if len(parts) > 1 else ""
    name, letter = SPELLINGS.get(parts[0], (parts[0], "u"))
    width = "64" if kind == "x2" else kind[1:] or "32"
    if kind and kind != "x2" and parts[0] not in ("smin", "smax", "umin", "umax"):
        letter = kind[0]
    if name not in COMBINES or width not in ("32", "64") or len(parts) > 2:
        return None
    if letter == "f" and name in ("min", "max"):
        name = "f" + name
    if letter == "f":
        dtype: Any = np.float32 if width == "32" else np.float64
    elif letter == "i":
        dtype = np.int32 if width == "32" else np.int64
    else:
        dtype = np.uint32 if width == "32" else np.uint64
    combine, fold = COMBINES[name]
    return Atomic(name, dtype, combine, fold, name in TWO_OPERANDS)


def run_atomic(store: Any, atomic: Atomic, addresses: Array, data: Array, second: Array) -> Array:
    """Apply to all addresses; returns what each lane found. `data` and `second` are (n,) of the atomic's type."""
    unique, inverse, counts = np.unique(addresses, return_inverse=True, return_counts=True)
    if len(unique) == len(addresses):
        order = np.argsort(addresses, kind="stable")
        found = np.empty(len(addresses), atomic.dtype)
        found[order] = store.update(
            unique, atomic.dtype, lambda m: atomic.combine(m, data[order], second[order])
        )
        return found
    found = np.empty(len(addresses), atomic.dtype)
    by_address = np.argsort(inverse, kind="stable")
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))

    def change(memory: Array) -> Array:
        current = memory.copy()
        if atomic.fold is not None and len(unique) < int(counts.max()):
            for index in range(len(unique)):  # few addresses, long runs: each run at once
                lanes = by_address[starts[index] : starts[index] + counts[index]]
                run = atomic.fold.accumulate(np.concatenate((memory[index : index + 1], data[lanes])))
                found[lanes] = run[:-1]
                current[index] = run[-1]
            return current
        for turn in range(int(counts.max())):  # the first lane of every address, then the second, ...
            places = np.nonzero(counts > turn)[0]
            lanes = by_address[starts[places] + turn]
            found[lanes] = current[places]
            current[places] = atomic.combine(current[places], data[lanes], second[lanes])
        return current

    store.update(unique, atomic.dtype, change)
    return found
