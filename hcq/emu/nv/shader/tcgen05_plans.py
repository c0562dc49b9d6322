"""tcgen05.mma's descriptors: what the instruction's and a matrix's say, for each kind of product.

In       32 bits of an instruction's descriptor, 64 of a matrix's; words of a product that say how it is
Out      a Plan, a shared_matrix.Descriptor; or why there is none
Next     tcgen05_products.py (who asks), shared_matrix.py (gathers matrices)
Source   PTX ISA 8.6, "Instruction Descriptor", "Matrix Descriptor"; CUTLASS's structures of descriptors
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import shared_matrix
from hcq.emu.nv.shader.types import Lanes
from hcq.nv.abi.tensor_map import Swizzle

ROWS, ROWS_OF_PAIRS, ROWS_OF_WEIGHTS = (64, 128), (128, 256), (32, 64, 128)
COLUMNS_OF_WEIGHTS = (64, 128, 256)
MAX_COLUMNS = 256
SWIZZLES = {0: Swizzle.NONE, 2: Swizzle.B128, 4: Swizzle.B64, 6: Swizzle.B32}  # by bits 63:61 of a descriptor
_SMALL_CODES = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}


class Kind(NamedTuple):
    """What a kind of product multiplies.

    codes    what the instruction's descriptor calls formats
    results  the same of D
    dense    two numbers of four bits in a byte; else a number that is smaller than a byte is padded
    scales   how many scales a row of 32 bytes may have: the words that say so, each with how many
    """

    codes: dict[int, str]
    results: dict[int, str]
    dense: bool = False
    scales: dict[str, int] = {}  # noqa: RUF012


KINDS = {
    "kind::f16": Kind({0: "f16", 1: "bf16"}, {0: "f16", 1: "f32"}),
    "kind::tf32": Kind({2: "tf32"}, {1: "f32"}),
    "kind::f8f6f4": Kind(_SMALL_CODES, {0: "f16", 1: "f32"}),
    "kind::i8": Kind({0: "u8", 1: "s8"}, {2: "s32"}),
    "kind::mxf8f6f4": Kind(_SMALL_CODES, {}, scales={"scale_vec::1X": 1, "block32": 1}),
    "kind::mxf4": Kind({1: "e2m1"}, {}, True, {"scale_vec::2X": 2, "block32": 2}),
    "kind::mxf4nvf4": Kind(
        {1: "e2m1"}, {}, True, {"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4}
    ),
}


class Plan(NamedTuple):
    """What an instruction's descriptor says."""

    rows: int
    columns: int
    a: str
    b: str
    result: str
    signs: tuple[int, int]
    turned: tuple[bool, bool]
    saturates: bool
    scale_ids: tuple[int, int]
    has_power_scales: bool
    selector: int
    shift_limit: int


def descriptor(bits: Lanes) -> tuple[shared_matrix.Descriptor | None, str]:
    """A matrix in shared memory, or why it cannot be used."""
    number = int(bits[0])

    def field(shift: int) -> Lanes:
        return np.array([(number >> shift & 0x3FFF) * 16], np.int64)

    if number >> 46 & 7 != 1:
        return None, "bits 48:46 are not 0b001, as descriptors of this architecture have them"
    swizzle = SWIZZLES.get(number >> 61)
    if swizzle is None:
        return None, f"swizzle {number >> 61}: 0, 2, 4 and 6 are emulated"
    if number >> 49 & 7 and swizzle != Swizzle.NONE:
        return None, "its base offset is not 0, which is not emulated"
    if number >> 52 & 1:
        return None, "an absolute leading dimension is not emulated"
    return shared_matrix.Descriptor(field(0), field(16), field(32), swizzle), ""


def plan_of(
    kind: Kind, number: int, is_pair: bool = False, is_sparse: bool = False, keeps_weights: bool = False
) -> Plan | str:
    """The meaning of an instruction's descriptor, or why it has none here."""
    if bool(number >> 2 & 1) != is_sparse:
        return "its bit 2 and the instruction do not agree on whether A is sparse"
    is_scaled = bool(kind.scales)
    a, b = (kind.codes.get(number >> shift & 7) for shift in (7, 10))
    if a is None or b is None:
        return f"the formats {number >> 7 & 7} and {number >> 10 & 7} are none of this kind"
    result = "f32" if is_scaled else kind.results.get(number >> 4 & 3)
    if result is None:
        return f"this kind has no result of format {number >> 4 & 3}"
    rows, columns = (number >> 24 & 0x1F) * 16, (number >> 17 & 0x3F) * 8
    if not _has_shape(rows, columns, is_pair, keeps_weights):
        return f"there is no product of {rows} rows and {columns} columns"
    signs = tuple(-1 if number >> bit & 1 else 1 for bit in (13, 14))
    turned = tuple(bool(number >> bit & 1) for bit in (15, 16))
    if any(turned) and a not in ("f16", "bf16"):
        return "matrices whose rows are contiguous are emulated for 16 bits alone"
    ids = (number >> 29 & 3, number >> 4 & 3) if is_scaled else (0, 0)
    return Plan(
        rows, columns, a, b, result, (signs[0], signs[1]), (turned[0], turned[1]), bool(number >> 3 & 1), ids,
        bool(number >> 23 & 1), number & 3, (0, 8, 16, 32)[number >> 30] if keeps_weights else 0,
    )  # fmt: skip


def _has_shape(rows: int, columns: int, is_pair: bool, keeps_weights: bool) -> bool:
    if keeps_weights:
        return rows in ROWS_OF_WEIGHTS and columns in COLUMNS_OF_WEIGHTS
    step = 8 if rows == 64 else 16
    return (
        rows in (ROWS_OF_PAIRS if is_pair else ROWS) and step <= columns <= MAX_COLUMNS and not columns % step
    )
