"""Number formats: what a value's bits mean, which formats mix, and how a Python number becomes bits.

In       names, Python numbers
Out      `DType` singletons (compare with `is`), promotion, byte encodings
Next     op.py (what can be done with them), meaning.py (what it computes)
Source   IEEE 754 (float16/32/64), bfloat16 = the upper half of float32, OCP 8-bit floating point 1.0 (e4m3, e5m2)
"""

from __future__ import annotations

import math
import struct
from enum import Enum

Scalar = bool | int | float


class Kind(Enum):
    """What the bits of a format stand for."""

    BOOL = "bool"
    UINT = "uint"
    INT = "int"
    FLOAT = "float"
    INDEX = "index"  # address arithmetic: never overflows, the target picks its width
    COMPLEX = (
        "complex"  # a pair of floats: known to the tensor layer, which computes with the pair; no node has it
    )


class DType:
    """One number format. Made once here; `vec(n)` gives the vector of n lanes, made once as well.

    >>> dtypes.float32.itemsize, dtypes.int8.min
    (4, -128)
    """

    __slots__ = ("name", "kind", "itemsize", "rank", "lanes", "scalar", "_vectors")

    def __init__(
        self, name: str, kind: Kind, itemsize: int, rank: int, lanes: int = 1, scalar: DType | None = None
    ):
        self.name = name
        self.kind = kind
        self.itemsize = itemsize  # bytes of one lane
        self.rank = rank  # promotion: the higher rank of one kind wins
        self.lanes = lanes
        self.scalar: DType = scalar or self
        self._vectors: dict[int, DType] = {}

    def vec(self, lanes: int) -> DType:
        """The vector type of that many lanes; `vec(1)` is the scalar itself."""
        if lanes == 1:
            return self.scalar
        scalar = self.scalar
        if lanes not in scalar._vectors:
            name = f"{scalar.name}x{lanes}"
            scalar._vectors[lanes] = DType(name, scalar.kind, scalar.itemsize, scalar.rank, lanes, scalar)
        return scalar._vectors[lanes]

    @property
    def bits(self) -> int:
        """Bits of one lane; 1 for bool."""
        return 1 if self.kind is Kind.BOOL else self.itemsize * 8

    @property
    def is_floating_point(self) -> bool:
        """`is_float`, as PyTorch calls it.

        >>> hcq.float16.is_floating_point, hcq.int64.is_floating_point
        (True, False)
        """
        return self.is_float

    @property
    def is_signed(self) -> bool:
        """Whether it has numbers below zero.

        >>> hcq.int8.is_signed, hcq.uint8.is_signed, hcq.bool.is_signed
        (True, False, False)
        """
        return not (self.is_unsigned or self.is_bool)

    @property
    def is_float(self) -> bool:
        """True for the floating-point formats, those of 8 bits included."""
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        """Signed, unsigned or index; not bool."""
        return self.kind in _INTEGERS

    @property
    def is_unsigned(self) -> bool:
        """True for the unsigned integers."""
        return self.kind is Kind.UINT

    @property
    def is_bool(self) -> bool:
        """True for bool."""
        return self.kind is Kind.BOOL

    @property
    def is_complex(self) -> bool:
        """True for complex64 and complex128."""
        return self.kind is Kind.COMPLEX

    @property
    def is_storage_only(self) -> bool:
        """True for 8-bit floats: they are loaded, stored and cast, never computed with."""
        return self.kind is Kind.FLOAT and self.itemsize == 1

    @property
    def min(self) -> Scalar:
        """The least value; -inf for floats."""
        if self.kind is Kind.FLOAT:
            return -math.inf
        if self.kind is Kind.BOOL:
            return False
        return 0 if self.kind is Kind.UINT else -(1 << (8 * self.itemsize - 1))

    @property
    def max(self) -> Scalar:
        """The greatest value; inf for floats."""
        if self.kind is Kind.FLOAT:
            return math.inf
        if self.kind is Kind.BOOL:
            return True
        return (1 << (8 * self.itemsize - (0 if self.kind is Kind.UINT else 1))) - 1

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __reduce__(self) -> str:
        raise TypeError(
            "a DType is a singleton and is not pickled; store its name and use dtypes.named(name)"
        )


class ComplexDType(DType):
    """A format whose numbers are pairs of `part`: the real and the imaginary part. No node of a graph has it."""

    __slots__ = ("part",)

    def __init__(self, name: str, part: DType):
        super().__init__(name, Kind.COMPLEX, 2 * part.itemsize, part.rank)
        self.part = part


