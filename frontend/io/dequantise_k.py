"""Dequantise K: what a block of 256 elements with scales of its parts inside means.

In       `Blocks`: the bytes of a tensor's blocks
Out      float32 tensors with the elements in order: expressions, nothing runs
Next     dequantise.py (smaller blocks; the helpers), dequantise_grids.py
Source   ggml-common.h (block_q2_K to block_q8_K, block_iq4_xs)

Shapes are (rows, blocks, ...): what follows are the axes of a block, the slowest first, so that elements are in order.
"""

from __future__ import annotations

from hcq.frontend.io.block_parts import Blocks, Meaning
from hcq.frontend.io.dequantise import STEPS_IQ4, counted, looked_up, nibbles
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def _halves_shifted(codes: Tensor, step: int, count: int) -> Tensor:
    """Bytes (..., 1, n) shifted right by 0, step, ...: (..., count, n)."""
    return codes >> counted(codes.device, count, step, count, 1)


def _q2_k(b: Blocks) -> Tensor:
    codes = (_halves_shifted(b.part(16, 80, 2, 1, 32), 2, 4) & 3).reshape(b.rows, b.count, 2, 4, 2, 16)
    scales = b.part(0, 16, 2, 4, 2, 1)
    step = b.float16(80, 4) * (scales & 15).cast(dtypes.float32)
    least = b.float16(82, 4) * (scales >> 4).cast(dtypes.float32)
    return codes.cast(dtypes.float32) * step - least


def _q3_k(b: Blocks) -> Tensor:
    device = b.bytes.device
    low = _halves_shifted(b.part(32, 96, 2, 1, 32), 2, 4) & 3  # (2, 4, 32)
    third = (b.part(0, 32, 1, 1, 32) >> counted(device, 8, 1, 2, 4, 1)) & 1
    codes = (low | (third << 2)).reshape(b.rows, b.count, 2, 4, 2, 16).cast(dtypes.float32) - 4
    # scale i of 16: four bits in byte i % 8, two more in byte 8 + i % 4
    four = _halves_shifted(b.part(96, 104, 1, 8), 4, 2).reshape(b.rows, b.count, 16) & 15
    two = _halves_shifted(b.part(104, 108, 1, 4), 2, 4).reshape(b.rows, b.count, 16) & 3
    scales = (four | (two << 4)).reshape(b.rows, b.count, 2, 4, 2, 1).cast(dtypes.float32) - 32
    return codes * (b.float16(108, 4) * scales)


def _six_bit_scales(b: Blocks) -> tuple[Tensor, Tensor]:
    """Scales and least values of eight parts in twelve bytes from byte 4 on: (rows, blocks, 2, 4) each.

    The first four have six bits of bytes 0-3 and 4-7; the last four have a half of bytes 8-11 each, and above that the
    two upper bits of the bytes before.
    """
    a, m, c = (b.part(at, at + 4, 1, 4) for at in (4, 8, 12))
    first = counted(b.bytes.device, 2, 1, 2, 1) == 0
    scale = first.where(a & 63, (c & 15) | ((a >> 6) << 4))
    least = first.where(m & 63, (c >> 4) | ((m >> 6) << 4))
    return scale.cast(dtypes.float32), least.cast(dtypes.float32)


def _with_six_bit_scales(b: Blocks, codes: Tensor) -> Tensor:
    """codes (rows, blocks, 4, 2, 32) of eight parts."""
    scale, least = (x.reshape(b.rows, b.count, 4, 2, 1) for x in _six_bit_scales(b))
    return codes.cast(dtypes.float32) * (b.float16(0, 3) * scale) - b.float16(2, 3) * least


def _q5_k(b: Blocks) -> Tensor:
    fifth = (b.part(16, 48, 1, 1, 32) >> counted(b.bytes.device, 8, 1, 4, 2, 1)) & 1
    return _with_six_bit_scales(b, nibbles(b.part(48, 176, 4, 1, 32)) | (fifth << 4))


def _q6_k(b: Blocks) -> Tensor:
    # halves of 64: two times 32 each
    low = nibbles(b.part(0, 128, 2, 1, 64)).reshape(b.rows, b.count, 2, 4, 32)
    high = _halves_shifted(b.part(128, 192, 2, 1, 32), 2, 4) & 3
    codes = (low | (high << 4)).reshape(b.rows, b.count, 2, 4, 2, 16).cast(dtypes.float32) - 32
    scales = b.part(192, 208, 2, 4, 2, 1).bitcast(dtypes.int8).cast(dtypes.float32)
    return codes * (b.float16(208, 4) * scales)


def _q8_k(b: Blocks) -> Tensor:
    low, high = b.words(0, 2).cast(dtypes.uint32), b.words(2, 4).cast(dtypes.uint32)
    scale = (low | (high << 16)).bitcast(dtypes.float32)
    return b.part(4, 260).bitcast(dtypes.int8).cast(dtypes.float32) * scale


def _iq4_xs(b: Blocks) -> Tensor:
    codes = looked_up(nibbles(b.part(8, 136, 8, 1, 16)), STEPS_IQ4)
    low = _halves_shifted(b.part(4, 8, 4, 1, 1), 4, 2).reshape(b.rows, b.count, 8, 1, 1) & 15
    high = (b.words(2, 4, 1, 1, 1) >> counted(b.bytes.device, 8, 2, 8, 1, 1, dtype=dtypes.uint16)) & 3
    scales = (low | (high.cast(dtypes.uint8) << 4)).cast(dtypes.float32) - 32
    return codes * (b.float16(0, 3) * scales)


MEANINGS: dict[str, Meaning] = {
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": lambda b: _with_six_bit_scales(b, nibbles(b.part(16, 144, 4, 1, 32))),
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q8_K": _q8_k,
    "IQ4_XS": _iq4_xs,
}
