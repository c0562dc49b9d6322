"""Arrays over waves and lanes, and lane masks in both of their forms: booleans, and bits in scalar registers.

In       (wave, lane) booleans, or (wave, words) of bits
Out      the other form; Array, the type of what instructions compute with
Changes  nothing
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