_INTEGERS = frozenset({Kind.INT, Kind.UINT, Kind.INDEX})


class dtypes:
    """The formats by name, as `dtypes.float32`.

    >>> dtypes.float32.itemsize, dtypes.int8.is_float
    (4, False)
    """

    bool = DType("bool", Kind.BOOL, 1, 0)
    uint8 = DType("uint8", Kind.UINT, 1, 1)
    uint16 = DType("uint16", Kind.UINT, 2, 2)
    uint32 = DType("uint32", Kind.UINT, 4, 3)
    uint64 = DType("uint64", Kind.UINT, 8, 4)
    int8 = DType("int8", Kind.INT, 1, 1)
    int16 = DType("int16", Kind.INT, 2, 2)
    int32 = DType("int32", Kind.INT, 4, 3)
    int64 = DType("int64", Kind.INT, 8, 4)
    fp8e4m3 = DType("fp8e4m3", Kind.FLOAT, 1, 1)
    fp8e5m2 = DType("fp8e5m2", Kind.FLOAT, 1, 1)
    float16 = DType("float16", Kind.FLOAT, 2, 2)
    bfloat16 = DType("bfloat16", Kind.FLOAT, 2, 2)
    float32 = DType("float32", Kind.FLOAT, 4, 3)
    float64 = DType("float64", Kind.FLOAT, 8, 4)
    index = DType("index", Kind.INDEX, 8, 9)
    complex64 = ComplexDType("complex64", float32)
    complex128 = ComplexDType("complex128", float64)

    half = float16
    float = float32
    double = float64
    short = int16
    int = int32
    long = int64
    cfloat = complex64
    cdouble = complex128

    @staticmethod
    def named(name: str) -> DType:
        """The format of that name, `DType.name` or PyTorch's word for it; KeyError lists the known ones.

        >>> dtypes.named("float32") is hcq.float32, dtypes.named("half")
        (True, dtypes.float16)
        """
        try:
            return NAMED[name]
        except KeyError:
            raise KeyError(f"no dtype named {name!r}; known: {', '.join(sorted(NAMED))}") from None


ALL = tuple(v for k, v in vars(dtypes).items() if type(v) is DType and v.name == k and v is not dtypes.index)
FLOATS = tuple(d for d in ALL if d.is_float)
INTEGERS = tuple(d for d in ALL if d.is_integer)
NAMED: dict[str, DType] = {d.name: d for d in ALL} | {
    "half": dtypes.float16,
    "float": dtypes.float32,
    "double": dtypes.float64,
    "short": dtypes.int16,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "float8_e4m3fn": dtypes.fp8e4m3,
    "float8_e5m2": dtypes.fp8e5m2,
}
COMPLEX = {dtype.name: dtype for dtype in (dtypes.complex64, dtypes.complex128)}


def promote(a: DType, b: DType) -> DType:
    """The format two tensors meet in, as PyTorch decides: bool < integers < floats, the wider one of a kind wins.

    Where neither holds the other (int8 with uint8, float16 with bfloat16) the next wider signed or float format is it;
    uint64 with a signed integer gives float32, as the array API leaves it open and no integer holds both.
    """
    if a is b:
        return a
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.is_float or b.is_float:
        if not b.is_float:
            return a
        if not a.is_float:
            return b
        if a.rank != b.rank:
            return a if a.rank > b.rank else b
        return dtypes.float32 if a.itemsize == 2 else dtypes.float16
    if a.kind is b.kind:
        return a if a.rank > b.rank else b
    signed, unsigned = (a, b) if a.kind is Kind.INT else (b, a)
    if signed.rank > unsigned.rank:
        return signed
    wider = {1: dtypes.int16, 2: dtypes.int32, 3: dtypes.int64}
    return wider.get(unsigned.rank, dtypes.float32)


def promote_scalar(dtype: DType, value: Scalar) -> DType:
    """The format of `tensor op python_number`: the tensor's own, unless the number is of a higher kind (2 * 0.5)."""
    if isinstance(value, bool):
        return dtype
    if isinstance(value, int):
        return dtypes.int64 if dtype.is_bool else dtype
    return dtype if dtype.is_float else dtypes.float32


# -- Python numbers to bits and back --------------------------------------------------------------------------------

