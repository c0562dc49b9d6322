"""Dequantise grids: what a block means whose codes name rows of a grid, four or eight elements at a time.

In       `Blocks`: the bytes of a tensor's blocks
Out      float32 tensors with the elements in order: expressions, nothing runs
Changes  the grid in memory of a device, once for each device (dequantise.py: table)
Next     grids.py (the rows), dequantise.py (the helpers)
Source   ggml-common.h (block_iq1_s to block_iq3_s, ksigns_iq2xs, IQ1S_DELTA)

A block of 256 has eight parts of 32, and a part four groups of 8: shapes are (rows, blocks, 8, 4, 8), or less. Signs
are a bit for each element of a group; where seven are kept, the eighth makes their number even.
"""

from __future__ import annotations

from hcq.frontend.io.block_parts import Blocks, Meaning
from hcq.frontend.io.dequantise import counted, table
from hcq.frontend.io.grids import grid, width
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

DELTA = 0.125


def _rows(form: str, codes: Tensor) -> Tensor:
    """The rows of a grid that codes (rows, blocks, ..., n) name, (..., n, elements of a row), as float32."""
    found = table(codes.device, grid(form), width(form))
    return found[codes.cast(dtypes.int32)].cast(dtypes.float32)


def _signs(bits: Tensor) -> Tensor:
    """-1 where the bit of an element is set, else 1: (..., 8) of bytes (..., 1)."""
    is_set = (bits >> counted(bits.device, 8, 1)) & 1
    return 1 - is_set.cast(dtypes.float32) * 2


def _even(seven: Tensor) -> Tensor:
    """Seven bits and the eighth that makes the number of set ones even, as uint8."""
    folded = seven ^ (seven >> 4)
    folded = folded ^ (folded >> 2)
    folded = (folded ^ (folded >> 1)) & 1
    return (seven | (folded << 7)).cast(dtypes.uint8)


