"""Dot products in LLVM: the intrinsics of x86-64 and AArch64, for any number of lanes.

In       a DOT of the linear program, the text of its kernel
Out      the name of its value
Next     llvm.py (the only caller), ../loops/dot_units.py (the units)
Source   LLVM's IntrinsicsX86.td and IntrinsicsAArch64.td

More lanes than an instruction has are parts of their own; fewer stand in a wider one, whose other lanes nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcq.compiler.linear.program import Instruction
from hcq.compiler.render.llvm_arithmetic import register_type
from hcq.ir.dtype import DType, dtypes

if TYPE_CHECKING:
    from hcq.compiler.render.llvm import Text


@dataclass(frozen=True)
class _Spelling:
    """functions by lanes; numbers: the element type of both operands; adds: whether it takes the sum, too."""

    functions: dict[int, str]
    numbers: str
    adds: bool = True


def _x86(name: str, numbers: str, lanes: tuple[int, ...] = (16, 8, 4)) -> _Spelling:
    return _Spelling({width: f"llvm.x86.{name}.{32 * width}" for width in lanes}, numbers)


def _neon(name: str, numbers: str) -> _Spelling:
    return _Spelling({4: f"llvm.aarch64.neon.{name}"}, numbers)


_MADD = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}


def _madd(*lanes: int) -> _Spelling:
    """Two products; LLVM takes it and the addition for one VPDPWSSD where there is one."""
    return _Spelling({width: _MADD[width] for width in lanes}, "i16", adds=False)


_SPELLINGS = {
    "dpbf16": _x86("avx512bf16.dpbf16ps", "bfloat"),
    "vnni512": _x86("avx512.vpdpbusd", "i32"),
    "vnni256": _x86("avx512.vpdpbusd", "i32", (8, 4)),
    "madd512": _madd(16, 8, 4),
    "madd256": _madd(8, 4),
    "madd128": _madd(4),
    "bfdot": _neon("bfdot.v4f32.v8bf16", "bfloat"),
    "sdot": _neon("sdot.v4i32.v16i8", "i8"),
    "udot": _neon("udot.v4i32.v16i8", "i8"),
    "usdot": _neon("usdot.v4i32.v16i8", "i8"),
}
_BITS = {"bfloat": 16, "i32": 32, "i16": 16, "i8": 8}


def dot(text: Text, it: Instruction) -> str:
    """Write a DOT: a power of two of lanes."""
    spelling, result, lanes = _SPELLINGS[it.arg], it.dtype.scalar, it.dtype.lanes
    sources = [(_as_vector(text, text.name(s), s.dtype), s.dtype.scalar) for s in map(it.source, range(3))]
    part = min(lanes, max(spelling.functions))
    width = min(width for width in spelling.functions if width >= part)
    parts = []
    for start in range(0, lanes, part):
        names = [
            _picked(text, name, dtype, lanes, range(start, start + part), width) for name, dtype in sources
        ]
        made = _one(text, spelling, result, width, names)
        parts.append(_picked(text, made, result, width, range(part), part))
    while len(parts) > 1:
        kind, order = register_type(result.vec(part)), ", ".join(f"i32 {i}" for i in range(2 * part))
        picks = f"<{2 * part} x i32> <{order}>"
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [text.let(f"shufflevector {kind} {a}, {kind} {b}, {picks}") for a, b in pairs]
        part *= 2
    return parts[0] if lanes > 1 else text.let(f"extractelement {_vector(result, 1)} {parts[0]}, i64 0")


_WORD = dtypes.int32


def _one(text: Text, spelling: _Spelling, dtype: DType, width: int, names: list[str]) -> str:
    """One instruction."""
    a, b, d = names
    word, result = register_type(_WORD.vec(width)), register_type(dtype.vec(width))
    numbers = f"<{width * 32 // _BITS[spelling.numbers]} x {spelling.numbers}>"
    if numbers != word:
        a, b = (text.let(f"bitcast {word} {name} to {numbers}") for name in (a, b))
    function = spelling.functions[width]
    if spelling.adds:
        return text.call(result, function, [(result, d), (numbers, a), (numbers, b)])
    products = text.call(result, function, [(numbers, a), (numbers, b)])
    return text.let(f"add {result} {d}, {products}")


def _vector(dtype: DType, lanes: int) -> str:
    """The type of a vector, which may have one lane."""
    return f"<{lanes} x {register_type(dtype)}>"


def _as_vector(text: Text, name: str, dtype: DType) -> str:
    """A scalar as a vector of one."""
    if dtype.lanes > 1:
        return name
    return text.let(f"insertelement {_vector(dtype, 1)} poison, {register_type(dtype)} {name}, i64 0")


def _picked(text: Text, name: str, dtype: DType, lanes: int, here: range, width: int) -> str:
    """These lanes of a vector of `lanes`, and nobody's behind them up to `width`."""
    if len(here) == lanes == width:
        return name
    order = ", ".join([f"i32 {i}" for i in here] + ["i32 poison"] * (width - len(here)))
    kind = _vector(dtype, lanes)
    return text.let(f"shufflevector {kind} {name}, {kind} poison, <{width} x i32> <{order}>")
