"""Bits of integers, as all shader cores have instructions for: set ones, the highest, the reverse order.

In       arrays of unsigned numbers of any size and shape
Out      arrays of the same shape
Next     hcq/emu/amd/shader/integer_ops.py and hcq/emu/amd/shader/scalar_ops.py, hcq/emu/nv/shader/bit_ops.py (which
         instruction uses what)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def contiguous(x: Any) -> Any:
    """An array side by side in memory, so that its bits can be seen as other numbers; symbols as they are."""
    return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x


def count_ones(x: Array) -> Array:
    """Set bits of numbers of up to 64 bits, as uint32."""
    x = x.astype(np.uint64)
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    count: Array = ((x * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.uint32)
    return count


def highest_bit(x: Array) -> Array:
    """The number of the highest set bit, as int64; -1 for 0."""
    wide = x.astype(np.uint64)
    # without the bit below it no rounding to a float carries beyond it
    place: Array = np.frexp((wide & ~(wide >> np.uint64(1))).astype(np.float64))[1].astype(np.int64) - 1
    return place


def lowest_bit(x: Array) -> Array:
    """The number of the lowest set bit, as int64; -1 for 0."""
    wide = x.astype(np.uint64)
    return highest_bit(wide & (~wide + np.uint64(1)))


def reversed_bits(x: Array) -> Array:
    """All bits in reverse order."""
    kind = x.dtype.type
    every_byte = int.from_bytes(b"\x01" * x.itemsize, "little")
    for shift, mask in ((1, 0x55), (2, 0x33), (4, 0x0F)):
        low = kind(mask * every_byte)
        x = ((x >> kind(shift)) & low) | ((x & low) << kind(shift))
    swapped: Array = x.byteswap()
    return swapped
