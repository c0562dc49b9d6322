"""Dot products of processors: instructions whose lanes each add up a few products of narrow numbers.

In       nothing
Out      `DotUnit`, `DOTS` by name; `dots_of(flags)`; `matched`: what the factors of a product become for one
Next     loop_nest.py (`dot`), ../linear/dots.py (operands as words), ../render/llvm_dots.py (their spelling)
Source   Intel's and AMD's manuals (VDPBF16PS, VPDPBUSD, VPMADDWD), Arm's (BFDOT, SDOT, UDOT, USDOT)

Every lane of a result has a word of 32 bits in either operand: two numbers of 16 bits or four of 8, neighbours along
the reduction. Unlike the matrix units of GPUs (matrix_units.py) these take any lanes: a vector of results, as
`vectorize` makes it, each with the same words of the other operand or with its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hcq.ir.dtype import DType, Kind, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op

WORD_BITS = 32


@dataclass(frozen=True)
class DotUnit:
    """d[lane] += the sum over k of a[lane, k] * b[lane, k].

    flags   what the processor must have, by the names of /proc/cpuinfo
    lanes   the lanes of d that one instruction takes, the most first
    """

    name: str
    flags: frozenset[str]
    a: DType
    b: DType
    result: DType
    lanes: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Products that one lane adds up."""
        return WORD_BITS // self.a.bits


def _unit(name: str, flags: str, a: DType, b: DType, result: DType, *lanes: int) -> DotUnit:
    return DotUnit(name, frozenset(flags.split()), a, b, result, lanes)


_BF16, _S8, _U8, _S16, _S32 = dtypes.bfloat16, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32

DOTS = {  # of two that take the same numbers, the better one first
    unit.name: unit
    for unit in (
        _unit("dpbf16", "avx512_bf16 avx512vl", _BF16, _BF16, dtypes.float32, 16, 8, 4),
        _unit("bfdot", "bf16 asimd", _BF16, _BF16, dtypes.float32, 4),
        _unit("vnni512", "avx512_vnni avx512vl", _U8, _S8, _S32, 16, 8, 4),
        _unit("vnni256", "avx_vnni avx2", _U8, _S8, _S32, 8, 4),
        _unit("sdot", "asimddp", _S8, _S8, _S32, 4),
        _unit("udot", "asimddp", _U8, _U8, _S32, 4),
        _unit("usdot", "i8mm asimd", _U8, _S8, _S32, 4),
        _unit("madd512", "avx512bw avx512vl", _S16, _S16, _S32, 16, 8, 4),
        _unit("madd256", "avx2", _S16, _S16, _S32, 8, 4),
        _unit("madd128", "sse2", _S16, _S16, _S32, 4),
    )
}


def dots_of(flags: frozenset[str]) -> list[DotUnit]:
    """What a processor with these flags has."""
    return [unit for unit in DOTS.values() if unit.flags <= flags]


def fitting(factor: Node, dtype: DType) -> Node | None:
    """A factor's narrow value in a unit's format, or None: integers may be widened, floats are what they are."""
    if factor.op is Op.CAST and factor.dtype.bits == WORD_BITS:
        factor = factor.src[0]
    if factor.dtype is dtype:
        return factor
    of = factor.dtype
    if of.kind in (Kind.INT, Kind.UINT) and dtype.kind is Kind.INT and of.bits < dtype.bits:
        return factor.cast(dtype)
    return None


def matched(factors: Iterable[Node], unit: DotUnit) -> tuple[Node, Node] | None:
    """Two factors as a unit takes them, whichever of them is its `a`."""
    first, second = factors
    for a, b in ((first, second), (second, first)):
        left, right = fitting(a, unit.a), fitting(b, unit.b)
        if left is not None and right is not None:
            return left, right
    return None


def read_by(factor: Node) -> Node:
    """The load that a factor is, seen through what becomes of each of its numbers."""
    while factor.op in (Op.CAST, Op.BITCAST, Op.XOR):
        factor = factor.src[0]
    return factor
