"""Compares: a test per lane, its answers gathered into a mask of bits.

In       VOPC and their VOP3 forms: v_cmp_<test>_<kind>, v_cmpx_<test>_<kind>
Out      a step that writes VCC, an SGPR mask, or EXEC
Changes  SGPRs and EXEC, when the step runs
Next     vector_operands.py, operands.py (mask registers)

On gfx11 v_cmpx writes EXEC alone; on gfx9 it writes EXEC and the mask register.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.floats import QUIET, raw
from hcq.emu.amd.shader.operands import Context, Step, write_lane_mask
from hcq.emu.amd.shader.vector_operands import Sources
from hcq.emu.amd.shader.waves import VCC, Batch
from hcq.emu.shader.floats import SMALLEST_NORMAL

Test = Callable[[Array, Array], Array]


def never(a: Array, b: Array) -> Array:
    """False for every pair."""
    return np.zeros(np.broadcast_shapes(a.shape, b.shape), np.bool_)


def always(a: Array, b: Array) -> Array:
    """True for every pair."""
    return np.ones(np.broadcast_shapes(a.shape, b.shape), np.bool_)


def comparable(a: Array, b: Array) -> Array:
    """Whether neither is a NaN."""
    return (a == a) & (b == b)


TESTS: dict[str, Test] = {
    "f": never,
    "t": always,
    "tru": always,
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ne": np.not_equal,
    "ge": np.greater_equal,
    "lg": lambda a, b: (a < b) | (a > b),
    "o": comparable,
    "u": lambda a, b: ~comparable(a, b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
}


def classify(x: Array, wanted: Array) -> Array:
    """Whether x is one of the classes whose bits are set in `wanted`."""
    quiet = (raw(x) & QUIET[x.dtype.itemsize]) != 0
    nan, negative = np.isnan(x), np.signbit(x)
    size = np.abs(x)
    denormal = (size < SMALLEST_NORMAL[x.dtype.itemsize]) & (x != 0)
    kind = np.select([np.isinf(x), x == 0, denormal], [0, 2, 1], 3)  # inf, denormal, zero, normal
    bit_negative = np.choose(kind, [2, 4, 5, 3])
    bit_positive = np.choose(kind, [9, 7, 6, 8])
    bit = np.where(nan, np.where(quiet, 1, 0), np.where(negative, bit_negative, bit_positive))
    return ((wanted.astype(np.uint32) >> bit.astype(np.uint32)) & np.uint32(1)) != 0


def wide_compare(ctx: Context, test: str, kind: str, operands: Sources) -> Callable[[Batch], Array] | None:
    """A test of 64-bit integers by their halves, half the cost of putting those together; None where that is no way."""
    if kind not in ("u64", "i64") or test not in WIDE_TESTS or operands.fetch is not None:
        return None
    swaps, inverts = WIDE_TESTS[test]
    top = np.int32 if kind == "i64" else np.uint32
    left, right = halves(operands, 0, kind), halves(operands, 1, kind)
    if swaps:
        left, right = right, left

    def run(b: Batch) -> Array:
        (low, high), (other_low, other_high) = left(b), right(b)
        same: Array = high == other_high
        if swaps is None:
            same &= low == other_low
            return same ^ inverts
        same &= low < other_low
        same |= high.view(top) < other_high.view(top)
        return same ^ inverts

    return run


# test -> (whether it is "less" with operands exchanged, None for "equal"; whether the answer is the opposite)
WIDE_TESTS: dict[str, tuple[bool | None, bool]] = {
    "lt": (False, False),
    "ge": (False, True),
    "gt": (True, False),
    "le": (True, True),
    "eq": (None, False),
    "ne": (None, True),
}


def halves(operands: Sources, index: int, kind: str) -> Callable[[Batch], tuple[Array, Array]]:
    """The low and the high word of a 64-bit operand."""
    code = operands.code(index)
    if code >= 256:
        register = code - 256
        return lambda b: (b.u32[register], b.u32[register + 1])
    whole = operands.read(index, kind)

    def split(b: Batch) -> tuple[Array, Array]:
        wide = whole(b).view(np.uint64)
        return wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)

    return split


def compile_compare(ctx: Context, name: str, operands: Sources) -> Step | None:
    """The step of a v_cmp or v_cmpx instruction; None when it is none."""
    if not name.startswith("v_cmp"):
        return None
    form, test, kind = name[2:].split("_")
    writes_exec = form == "cmpx"
    if test == "class":
        mask_kind = "u16" if operands.operands[1].width == 16 else "u32"
        left, right = operands.read(0, kind), operands.read(1, mask_kind)
    else:
        left, right = operands.read(0, kind), operands.read(1, kind)
    wide = wide_compare(ctx, test, kind, operands)
    decide: Test = classify if test == "class" else TESTS[test]
    named = ctx.inst.named_mask
    write = write_lane_mask(ctx, VCC if named is None else named)
    if wide is not None and not writes_exec:
        return lambda b: write(b, wide(b))
    if not writes_exec:
        return lambda b: write(b, decide(left(b), right(b)))
    also_mask = ctx.is_gfx9

    def run(b: Batch) -> None:
        answers = decide(left(b), right(b)) & b.lanes
        if also_mask:
            write(b, answers)
        b.set_exec(answers)

    return run
