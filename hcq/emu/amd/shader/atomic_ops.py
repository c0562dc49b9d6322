"""Atomic read-modify-write: what each operation makes of memory and data, lane after lane.

In       addresses of active lanes in wave and lane order, and their data
Out      the number each lane found
Changes  memory, through the store's update()
Next     memory_ops.py and lds_ops.py (who calls), memory.py (update), hcq/emu/shader/contended_atomics.py (many at
         one address)

Lanes that name the same address act one after another, in order, so a run is repeatable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.floats import maximum, minimum
from hcq.emu.shader import contended_atomics
from hcq.emu.shader.floats import narrow_bf16, widen_bf16

Combine = contended_atomics.Turn  # (memory, data, second data) -> new memory
Meaning = tuple[Combine, "contended_atomics.Run | None"]


@dataclass(frozen=True)
class Atomic:
    """An operation on numbers of `dtype`. `run` is the same for a run of lanes at one address, if there is such."""

    name: str
    dtype: Any
    combine: Combine
    run: contended_atomics.Run | None = None
    takes_two: bool = False  # a second operand: compare value or mask


def packed(add: Callable[[Array, Array], Array]) -> Combine:
    """Apply to both 16-bit halves of a word."""

    def run(memory: Array, data: Array, second: Array) -> Array:
        low, high = (
            add(*((x >> np.uint32(shift)).astype(np.uint16) for x in (memory, data))).astype(np.uint32)
            for shift in (0, 16)
        )
        return low | (high << np.uint32(16))

    return run


def add_f16(a: Array, b: Array) -> Array:
    """Bits of float16, added; bits."""
    return (a.view(np.float16) + b.view(np.float16)).view(np.uint16)


def add_bf16(a: Array, b: Array) -> Array:
    """Bits of bfloat16, added and rounded; bits."""
    return narrow_bf16(widen_bf16(a) + widen_bf16(b))


def _of_ufunc(function: Any) -> Meaning:
    return (lambda m, d, e: function(m, d)), contended_atomics.accumulating(function)


def _one_by_one(combine: Combine, update: Callable[[int, int, int], int]) -> Meaning:
    return combine, contended_atomics.one_by_one(update)


def _limit(choose: Combine, function: Any) -> Meaning:
    """Float minimum and maximum: of numbers the order is that of their bits, with the sign understood."""

    def run(first: Array, x: Array, y: Array) -> Array:
        values = np.concatenate((first, x))
        if np.isnan(values).any():
            for at in range(len(x)):
                values[at + 1 : at + 2] = choose(values[at : at + 1], x[at : at + 1], y)
            return values
        signed = np.dtype(f"i{values.itemsize}")
        keys = _ordered(values.view(signed))
        return _ordered(function.accumulate(keys)).view(values.dtype)

    return choose, run


def _ordered(bits: Array) -> Array:
    """Bits of floats as signed integers in the same order, -0 below +0; and back."""
    return bits ^ (bits >> (8 * bits.itemsize - 1) & np.iinfo(bits.dtype).max)


def _adding_f16(first: Array, x: Array, y: Array) -> Array:
    halves = np.concatenate((first, x)).view(np.float16)
    return np.add.accumulate(halves, dtype=np.float16).view(np.uint16)


COMBINES: dict[str, Meaning] = {
    "swap": (lambda m, d, e: d, contended_atomics.exchanging),
    "add": _of_ufunc(np.add),
    "sub": _of_ufunc(np.subtract),
    "rsub": _one_by_one(lambda m, d, e: d - m, lambda m, d, e: d - m),
    "condsub": _one_by_one(
        lambda m, d, e: np.where(m >= d, m - d, m), lambda m, d, e: m - d if m >= d else m
    ),
    "csub": _one_by_one(
        lambda m, d, e: np.where(m >= d, m - d, m.dtype.type(0)), lambda m, d, e: m - d if m >= d else 0
    ),
    "min": _of_ufunc(np.minimum),
    "max": _of_ufunc(np.maximum),
    "fmin": _limit(lambda m, d, e: minimum(m, d, True), np.minimum),
    "fmax": _limit(lambda m, d, e: maximum(m, d, True), np.maximum),
    "and": _of_ufunc(np.bitwise_and),
    "or": _of_ufunc(np.bitwise_or),
    "xor": _of_ufunc(np.bitwise_xor),
    "inc": _one_by_one(
        lambda m, d, e: np.where(m >= d, m.dtype.type(0), m + m.dtype.type(1)), contended_atomics.increment
    ),
    "dec": _one_by_one(
        lambda m, d, e: np.where((m == 0) | (m > d), d, m - m.dtype.type(1)), contended_atomics.decrement
    ),
    # d new, e compare
    "cmpswap": (
        lambda m, d, e: np.where(m == e, d, m),
        lambda first, d, e: contended_atomics.comparing(first, e, d),
    ),
    "mskor": _one_by_one(lambda m, d, e: (m & ~d) | e, lambda m, d, e: (m & ~d) | e),
    "wrap": _one_by_one(
        lambda m, d, e: np.where(m >= d, m - d, m + e), lambda m, d, e: m - d if m >= d else m + e
    ),
    "pk_add_f16": (packed(add_f16), contended_atomics.in_halves(_adding_f16)),
    "pk_add_bf16": (packed(add_bf16), None),
}
TWO_OPERANDS = {"cmpswap", "mskor", "wrap"}
SPELLINGS = {  # older names
    "smin": ("min", "i"),
    "smax": ("max", "i"),
    "umin": ("min", "u"),
    "umax": ("max", "u"),
    "fmin": ("min", "f"),
    "fmax": ("max", "f"),
    "fcmpswap": ("cmpswap", "f"),
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
        return Atomic(name, np.uint32, *COMBINES[name]) if name in COMBINES else None
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
    combine, run = COMBINES[name]
    if letter == "f" and name == "cmpswap":
        run = None  # compared as floats: -0 is +0, and a NaN is not itself
    return Atomic(name, dtype, combine, run, name in TWO_OPERANDS)


def run_atomic(store: Any, atomic: Atomic, addresses: Array, data: Array, second: Array) -> Array:
    """Apply to all addresses; returns what each lane found. `data` and `second` are (n,) of the atomic's type."""
    queues = contended_atomics.Queues(addresses)
    order, firsts = queues.order, queues.firsts
    found = np.empty(len(addresses), atomic.dtype)
    if queues.is_distinct:
        found[order] = store.update(
            addresses[order], atomic.dtype, lambda m: atomic.combine(m, data[order], second[order])
        )
        return found

    def change(memory: Array) -> Array:
        found[:], at_the_end = queues.serve(memory, data, second, atomic.combine, atomic.run)
        return at_the_end

    store.update(addresses[firsts], atomic.dtype, change)
    return found
