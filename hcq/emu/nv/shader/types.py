"""The types of PTX, as NumPy types.

In       the suffix of an instruction or a declaration: u32, b64, f16x2, pred, bf16
Out      Type: its kind, its size, the NumPy type to compute in, the unsigned NumPy type that registers hold
Next     decode.py (who reads suffixes)
Source   PTX ISA, "Types"

Registers hold bits: an unsigned array of their size, whatever type the instruction gives them; predicates hold bool.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

# A NumPy array: one value per thread, or a single one that all threads share. Its dtype is known only when an
# instruction has been decoded, and NumPy's own annotations do not describe arrays of unknown dtype.
Lanes = Any
Scalar = Any  # a NumPy scalar type such as np.uint32

# NumPy has no integer of 16 bytes. Complex numbers have as many, and moving them changes no bit; nothing computes here
SIXTEEN_BYTES = np.complex128
BITS: dict[int, Scalar] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: SIXTEEN_BYTES}


class Type(NamedTuple):
    """One type. `kind` is "b", "u", "s", "f", "bf", "pred" or "x" (a storage format that is only converted)."""

    name: str
    kind: str
    size_bytes: int
    scalar: Scalar  # what values compute in; for bf16 and storage formats the bits
    packed: int = 1  # f16x2 holds 2 values

    @property
    def bits(self) -> Scalar:
        """What a register of this size holds."""
        return np.bool_ if self.kind == "pred" else BITS[self.size_bytes]

    @property
    def width(self) -> int:
        """Bits of the whole."""
        return 8 * self.size_bytes

    @property
    def is_integer(self) -> bool:
        """Whether its bits are an integer, or nothing in particular."""
        return self.kind in ("b", "u", "s")

    @property
    def is_float(self) -> bool:
        """Whether its bits are a float."""
        return self.kind in ("f", "bf")


def _table() -> dict[str, Type]:
    types = [Type("pred", "pred", 1, np.bool_)]
    signed = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
    for size in (1, 2, 4, 8):
        types.append(Type(f"b{8 * size}", "b", size, BITS[size]))
        types.append(Type(f"u{8 * size}", "u", size, BITS[size]))
        types.append(Type(f"s{8 * size}", "s", size, signed[size]))
    types.append(Type("b128", "b", 16, SIXTEEN_BYTES))
    types += [
        Type("f16", "f", 2, np.float16),
        Type("f32", "f", 4, np.float32),
        Type("f64", "f", 8, np.float64),
    ]
    types += [Type("bf16", "bf", 2, np.uint16), Type("tf32", "x", 4, np.uint32)]
    types += [Type("f16x2", "f", 4, np.float16, 2), Type("bf16x2", "bf", 4, np.uint16, 2)]
    types += [Type("e4m3", "x", 1, np.uint8), Type("e5m2", "x", 1, np.uint8)]
    types += [Type("f32x2", "f", 8, np.float32, 2)]
    types += [Type("e4m3x2", "x", 2, np.uint16, 2), Type("e5m2x2", "x", 2, np.uint16, 2)]
    types += [Type("e2m1x2", "x", 1, np.uint8, 2)]
    types += [Type(name, "x", 2, np.uint16, 2) for name in ("e2m3x2", "e3m2x2", "ue8m0x2")]
    types += [Type("u16x2", "u", 4, np.uint16, 2), Type("s16x2", "s", 4, np.int16, 2)]
    types += [Type("u8x4", "u", 4, np.uint8, 4), Type("s8x4", "s", 4, np.int8, 4)]
    return {type_.name: type_ for type_ in types}


TYPES = _table()
