"""Arithmetic of kernels in C: one expression per operation and kind of number, with the meaning that ir/op.py gives it.

In       an operation, its dtype, the expressions and dtypes of its sources; one lane at a time
Out      an expression; what C has no word for is a small function, written once above the kernel
Next     ir/elementwise/ (the expressions of most), cuda_arithmetic.py, metal_arithmetic.py (the words of a dialect),
         c_source.py (statements, loops, memory)

C leaves signed overflow, long shifts and division by zero undefined, so sums wrap in unsigned types and the rest is
asked about first. float16 is its bits in an unsigned number and computes in float: a sum, product or quotient of halves
rounds from there to the same half.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import ClassVar, Protocol

from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.ir.dtype import DType, Kind, Scalar, dtypes, to_bits, truncate
from hcq.ir.elementwise.table import ELEMENTWISE
from hcq.ir.op import COMPARE, Op

Operand = tuple[str, DType]

_AS_BITS = (dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)


class Text(Protocol):
    """What spelling needs of the text being written."""

    def helper(self, name: str, text: str) -> str:
        """Write a function above the kernel, once; gives its name."""


class CArithmetic(ABC):
    """A dialect's spelling: its types, and below "what a dialect says" its own words."""

    dialect: ClassVar[str]  # its name in the spellings of ir/elementwise/
    floats: ClassVar[Mapping[str, str]]  # the type of a dtype that is no integer, and of indices
    signed: ClassVar[Mapping[int, str]]  # integers, by bits
    unsigned: ClassVar[Mapping[int, str]]
    suffixes: ClassVar[Mapping[str, str]]  # of a number of that type, where it has one
    inline: ClassVar[str]  # what stands before a function of one file

    # -- types and numbers ------------------------------------------------------------------------------------------

    def register_type(self, dtype: DType) -> str:
        """The type of one lane in a register. Raises RenderError for what the dialect does not have."""
        scalar = dtype.scalar
        integers = self.unsigned if scalar.is_unsigned else self.signed
        return self.floats.get(scalar.name) or integers[scalar.bits]

    def memory_type(self, dtype: DType) -> str:
        """The type of one element in memory: a bool is a byte there."""
        return self.unsigned[8] if dtype.is_bool else self.register_type(dtype)

    def literal(self, value: Scalar, dtype: DType) -> str:
        """A number of a scalar dtype, exact."""
        kind = self.register_type(dtype)
        if dtype.kind is Kind.BOOL:
            return "true" if value else "false"
        if dtype in _AS_BITS:
            return f"({kind}){to_bits(value, dtype):#x}"
        if dtype.kind is Kind.FLOAT:
            number = float(truncate(value, dtype))
            if not math.isfinite(number):
                return self.no_number(to_bits(value, dtype), dtype)
            return f"{number!r}{'f' if dtype is dtypes.float32 else ''}"
        whole, suffix = int(truncate(value, dtype)), self.suffixes.get(kind, "")
        if dtype.bits < 32:
            return f"({kind}){whole}"
        if not dtype.is_unsigned and whole == -(1 << (dtype.bits - 1)):
            # C reads -2147483648 as the negative of a number that does not fit
            return f"({whole + 1}{suffix} - 1)"
        return f"{whole}{suffix}"

    # -- operations -------------------------------------------------------------------------------------------------

    def arithmetic(
        self,
        text: Text,
        op: Op,
        dtype: DType,
        sources: list[Operand],
        unsigned: bool = False,
        known: Scalar | None = None,
    ) -> str:
        """Spell an op for one lane: an expression.

        sources    (expression, dtype) of each
        unsigned   no source is negative
        known      the number that the second source is, if it is one
        Raises     RenderError for an op that has no spelling for that dtype
        """
        self.register_type(dtype)
        if op is Op.CAST:
            return self.cast(text, sources[0], dtype.scalar)
        if op is Op.BITCAST:
            return self._bitcast(text, sources[0], dtype.scalar)
        names = [name for name, _ in sources]
        if op is Op.WHERE:
            return f"{names[0]} ? {names[1]} : {names[2]}"
        of = sources[0][1].scalar
        if of in _AS_BITS:
            return self._on_bits(text, op, of, names)
        is_whole = not of.is_float and not of.is_bool
        if is_whole and known is not None:
            plain = self._by_number(op, of, names, unsigned or of.is_unsigned, int(known))
            if plain:
                return plain
        words = _words(self, op, of)
        if words:
            return words.format(*names)
        if of.is_bool:
            raise RenderError(f"{op.name} on bool: cast to an integer first")
        if of.is_float:
            return self._on_float(text, op, of, names)
        return self._on_integer(text, op, of, names, unsigned)

    def _by_number(self, op: Op, dtype: DType, names: list[str], unsigned: bool, known: int) -> str:
        """A shift or a division by a number that needs no question; "" for any other."""
        kind, same = self.register_type(dtype), self.unsigned[dtype.bits]
        if op in (Op.SHL, Op.SHR) and 0 <= known < dtype.bits:
            if op is Op.SHR:
                return f"({kind})({names[0]} >> {known})"
            return f"({kind})(({self.wide(dtype)}){names[0]} << {known})"
        if op in (Op.FLOORDIV, Op.MOD) and unsigned and known > 0:
            suffix = self.suffixes[self.wide(dtype)]
            return f"({kind})(({same}){names[0]} {'/' if op is Op.FLOORDIV else '%'} {known}{suffix})"
        return ""

    def _on_bits(self, text: Text, op: Op, dtype: DType, names: list[str]) -> str:
        """float16 by way of float, whose results round to the same float16; the others are only stored."""
        if dtype is not dtypes.float16:
            raise RenderError(f"{op.name} on {dtype.name}: cast to float32 first (decompose does)")
        if op is Op.NEG:
            return f"({self.unsigned[16]})({names[0]} ^ 0x8000)"
        wide = [self.cast(text, (name, dtype), dtypes.float32) for name in names]
        value = self.arithmetic(text, op, dtypes.float32, [(name, dtypes.float32) for name in wide])
        return value if op in COMPARE else self.cast(text, (value, dtypes.float32), dtype)

    def _on_float(self, text: Text, op: Op, dtype: DType, names: list[str]) -> str:
        kind = self.register_type(dtype)
        if op is Op.NEG:
            return f"-{names[0]}" if not names[0].startswith("-") else f"-({names[0]})"
        if op in (Op.MAX, Op.MIN):  # a NaN in `a` compares false and stays
            word, sign = ("max", "<") if op is Op.MAX else ("min", ">")
            body = f"{{ return b != b ? b : a {sign} b ? b : a; }}"
            function = self.helper(text, f"{word}_{kind}", kind, f"{kind} a, {kind} b", body)
            return f"{function}({names[0]}, {names[1]})"
        raise RenderError(f"{op.name} on {dtype.name}: no instruction; decompose it first")

    def _on_integer(self, text: Text, op: Op, dtype: DType, names: list[str], unsigned: bool) -> str:
        if op in (Op.SHL, Op.SHR):
            function = self._shift(text, op, dtype)
        elif op in (Op.FLOORDIV, Op.MOD):
            function = self._divide(text, op, dtype, unsigned or dtype.is_unsigned)
        else:
            raise RenderError(f"{op.name} on {dtype.name}: not an integer operation")
        return f"{function}({names[0]}, {names[1]})"

    def helper(self, text: Text, name: str, result: str, parameters: str, body: str) -> str:
        """A function above the kernel; gives its name."""
        return text.helper(name, f"{self.inline} {result} {name}({parameters}) {body}")

    def wide(self, dtype: DType) -> str:
        """The unsigned type in which sums of a dtype wrap."""
        return self.unsigned[64 if dtype.bits == 64 else 32]

    def _shift(self, text: Text, op: Op, dtype: DType) -> str:
        """A count of the width or more gives 0, or the sign; a negative count is a huge one."""
        kind, same, width = self.register_type(dtype), self.unsigned[dtype.bits], dtype.bits
        if op is Op.SHL:
            body = f"{{ return ({same})n < {width} ? ({kind})(({self.wide(dtype)})a << n) : ({kind})0; }}"
            return self.helper(text, f"shl_{kind}", kind, f"{kind} a, {kind} n", body)
        if dtype.is_unsigned:
            body = f"{{ return n < {width} ? ({kind})(a >> n) : ({kind})0; }}"
        else:
            body = f"{{ return ({kind})(a >> (({same})n < {width} ? n : ({kind}){width - 1})); }}"
        return self.helper(text, f"shr_{kind}", kind, f"{kind} a, {kind} n", body)

    def _divide(self, text: Text, op: Op, dtype: DType, unsigned: bool) -> str:
        """Floor division and its remainder for every divisor: x // 0 = x % 0 = 0, and the least number // -1 wraps."""
        kind, same, wide = self.register_type(dtype), self.unsigned[dtype.bits], self.wide(dtype)
        word, sign = ("div", "/") if op is Op.FLOORDIV else ("mod", "%")
        if unsigned:
            body = f"{{ return b == 0 ? ({kind})0 : ({kind})(({same})a {sign} ({same})b); }}"
            return self.helper(text, f"{word}_plain_{kind}", kind, f"{kind} a, {kind} b", body)
        minus = f"({kind})(({wide})0 - ({wide})a)" if op is Op.FLOORDIV else f"({kind})0"
        moved = f"({kind})(a / b - 1) : ({kind})(a / b)" if op is Op.FLOORDIV else f"({kind})(r + b) : r"
        body = (
            "{\n"
            f"  if (b == 0) return ({kind})0;\n"
            f"  if (b == -1) return {minus};\n"
            f"  const {kind} r = ({kind})(a % b);\n"
            f"  return r != 0 && (r ^ b) < 0 ? {moved};\n"
            "}"
        )
        return self.helper(text, f"floor_{word}_{kind}", kind, f"{kind} a, {kind} b", body)

    # -- conversions ------------------------------------------------------------------------------------------------

    def cast(self, text: Text, source: Operand, to: DType) -> str:
        """The value under another dtype: to bool tests for zero, float to integer saturates and NaN becomes 0.

        Raises RenderError for what becomes an 8-bit float, and for what the dialect does not have.
        """
        name, of = source[0], source[1].scalar
        kind, _ = self.register_type(to), self.register_type(of)
        if of is to:
            return name
        if to.is_storage_only:
            raise RenderError(
                f"CAST {of.name} to {to.name}: 8-bit floats are made of their bits (decompose does)"
            )
        single = dtypes.float32
        if of.is_storage_only:
            return self.cast(text, (f"{self._from_minifloat(text, of)}({name})", dtypes.float16), to)
        if of is dtypes.bfloat16:
            return self.cast(text, (self.float_of(f"({self.unsigned[32]}){name} << 16"), single), to)
        if of is dtypes.float16:
            return self.cast(text, (self.from_half(text, name), single), to)
        if to is dtypes.bfloat16:
            return f"{self._to_bfloat16(text)}({self.cast(text, source, single)})"
        if to is dtypes.float16:
            return self.to_half(text, name, of)
        if to.is_bool:
            return f"({name}) != 0"
        if of.is_float and not to.is_float:
            return f"{self.to_integer(text, of, to)}({name})"
        return f"({kind})({name})"

    def _from_minifloat(self, text: Text, of: DType) -> str:
        """As float16: e5m2 is its upper half; e4m3 has a bit less of exponent, which counts 8 less."""
        bits, byte = self.unsigned[16], self.unsigned[8]
        if of is dtypes.fp8e5m2:
            return self.helper(text, "from_e5m2", bits, f"{byte} x", f"{{ return ({bits})(x << 8); }}")
        body = (
            "{\n"
            f"  const {bits} bits = ({bits})((x & 0x80) << 8 | (x & 0x7f) << 7);\n"
            f"{self.times_256(text)}"
            f"  return (x & 0x7f) == 0x7f ? ({bits})0x7e00 : r;\n"
            "}"
        )
        return self.helper(text, "from_e4m3", bits, f"{byte} x", body)

    def _to_bfloat16(self, text: Text) -> str:
        """Round to nearest even in integer arithmetic: exact for denormals too, and NaN stays NaN."""
        bits = self.unsigned[16]
        body = (
            "{\n"
            f"  const {self.unsigned[32]} bits = {self.bits_of('x')};\n"
            f"  return x != x ? ({bits})0x7fc0 : ({bits})((bits + 0x7fff + (bits >> 16 & 1)) >> 16);\n"
            "}"
        )
        return self.helper(text, "to_bf16", bits, f"{self.floats['float32']} x", body)

    def _bitcast(self, text: Text, source: Operand, to: DType) -> str:
        name, of = source[0], source[1].scalar
        if of.is_bool or to.is_bool:
            return self.cast(text, source, to)
        kind, into = self.register_type(of), self.register_type(to)
        return name if kind == into else self.bits_as(name, kind, into)

    # -- what a dialect says ----------------------------------------------------------------------------------------

    @abstractmethod
    def no_number(self, bits: int, dtype: DType) -> str:
        """An infinity or a NaN of float32 or float64."""

    @abstractmethod
    def float_of(self, bits: str) -> str:
        """The float32 of 32 bits."""

    @abstractmethod
    def bits_of(self, name: str) -> str:
        """The bits of a float32."""

    @abstractmethod
    def bits_as(self, name: str, kind: str, into: str) -> str:
        """The bits of a value of one type as another one of the same size."""

    @abstractmethod
    def from_half(self, text: Text, name: str) -> str:
        """float16 to float32."""

    @abstractmethod
    def to_half(self, text: Text, name: str, of: DType) -> str:
        """Rounded once to float16, to nearest even."""

    @abstractmethod
    def times_256(self, text: Text) -> str:
        """The line of a function that makes `r` of `bits`: that float16, 256 times as large."""

    @abstractmethod
    def to_integer(self, text: Text, of: DType, to: DType) -> str:
        """The function from a float to an integer, which saturates; NaN becomes 0."""


@cache
def _words(dialect: CArithmetic, op: Op, dtype: DType) -> str:
    """The declaration's expression for sources of a dtype, with {0}, {1}, {2} for them; "" where there is none."""
    spelled = ELEMENTWISE[op].spelled if op in ELEMENTWISE else {}
    spelling = spelled.get(dialect.dialect) or spelled.get("c")
    words = "" if spelling is None else spelling.of(dtype)
    if not words:
        return ""
    if not dtype.is_float and not dtype.is_bool:
        words = words.replace("{wide}", dialect.wide(dtype))
    words = words.replace("{kind}", dialect.register_type(dtype))
    return words.replace("{a}", "{0}").replace("{b}", "{1}").replace("{c}", "{2}")
