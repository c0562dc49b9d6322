"""CUDA C's words for arithmetic: types, literals, functions, conversions.

In       what c_arithmetic.py asks of a dialect
Out      expressions, functions above the kernel
Next     c_arithmetic.py (operations), cuda.py (statements, memory), llvm_arithmetic.py (the same in LLVM's words)
Source   CUDA C++ Programming Guide and Math API (which conversions round or saturate how); PTX ISA, cvt

Conversions are PTX's own, so no header is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hcq.compiler.render.c_arithmetic import CArithmetic, Text
from hcq.ir.dtype import DType, dtypes

PRELUDE = """\
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;"""

_BITS = (8, 16, 32, 64)
_FROM_FLOAT = {  # round to zero, saturating: what cvt.rzi does
    "i32": "int",
    "u32": "uint",
    "i64": "ll",
    "u64": "ull",
}


class CudaArithmetic(CArithmetic):
    """The words of CUDA C, with the short names of PRELUDE."""

    dialect = "cuda"
    floats: ClassVar[Mapping[str, str]] = {
        "bool": "bool",
        "index": "i64",
        "float16": "u16",
        "bfloat16": "u16",
        "float32": "f32",
        "float64": "f64",
        "fp8e4m3": "u8",
        "fp8e5m2": "u8",
    }
    signed: ClassVar[Mapping[int, str]] = {bits: f"i{bits}" for bits in _BITS}
    unsigned: ClassVar[Mapping[int, str]] = {bits: f"u{bits}" for bits in _BITS}
    suffixes: ClassVar[Mapping[str, str]] = {"u32": "u", "i64": "LL", "u64": "ULL"}
    inline = "static __device__ __forceinline__"

    def no_number(self, bits: int, dtype: DType) -> str:
        if dtype is dtypes.float32:
            return f"__uint_as_float({bits:#x}u)"
        return f"__longlong_as_double((i64){bits:#x}ULL)"

    def float_of(self, bits: str) -> str:
        return f"__uint_as_float({bits})"

    def bits_of(self, name: str) -> str:
        return f"__float_as_uint({name})"

    def bits_as(self, name: str, kind: str, into: str) -> str:
        if kind == "f32":
            return f"({into})__float_as_uint({name})"
        if kind == "f64":
            return f"({into})__double_as_longlong({name})"
        if into == "f32":
            return f"__uint_as_float((u32){name})"
        if into == "f64":
            return f"__longlong_as_double((i64){name})"
        return f"({into}){name}"

    def from_half(self, text: Text, name: str) -> str:
        body = '{ f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }'
        return f"{self.helper(text, 'from_f16', 'f32', 'u16 x', body)}({name})"

    def to_half(self, text: Text, name: str, of: DType) -> str:
        """Also from float64 and from integers."""
        letters = {"f32": "f", "f64": "d", "i32": "r", "u32": "r", "i64": "l", "u64": "l"}
        kind = self.register_type(of)
        if kind not in letters:  # narrower integers and bool fit in an int
            kind = "i32"
        body = (
            f'{{ u16 r; asm("cvt.rn.f16.{kind.replace("i", "s")} %0, %1;" : "=h"(r) : "{letters[kind]}"(x)); '
            "return r; }"
        )
        function = self.helper(text, f"to_f16_{kind}", "u16", f"{kind} x", body)
        return f"{function}({name})"

    def times_256(self, text: Text) -> str:
        return (
            "  u16 r;\n"
            '  asm("mul.rn.f16 %0, %1, %2;" : "=h"(r) : "h"(bits), "h"((u16)0x5c00));  // the half of 256\n'
        )

    def to_integer(self, text: Text, of: DType, to: DType) -> str:
        """cvt.rzi saturates; what it makes of NaN depends on the sizes, so NaN is asked about."""
        kind, source = self.register_type(to), self.register_type(of)
        wide = kind if to.bits >= 32 else "i32"
        convert = f"__{'float' if source == 'f32' else 'double'}2{_FROM_FLOAT[wide]}_rz(x)"
        name = f"to_{kind}_{source}"
        if wide == kind:
            return self.helper(text, name, kind, f"{source} x", f"{{ return x != x ? 0 : {convert}; }}")
        low, high = 0, (1 << to.bits) - 1
        if not to.is_unsigned:
            low, high = -(1 << to.bits - 1), (1 << to.bits - 1) - 1
        body = f"{{ i32 r = x != x ? 0 : {convert}; return r < {low} ? {low} : r > {high} ? {high} : r; }}"
        return self.helper(text, name, kind, f"{source} x", body)


CUDA = CudaArithmetic()