def _wide(b: Blocks, begin: int, end: int, *shape: int) -> Tensor:
    """Four bytes each as uint32, (rows, blocks, *shape)."""
    words = b.words(begin, end, (end - begin) // 4, 2).cast(dtypes.uint32)
    return (words[..., 0] | (words[..., 1] << 16)).reshape(b.rows, b.count, *shape)


def _signs_of_words(words: Tensor) -> Tensor:
    """Four groups of seven bits in words (rows, blocks, 8, 1, 1): signs (rows, blocks, 8, 4, 8)."""
    seven = (words >> counted(words.device, 4, 7, 4, 1, dtype=dtypes.uint32)) & 127
    return _signs(_even(seven.cast(dtypes.uint8)))


def _iq2_xxs(b: Blocks) -> Tensor:
    parts = b.part(2, 66, 8, 8)  # of each, four codes, then a word: four groups of signs and a scale
    words = b.words(2, 66, 8, 4).cast(dtypes.uint32)
    word = (words[..., 2:3] | (words[..., 3:4] << 16)).reshape(b.rows, b.count, 8, 1, 1)
    scale = b.float16(0, 3) * ((word >> 28).cast(dtypes.float32) + 0.5) * 0.25
    return _rows("IQ2_XXS", parts[..., :4]) * _signs_of_words(word) * scale


def _two_scales(b: Blocks, begin: int) -> Tensor:
    """Four bits for each half of a part, eight bytes: (rows, blocks, 8, 2, 1, 1) as float32."""
    both = b.part(begin, begin + 8, 8, 1) >> counted(b.bytes.device, 2, 4)
    return (both & 15).cast(dtypes.float32).reshape(b.rows, b.count, 8, 2, 1, 1)


def _in_halves(b: Blocks, groups: Tensor) -> Tensor:
    """(rows, blocks, 8, 4, 8) as (rows, blocks, 8, 2, 2, 8)."""
    return groups.reshape(b.rows, b.count, 8, 2, 2, 8)


def _iq2_xs(b: Blocks) -> Tensor:
    words = b.words(2, 66, 8, 4)
    signs = _signs(_even((words >> 9).cast(dtypes.uint8)).reshape(b.rows, b.count, 8, 4, 1))
    scale = b.float16(0, 4) * (_two_scales(b, 66) + 0.5) * 0.25
    return _in_halves(b, _rows("IQ2_XS", words & 511) * signs) * scale


def _iq2_s(b: Blocks) -> Tensor:
    high = (b.part(66, 74, 8, 1) >> counted(b.bytes.device, 4, 2)) & 3
    codes = b.part(2, 34, 8, 4).cast(dtypes.int32) | (high.cast(dtypes.int32) << 8)
    signs = _signs(b.part(34, 66, 8, 4, 1))
    scale = b.float16(0, 4) * (_two_scales(b, 74) + 0.5) * 0.25
    return _in_halves(b, _rows("IQ2_S", codes) * signs) * scale


def _iq3_xxs(b: Blocks) -> Tensor:
    word = _wide(b, 66, 98, 8, 1, 1)
    scale = b.float16(0, 3) * ((word >> 28).cast(dtypes.float32) + 0.5) * 0.5
    groups = _rows("IQ3_XXS", b.part(2, 66, 8, 8)).reshape(b.rows, b.count, 8, 4, 8)
    return groups * _signs_of_words(word) * scale


def _iq3_s(b: Blocks) -> Tensor:
    device = b.bytes.device
    high = (b.part(66, 74, 8, 1) >> counted(device, 8, 1)) & 1
    codes = b.part(2, 66, 8, 8).cast(dtypes.int32) | (high.cast(dtypes.int32) << 8)
    groups = _rows("IQ3_S", codes).reshape(b.rows, b.count, 8, 4, 8)
    signs = _signs(b.part(74, 106, 8, 4, 1))
    scales = (b.part(106, 110, 4, 1) >> counted(device, 2, 4)) & 15
    scale = b.float16(0, 3) * (scales.reshape(b.rows, b.count, 8, 1, 1).cast(dtypes.float32) * 2 + 1)
    return groups * signs * scale


def _iq1_s(b: Blocks) -> Tensor:
    words = b.words(34, 50, 8, 1)
    high = (words >> counted(b.bytes.device, 4, 3, dtype=dtypes.uint16)) & 7
    codes = b.part(2, 34, 8, 4).cast(dtypes.int32) | (high.cast(dtypes.int32) << 8)
    part = words.reshape(b.rows, b.count, 8, 1, 1)
    delta = DELTA - (part >> 15).cast(dtypes.float32) * (2 * DELTA)
    scale = b.float16(0, 3) * (((part >> 12) & 7).cast(dtypes.float32) * 2 + 1)
    return (_rows("IQ1_S", codes) + delta) * scale


def _iq1_m(b: Blocks) -> Tensor:
    device = b.bytes.device
    # four bits above each group's byte: three of its code, one for the sign of the difference
    four = ((b.part(32, 48, 8, 2, 1) >> counted(device, 2, 4)) & 15).reshape(b.rows, b.count, 8, 4)
    codes = b.part(0, 32, 8, 4).cast(dtypes.int32) | ((four & 7).cast(dtypes.int32) << 8)
    delta = DELTA - (four >> 3).cast(dtypes.float32).reshape(b.rows, b.count, 8, 4, 1) * (2 * DELTA)
    # four words: twelve bits of four scales each, and above them four bits each of a float16
    words = b.words(48, 56, 4)
    top = [words[..., i : i + 1] >> 12 for i in range(4)]
    bits = top[0] | (top[1] << 4) | (top[2] << 8) | (top[3] << 12)
    whole = bits.bitcast(dtypes.float16).cast(dtypes.float32).reshape(b.rows, b.count, 1, 1, 1, 1)
    scales = (words.reshape(b.rows, b.count, 4, 1) >> counted(device, 4, 3, dtype=dtypes.uint16)) & 7
    scale = whole * (scales.cast(dtypes.float32).reshape(b.rows, b.count, 8, 2, 1, 1) * 2 + 1)
    return _in_halves(b, _rows("IQ1_M", codes) + delta) * scale


MEANINGS: dict[str, Meaning] = {
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
}
