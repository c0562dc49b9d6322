"""Dequantise: what a block of 32 elements means, and blocks of ternary digits or single bits.

In       `Blocks`: the bytes of a tensor's blocks
Out      float32 tensors with the elements in order: expressions, nothing runs
Next     dequantise_k.py (blocks of 256 with scales inside), dequantise_grids.py (codes of several elements)
Source   ggml-common.h (block_q4_0 and its sisters, kvalues_iq4nl, kvalues_mxfp4), OCP Microscaling Formats 1.0

In blocks of 32 a byte of four-bit codes has element j in its low half and element j + 16 in its high half; in the
groups of 16 of NVFP4 it has j and j + 8.
"""

from __future__ import annotations

from hcq.frontend.io.block_parts import Blocks, Meaning
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

# the sixteen steps of IQ4_NL and IQ4_XS
STEPS_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# twice the numbers of E2M1
STEPS_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def counted(device: str, count: int, step: int, *shape: int, dtype: DType = dtypes.uint8) -> Tensor:
    """0, step, 2 step, ... in a shape: the shifts along an axis."""
    return (Tensor.arange(count, device=device, dtype=dtype) * step).reshape(*(shape or (count,)))


def nibbles(codes: Tensor) -> Tensor:
    """(..., 2, n) of bytes (..., 1, n): the low halves, then the high ones."""
    return (codes >> counted(codes.device, 2, 4, 2, 1)) & 15


def looked_up(codes: Tensor, steps: tuple[int, ...]) -> Tensor:
    """The steps that codes of four bits stand for, as float32: a byte of two whole numbers, so nothing is loaded."""
    low, high = (
        int.from_bytes(bytes(step & 255 for step in half), "little") for half in (steps[:8], steps[8:])
    )
    signed = [number - (1 << 64) if number >> 63 else number for number in (low, high)]
    eight = (codes < 8).where(*[Tensor(number, device=codes.device, dtype=dtypes.int64) for number in signed])
    byte = (eight >> ((codes & 7) << 3).cast(dtypes.int64)) & 255
    return byte.cast(dtypes.uint8).bitcast(dtypes.int8).cast(dtypes.float32)


_tables: dict[tuple[str, object], Tensor] = {}


def table(device: str, numbers: tuple[int, ...], width: int = 1) -> Tensor:
    """int8 numbers in memory of a device, once each; as rows of `width` where that is more than 1."""
    key = device, numbers
    found = _tables.get(key)
    if found is None:
        found = Tensor(list(numbers), device=device, dtype=dtypes.int8)
        if width > 1:
            found = found.reshape(len(numbers) // width, width)
        found = _tables.setdefault(key, found.realize())
    return found


def _fifth_bits(b: Blocks, begin: int) -> Tensor:
    """The fifth bits of 32 codes, in four bytes, as 0 or 16: (rows, blocks, 2, 16)."""
    words = b.words(begin, begin + 4, 2, 1)  # element j's is bit j
    shifts = counted(b.bytes.device, 16, 1, dtype=dtypes.uint16)
    return ((words >> shifts) & 1).cast(dtypes.uint8) << 4


def _q5_0(b: Blocks) -> Tensor:
    codes = nibbles(b.part(6, 22, 1, 16)) | _fifth_bits(b, 2)
    return (codes.cast(dtypes.float32) - 16) * b.float16(0, 2)


def _q5_1(b: Blocks) -> Tensor:
    codes = nibbles(b.part(8, 24, 1, 16)) | _fifth_bits(b, 4)
    return codes.cast(dtypes.float32) * b.float16(0, 2) + b.float16(2, 2)


def _mxfp4(b: Blocks) -> Tensor:
    """The first byte e scales by 2 ** (e - 127); the steps are twice as large, so by half of that."""
    e = b.part(0, 1, 1, 1).cast(dtypes.int32)
    normal = ((e - 1) << 23).bitcast(dtypes.float32)
    # 2**-128, 2**-127
    tiny = (e == 0).where(0x00200000, 0x00400000).cast(dtypes.int32).bitcast(dtypes.float32)
    return looked_up(nibbles(b.part(1, 17, 1, 16)), STEPS_E2M1) * (e < 2).where(tiny, normal)


def _nvfp4(b: Blocks) -> Tensor:
    """Four groups of 16, with a scale of E4M3 without a sign each; the steps are twice as large, so by half of that."""
    code = b.part(0, 4, 4, 1, 1)
    exponent = ((code >> 3) & 15).cast(dtypes.int32)
    fraction = (code & 7).cast(dtypes.float32)
    power = ((exponent + 119) << 23).bitcast(dtypes.float32)  # 2**(exponent - 8)
    scale = (exponent == 0).where(fraction * 2.0**-10, (fraction / 8 + 1) * power)
    return looked_up(nibbles(b.part(4, 36, 4, 1, 8)), STEPS_E2M1) * (code == 0x7F).where(0.0, scale)


def _ternary_digits(codes: Tensor, count: int) -> Tensor:
    """The first digits to base 3 of bytes (..., 1, n) that hold q / 3**5 in 1/256: (..., count, n) of -1, 0, 1."""
    powers = table(codes.device, (1, 3, 9, 27, 81))[:count].reshape(count, 1)
    left = codes * powers.bitcast(dtypes.uint8)  # the digits before overflow
    return ((left.cast(dtypes.int16) * 3) >> 8).cast(dtypes.float32) - 1


def _tq1_0(b: Blocks) -> Tensor:
    parts = [
        _ternary_digits(b.part(0, 32, 1, 32), 5).reshape(b.rows, b.count, 160),
        _ternary_digits(b.part(32, 48, 1, 16), 5).reshape(b.rows, b.count, 80),
        _ternary_digits(b.part(48, 52, 1, 4), 4).reshape(b.rows, b.count, 16),
    ]
    return beside(parts) * b.float16(52)


def beside(parts: list[Tensor]) -> Tensor:
    """Tensors one after another along the last axis, as a sum of padded ones: nothing of it needs memory."""
    size = sum(part.shape[-1] for part in parts)
    at, whole = 0, None
    for part in parts:
        width = part.shape[-1]
        padded = part.pad((at, size - at - width))
        whole = padded if whole is None else whole + padded
        at += width
    assert whole is not None
    return whole


def _tq2_0(b: Blocks) -> Tensor:
    codes = (b.part(0, 64, 2, 1, 32) >> counted(b.bytes.device, 4, 2, 4, 1)) & 3
    return (codes.cast(dtypes.float32) - 1) * b.float16(64, 3)


def _q1_0(b: Blocks) -> Tensor:
    """A bit for each of 128 elements, the lowest of a byte first: 1 is the scale, 0 its negative."""
    bits = (b.part(2, 18, 16, 1) >> counted(b.bytes.device, 8, 1)) & 1
    return (bits.cast(dtypes.float32) * 2 - 1) * b.float16(0, 2)


MEANINGS: dict[str, Meaning] = {
    "Q1_0": _q1_0,
    "Q4_0": lambda b: (nibbles(b.part(2, 18, 1, 16)).cast(dtypes.float32) - 8) * b.float16(0, 2),
    "Q4_1": lambda b: nibbles(b.part(4, 20, 1, 16)).cast(dtypes.float32) * b.float16(0, 2) + b.float16(2, 2),
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": lambda b: b.part(2, 34).bitcast(dtypes.int8).cast(dtypes.float32) * b.float16(0),
    "IQ4_NL": lambda b: looked_up(nibbles(b.part(2, 18, 1, 16)), STEPS_IQ4) * b.float16(0, 2),
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
}
