"""Arrays over waves and lanes, and lane masks in both of their forms: booleans, and bits in scalar registers.

In       (wave, lane) booleans, or (wave, words) of bits
Out      the other form; Array, the type of what instructions compute with
Next     waves.py (the registers of a batch), operands.py (who reads masks)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def pack_lanes(mask: Array) -> Array:
    """(wave, lane) booleans -> (wave, words) bit masks, lane 0 lowest."""
    # all in one go: along an axis packbits takes three times as long
    return np.packbits(mask.reshape(-1), bitorder="little").view(np.uint32).reshape(len(mask), -1)


def unpack_lanes(words: Array) -> Array:
    """(wave, words) bit masks -> (wave, lane) booleans."""
    packed = np.ascontiguousarray(words).view(np.uint8).reshape(-1)
    return np.unpackbits(packed, bitorder="little").view(np.bool_).reshape(len(words), -1)


def across_registers(words: Array, bits: int) -> Array:
    """(register, wave, lane) words -> (item, wave, lane) items of so many bits, one behind the other."""
    first = bits * np.arange(32 * len(words) // bits)
    wide = np.concatenate((words, words[-1:])).astype(np.uint64)
    pairs = wide[first // 32] | wide[first // 32 + 1] << np.uint64(32)
    found: Array = pairs >> (first % 32).astype(np.uint64)[:, None, None] & np.uint64((1 << bits) - 1)
    return found


def packed_in_registers(items: Array, bits: int) -> Array:
    """(item, wave, lane) items of so many bits -> (register, wave, lane) words: what across_registers takes apart."""
    words = np.zeros((bits * len(items) // 32, *items.shape[1:]), np.uint32)
    for number, item in enumerate(items):
        at, shift = divmod(bits * number, 32)
        words[at] |= item.astype(np.uint32) << np.uint32(shift)
        if shift + bits > 32:
            words[at + 1] |= item.astype(np.uint32) >> np.uint32(32 - shift)
    return words
