"""Meaning: what every arithmetic op computes, in plain Python, for one number of any dtype.

In       an op, the dtype of the result, the numbers, the dtype of the sources
Out      the number, exact to the bit for everything but the six transcendental functions
Next     elementwise/ (where each is declared), tests/interpreter/evaluate.py (the same for arrays),
         compiler/passes/fold_identities.py (constant folding)

Results are computed with unlimited integers or in float64 and rounded once to the dtype. For +, *, / and square root
of the narrower formats that is the correctly rounded result, since 53 bits are at least twice their bits plus two. The
transcendental functions are as good as the C library in float64; a target may differ by the ulps that decompose.py
states. Two results are left open: the sign and payload of a NaN, and which zero MAX and MIN of 0.0 and -0.0 give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hcq.ir.dtype import DType, Scalar, truncate
from hcq.ir.elementwise.table import ELEMENTWISE
from hcq.ir.op import COMPARE, Op


def apply(op: Op, dtype: DType, args: Sequence[Scalar], source_dtype: DType | None = None) -> Scalar:
    """The number that `op` makes of numbers.

    dtype         of the result; for comparisons bool
    source_dtype  of the sources; may be left out where it is the result's own (not for comparisons, CAST and BITCAST)
    Raises        ValueError for an op that is not arithmetic, or for arithmetic in a storage-only format
    """
    dtype = dtype.scalar
    source = dtype if source_dtype is None else source_dtype.scalar
    if op not in MEANING:
        raise ValueError(
            f"[apply] {op.name} is not arithmetic; only {', '.join(sorted(o.name for o in MEANING))} have a meaning"
        )
    if source_dtype is None and (op in COMPARE or op in (Op.CAST, Op.BITCAST)):
        raise ValueError(f"[apply] {op.name} needs source_dtype, the dtype of its sources")
    if source.is_storage_only and not ELEMENTWISE[op].moves_bits:
        raise ValueError(
            f"[{op.name.lower()}] {source.name} is for storage only: cast to float32, compute, and cast back"
        )
    return truncate(MEANING[op](dtype, source, *args), dtype)


def identity(op: Op, dtype: DType) -> Scalar:
    """What a reduction by ADD, MUL, MAX or MIN starts from and gives for nothing: 0, 1, the least, the greatest."""
    if op is Op.ADD or op is Op.MUL:
        return 0 if op is Op.ADD else 1
    return dtype.min if op is Op.MAX else dtype.max


# (dtype, source dtype, numbers) -> the number before it is made to fit
MEANING: dict[Op, Callable[..., Scalar]] = {op: one.meaning for op, one in ELEMENTWISE.items()}
