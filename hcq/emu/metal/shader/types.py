"""Types of MSL: scalars as NumPy's, vectors of them, pointers; and how C joins two scalars.

In       names
Out      Type; `joined`, the type that an operation on two computes in
Next     parser.py (reads them), translate.py (computes in them)
Source   Metal Shading Language Specification, "Scalar Data Types", "Vector Data Types"; C++14, usual arithmetic
         conversions
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

SCALARS = {
    "bool": "bool_",
    "char": "int8",
    "uchar": "uint8",
    "short": "int16",
    "ushort": "uint16",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "ulong": "uint64",
    "half": "float16",
    "bfloat": "uint16",  # its bits: NumPy has no such numbers, and nothing computes in them but matrices
    "float": "float32",
}
SIZES = {
    "bool": 1,
    "char": 1,
    "uchar": 1,
    "short": 2,
    "ushort": 2,
    "int": 4,
    "uint": 4,
    "long": 8,
    "ulong": 8,
    "half": 2,
    "bfloat": 2,
    "float": 4,
}
_VECTOR = re.compile(r"([a-z]+?)([234])")
_MATRIX = re.compile(r"simdgroup_(half|bfloat|float)8x8")


@dataclass(frozen=True)
class Type:
    """A scalar, a vector of `lanes`, or a pointer to one in a space of memory.

    is_matrix   of a SIMD group: `lanes` are those that a thread has of it
    is_reference  of a pointer: its name stands for what is there
    """

    scalar: str
    lanes: int = 1
    space: str = ""  # of a pointer: "device", "constant", "threadgroup"
    is_matrix: bool = False
    is_reference: bool = False

    @property
    def numpy(self) -> str:
        """NumPy's name of the scalar."""
        return SCALARS[self.scalar]

    @property
    def size_bytes(self) -> int:
        """Of one value; three lanes take the room of four."""
        return SIZES[self.scalar] * (4 if self.lanes == 3 else self.lanes)

    @property
    def is_float(self) -> bool:
        """Whether it is a number with a fraction."""
        return self.scalar in ("half", "bfloat", "float")

    @property
    def is_unsigned(self) -> bool:
        """Whether it has no negative numbers."""
        return self.scalar in ("bool", "uchar", "ushort", "uint", "ulong")

    @property
    def bits(self) -> int:
        """Of the scalar."""
        return 8 * SIZES[self.scalar]

    @property
    def element(self) -> Type:
        """What a vector or a pointer is of."""
        return Type(self.scalar) if not self.space else replace(self, space="", is_reference=False)

    def __str__(self) -> str:
        if self.is_matrix:
            return f"simdgroup_{self.scalar}8x8"
        name = self.scalar + (str(self.lanes) if self.lanes > 1 else "")
        return f"{self.space} {name} *" if self.space else name


BOOL, INT, UINT, LONG, FLOAT = (Type(one) for one in ("bool", "int", "uint", "long", "float"))


ALIASES = {
    **{f"atomic_{name}": name for name in ("int", "uint", "float", "ulong", "bool")},
    **{f"{sign}int{bits}_t": f"{sign}{name}" for sign in ("", "u") for bits, name in
       ((8, "char"), (16, "short"), (32, "int"), (64, "long"))},
    "atomic": "int",  # atomic<T>: the parser reads the T
    "unsigned": "uint",
    "size_t": "ulong",
}  # fmt: skip


def named(name: str) -> Type | None:
    """A scalar, a vector or a matrix type by its name."""
    name = ALIASES.get(name, name)
    if name in SCALARS:
        return Type(name)
    if matrix := _MATRIX.fullmatch(name):
        return Type(matrix[1], 2, is_matrix=True)
    found = _VECTOR.fullmatch(name)
    return Type(found[1], int(found[2])) if found and found[1] in SCALARS else None


def promoted(kind: Type) -> Type:
    """What a narrow integer becomes before it is computed with."""
    return INT if not kind.is_float and kind.bits < 32 else kind


def joined(a: Type, b: Type) -> Type:
    """The type in which an operation on both computes."""
    if a.is_float or b.is_float:
        floats = [one for one in (a, b) if one.is_float]
        return max(floats, key=lambda one: one.bits)
    a, b = promoted(a), promoted(b)
    if a.bits != b.bits:
        return max(a, b, key=lambda one: one.bits)
    return a if a.is_unsigned else b
