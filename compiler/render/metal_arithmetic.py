"""MSL's words for arithmetic: types, literals, functions, conversions.

In       what c_arithmetic.py asks of a dialect
Out      expressions, functions above the kernel
Next     c_arithmetic.py (operations), metal.py (statements, loops, memory), cuda_arithmetic.py (CUDA C's words)
Source   Metal Shading Language Specification 3.1 and 4: scalar types, math mode and contraction, "Numerical Compliance"

MSL is C++ without float64. Metal's GPUs take float32 below 2**-126 as zero; fast math, which would take more liberties,
is off (hcq/metal/device.py). Without it a product and a sum are fused within one statement only, so each statement of
metal.py has one operation on floats. How integers round to floats, MSL leaves open: to nearest even or towards zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hcq.compiler.render.c_arithmetic import CArithmetic, Text
from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.ir.dtype import DType, dtypes


class MetalArithmetic(CArithmetic):
    """The words of MSL."""

    dialect = "metal"
    floats: ClassVar[Mapping[str, str]] = {
        "bool": "bool",
        "index": "long",
        "float16": "ushort",
        "bfloat16": "ushort",
        "float32": "float",
        "fp8e4m3": "uchar",
        "fp8e5m2": "uchar",
    }
    signed: ClassVar[Mapping[int, str]] = {8: "char", 16: "short", 32: "int", 64: "long"}
    unsigned: ClassVar[Mapping[int, str]] = {8: "uchar", 16: "ushort", 32: "uint", 64: "ulong"}
    suffixes: ClassVar[Mapping[str, str]] = {"uint": "u", "long": "L", "ulong": "UL"}
    inline = "static inline"

    def register_type(self, dtype: DType) -> str:
        """The MSL type of one lane in a register. Raises RenderError for float64, which MSL does not have."""
        if dtype.scalar is dtypes.float64:
            raise RenderError(
                "float64: Metal's GPUs have no numbers of that size. Cast to float32 first: x.to(dtypes.float32)"
            )
        return super().register_type(dtype)

    def no_number(self, bits: int, dtype: DType) -> str:
        return f"as_type<float>({bits:#x}u)"

    def float_of(self, bits: str) -> str:
        return f"as_type<float>({bits})"

    def bits_of(self, name: str) -> str:
        return f"as_type<uint>({name})"

    def bits_as(self, name: str, kind: str, into: str) -> str:
        return f"as_type<{into}>({name})"

    def from_half(self, text: Text, name: str) -> str:
        return f"(float)as_type<half>({name})"

    def to_half(self, text: Text, name: str, of: DType) -> str:
        """From integers MSL leaves the rounding open."""
        return f"as_type<ushort>((half)({name}))"

    def times_256(self, text: Text) -> str:
        return "  const ushort r = as_type<ushort>((half)((float)as_type<half>(bits) * 256.0f));\n"

    def to_integer(self, text: Text, of: DType, to: DType) -> str:
        """What is too large or too small, or no number, is asked about first: there MSL leaves the result open."""
        kind = self.register_type(to)
        low, high = 0, (1 << to.bits) - 1
        if not to.is_unsigned:
            low, high = -(1 << to.bits - 1), (1 << to.bits - 1) - 1
        least, most = (self.literal(float(end), dtypes.float32) for end in (low, high + 1))
        body = (
            "{\n"
            f"  if (x != x) return ({kind})0;\n"
            f"  if (x <= {least}) return {self.literal(low, to)};\n"
            f"  if (x >= {most}) return {self.literal(high, to)};\n"
            f"  return ({kind})x;\n"
            "}"
        )
        return self.helper(text, f"to_{kind}", kind, "float x", body)


METAL = MetalArithmetic()