_STRUCT = {
    "bool": "?",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


def struct_code(dtype: DType) -> str | None:
    """The `struct` letter of the format, None where Python has none (bfloat16, 8-bit floats)."""
    return _STRUCT.get(dtype.name)


def truncate(value: Scalar, dtype: DType) -> Scalar:
    """The number of that format that `value` becomes: integers wrap, floats round to nearest even, NaN is kept."""
    if dtype.kind is Kind.BOOL:
        return bool(value)
    if dtype.kind is Kind.INDEX:
        return int(value)
    if dtype.kind is Kind.FLOAT:
        return from_bits(to_bits(float(value), dtype), dtype)
    bits = 8 * dtype.itemsize
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if dtype.kind is Kind.INT and wrapped >> (bits - 1) else wrapped


def element(value: Scalar, dtype: DType) -> Scalar:
    """The number that an element keeps when it is given this one: -1 in uint8 is 255, as in PyTorch and C.

    What an unsigned format has no negative counterpart of, -256 in uint8, stays as it is, and so does -1.5.
    """
    is_wrapped = dtype.kind is Kind.UINT and type(value) is int and -dtype.max <= value < 0
    return truncate(value, dtype) if is_wrapped else value


def to_bits(value: Scalar, dtype: DType) -> int:
    """The bits of a number in a format, as an unsigned integer; a float too large becomes infinity (e4m3: NaN)."""
    if dtype.kind is not Kind.FLOAT:
        return int(value) & ((1 << (8 * dtype.itemsize)) - 1)
    value = float(value)
    if dtype is dtypes.float64:
        return int.from_bytes(struct.pack("<d", value), "little")
    exponent_bits, mantissa_bits = _FLOAT_FORMATS[dtype.name]
    return _round_to_format(value, exponent_bits, mantissa_bits, has_infinity=dtype is not dtypes.fp8e4m3)


def from_bits(bits: int, dtype: DType) -> Scalar:
    """The number a bit pattern stands for; inverse of `to_bits` for every value of the format."""
    if dtype.kind is Kind.BOOL:
        return bool(bits)
    if dtype.kind is not Kind.FLOAT:
        return truncate(bits, dtype)
    if dtype is dtypes.float64:
        return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])
    exponent_bits, mantissa_bits = _FLOAT_FORMATS[dtype.name]
    bias = (1 << (exponent_bits - 1)) - 1
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) & 1 else 1.0
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        if dtype is dtypes.fp8e4m3:
            if mantissa == (1 << mantissa_bits) - 1:
                return math.nan
        else:
            return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)


_FLOAT_FORMATS = {  # exponent bits, mantissa bits
    "fp8e4m3": (4, 3),
    "fp8e5m2": (5, 2),
    "float16": (5, 10),
    "bfloat16": (8, 7),
    "float32": (8, 23),
    "float64": (11, 52),
}


def float_format(dtype: DType) -> tuple[int, int]:
    """The bits of the exponent and of the mantissa of a floating point format: (8, 23) for float32."""
    return _FLOAT_FORMATS[dtype.name]


def _round_to_format(value: float, exponent_bits: int, mantissa_bits: int, has_infinity: bool) -> int:
    sign = (1 if math.copysign(1.0, value) < 0 else 0) << (exponent_bits + mantissa_bits)
    top = (1 << exponent_bits) - 1
    bias = (1 << (exponent_bits - 1)) - 1
    nan = (
        sign | top << mantissa_bits | (1 << (mantissa_bits - 1) if has_infinity else (1 << mantissa_bits) - 1)
    )
    infinity = sign | top << mantissa_bits if has_infinity else nan
    if math.isnan(value):
        return nan
    magnitude = abs(value)
    if math.isinf(magnitude):
        return infinity
    if magnitude == 0.0:
        return sign
    exponent = max(math.frexp(magnitude)[1] - 1, 1 - bias)
    # round() is to nearest even, and ldexp is exact here: a double has bits to spare over every format of this table
    steps = round(math.ldexp(magnitude, mantissa_bits - exponent))
    if steps >> (mantissa_bits + 1):
        steps, exponent = steps >> 1, exponent + 1
    biased = exponent + bias if steps >> mantissa_bits else 0
    pattern = biased << mantissa_bits | (steps & ((1 << mantissa_bits) - 1))
    largest = (
        (top << mantissa_bits) - 1 if has_infinity else (top << mantissa_bits | (1 << mantissa_bits) - 2)
    )
    return infinity if biased > top or pattern > largest else sign | pattern
