"""Semaphores in memory: releases with and without a timestamp, reductions, comparisons.

In       a view of the address space, an address, a value, the operation's name
Out      memory changed as the GPU changes it: the timestamp before the payload, no half of a number
Changes  memory
Next     host_processor.py, copy_processor.py, compute_processor.py (whose methods say which)
Source   clc56f.h: SEM_EXECUTE; clcbc0.h: SET_REPORT_SEMAPHORE_D, REPORT_SEMAPHORE_EXECUTE; clc8b5.h: LAUNCH_DMA
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.emu.nv.memory import View

FOUR_WORDS = 16  # a payload of 8 bytes, then a timestamp of 8


def is_aligned(va: int, size_bytes: int, has_timestamp: bool) -> bool:
    """Whether a semaphore may lie there."""
    return va % (FOUR_WORDS if has_timestamp else size_bytes) == 0


def release(
    view: View,
    va: int,
    value: int,
    size_bytes: int,
    timestamp: int | None,
    unit: str,
    how: str = "",
    is_signed: bool = False,
) -> None:
    """Store a payload; with a timestamp 16 bytes, the payload stored last. how: reduce instead."""
    view.table.settle()  # pages of another process have it before the value says so
    value &= (1 << 8 * size_bytes) - 1
    if how:
        reduce(view, va, how, value, size_bytes, is_signed, unit)
    elif timestamp is None:
        view.store_number(va, value, size_bytes, unit)
    else:
        view.store_number(va + 8, timestamp, 8, unit)
        view.store_number(va, value, 8, unit)


def reduce(view: View, va: int, how: str, value: int, size_bytes: int, is_signed: bool, unit: str) -> None:
    """Replace a number by the reduction of it and a value. how: ADD, MIN, MAX, XOR, AND, OR, INC, DEC."""
    bits = 8 * size_bytes
    old = view.load_number(va, size_bytes, unit)
    new = REDUCTIONS[how](old, value, bits, is_signed) & (1 << bits) - 1
    view.store_number(va, new, size_bytes, unit)


def signed(number: int, bits: int) -> int:
    """A number of so many bits, read with its sign."""
    return number - (1 << bits) if number >> bits - 1 else number


def _smallest(old: int, value: int, bits: int, is_signed: bool) -> int:
    return min(old, value, key=lambda each: signed(each, bits) if is_signed else each)


def _largest(old: int, value: int, bits: int, is_signed: bool) -> int:
    return max(old, value, key=lambda each: signed(each, bits) if is_signed else each)


REDUCTIONS: dict[str, Callable[[int, int, int, bool], int]] = {
    "ADD": lambda old, value, bits, is_signed: old + value,
    "MIN": _smallest,
    "MAX": _largest,
    "XOR": lambda old, value, bits, is_signed: old ^ value,
    "AND": lambda old, value, bits, is_signed: old & value,
    "OR": lambda old, value, bits, is_signed: old | value,
    "INC": lambda old, value, bits, is_signed: 0 if old >= value else old + 1,
    "DEC": lambda old, value, bits, is_signed: value if not old or old > value else old - 1,
}
