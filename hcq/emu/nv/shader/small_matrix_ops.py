"""mma.sync of small floats, as sm_120 has it: any two formats of 8, 6 and 4 bits, and blocks that have scales.

In       Code whose kind is claimed; fragments as lists of registers, scales as bytes of registers of some threads
Out      a step
Next     matrix_ops.py (who asks, and multiplies), tcgen05_products.py (the same kinds in tensor memory)
Source   PTX ISA, "Block Scaling for mma.sync", "mma"; CUTLASS's traits of SM120: a number of four bits stands in the
         middle of its byte (bits 5 to 2), one of six bits at its beginning, but two to a byte with 64 along k

Of each row of A one thread has the scales: of row g, thread 4 g of its pair, of row g + 8 the next one. Of each column
of B one of four threads. Bytes are those from byte-id on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import matrix_ops, sparse_matrix_ops
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.decode import Code, Registers, Step
from hcq.emu.nv.shader.errors import KernelFault
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.syntax import Operand
from hcq.emu.nv.shader.types import TYPES, Lanes
from hcq.emu.shader.small_floats import E2M1, E2M3, E3M2, E4M3, E5M2, SmallFloat

FORMATS: dict[str, SmallFloat] = {"e4m3": E4M3, "e5m2": E5M2, "e3m2": E3M2, "e2m3": E2M3, "e2m1": E2M1}
MIDDLE = {"e2m1": 2}  # bits below a number in its byte
ROWS, COLUMNS = 16, 8


class Kind(NamedTuple):
    """depth: along k. scales: the words that say how many a row has, each with what may be their format."""

    depth: int
    formats: tuple[str, ...]
    scales: dict[str, tuple[str, ...]]


POWERS, FLOATS = "ue8m0", "ue4m3"
KINDS = {
    "kind::f8f6f4": Kind(32, tuple(FORMATS), {}),
    "kind::mxf8f6f4": Kind(32, tuple(FORMATS), {"scale_vec::1X": (POWERS,)}),
    "kind::mxf4": Kind(64, ("e2m1",), {"scale_vec::2X": (POWERS,)}),
    "kind::mxf4nvf4": Kind(64, ("e2m1",), {"scale_vec::2X": (POWERS,), "scale_vec::4X": (POWERS, FLOATS)}),
}
PAIRS = ("kind::mxf4", "kind::mxf4nvf4")
COUNTS = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4}


def product(code: Code, name: str, sparse: str = "") -> Step:
    """The step of an mma of such a kind. sparse: the word that says so, else empty."""
    kind = KINDS[name]
    if sparse:
        kind = kind._replace(depth=2 * kind.depth)
    shape = f"m{ROWS}n{COLUMNS}k{kind.depth}"
    if not code.flag(shape) or not code.flag("row") or not code.flag("col"):
        raise code.refuse(f"{name} is for row.col products of {shape}")
    size = ""
    if kind.scales:
        if not code.flag("block_scale"):
            raise code.refuse(f"{name} needs .block_scale")
        size = code.take(*kind.scales)
        if not size and len(kind.scales) > 1:
            raise code.refuse(f"{name} needs one of {', '.join(kind.scales)}")
        size = size or next(iter(kind.scales))
    d_type = code.type("f32") if kind.scales else code.type("f16", "f32")
    a, b = code.take(*kind.formats), code.take(*kind.formats)
    if not a or not b:
        raise code.refuse(f"the factors of {name} are two of {', '.join(kind.formats)}")
    c_type = code.type(d_type.name)
    bits = 8 if KINDS[name].depth == 32 else 4
    depth = KINDS[name].depth  # of A as it is stored
    places = (
        matrix_ops.a_fragment(ROWS, depth, bits), matrix_ops.b_fragment(kind.depth, COLUMNS, bits),
        matrix_ops.c_fragment(ROWS, COLUMNS),
    )  # fmt: skip
    sizes = (ROWS, depth), (kind.depth, COLUMNS), (ROWS, COLUMNS)
    numbers = (_numbers(a, bits), _numbers(b, bits), matrix_ops.to_numbers(c_type.name))
    widths = (bits, bits, c_type.width)
    parts = [
        matrix_ops.fragment_part(code, operand, width, number, place, of)
        for operand, width, number, place, of in zip(code.operands[1:], widths, numbers, places, sizes)
    ]
    first = 6 if sparse else 4  # of the operands behind metadata and selector
    code.expect(first + 4 if size else first)
    scales = _scales_of(code, name, size, first) if size else None
    if not sparse:
        return matrix_ops.product(code, parts, d_type, places[2], False, matrix_ops.times, scales)
    if name in PAIRS and sparse == "sp":
        raise code.refuse(f"{name} has ordered metadata: mma.sp::ordered_metadata")
    a_part = sparse_matrix_ops.sparse_part(code, parts[0], bits, kind.depth, 4, sparse != "sp")
    scaling = None if scales is None else functools.partial(_scaled, scales)
    return sparse_matrix_ops.step_of(code, a_part, parts[1], c_type.name, False, 0.0, scaling)


def _scaled(
    scales: tuple[matrix_ops.Scales, matrix_ops.Scales],
    registers: Registers,
    group: Group,
    x: Lanes,
    y: Lanes,
) -> tuple[Lanes, Lanes]:
    return matrix_ops.scaled(registers, group, scales, x, y)


def _scales_of(code: Code, name: str, size: str, first: int) -> tuple[matrix_ops.Scales, matrix_ops.Scales]:
    formats = KINDS[name].scales[size]
    format_ = code.take(*formats)
    if not format_:
        raise code.refuse(f"the scales of {name}.{size} are {' or '.join(formats)}")
    a, a_at, b, b_at = code.operands[first : first + 4]
    count = COUNTS[size]
    return _scales(code, a, a_at, count, format_, is_a=True), _scales(
        code, b, b_at, count, format_, is_a=False
    )


def _numbers(name: str, bits: int) -> Callable[[Lanes], Lanes]:
    """What registers hold: a number in each byte, or two."""
    table = FORMATS[name].values.astype(np.float64)
    if bits == 4:
        return lambda registers: table[_nibbles(registers.view(np.uint8))]
    shift, mask = np.uint8(MIDDLE.get(name, 0)), np.uint8(len(table) - 1)
    return lambda registers: table[registers.view(np.uint8) >> shift & mask]


def _nibbles(octets: Lanes) -> Lanes:
    return np.stack((octets & 15, octets >> 4), axis=2).reshape(len(octets), -1)


def _scales(
    code: Code, operand: Operand, selector: Operand, count: int, format_: str, is_a: bool
) -> Callable[[Registers, Group], Lanes]:
    """(warps, rows of A or columns of B, scales of each)."""
    word = code.slot(operand, TYPES["b32"])
    byte, thread = (code.slot(part, TYPES["u16"]) for part in code.parts(selector, 2))
    letter, most = ("a", 1) if is_a else ("b", 3)
    row = np.arange(ROWS if is_a else COLUMNS)
    first = 4 * (row % 8) + row // 8  # of A; of B that of a column
    instruction = code.instruction

    def one(registers: Registers, slot: int, batch: Batch) -> Lanes:
        """What the first threads of all warps have."""
        found: Lanes = np.broadcast_to(registers[slot], (batch.count,)).reshape(-1, WARP)[:, 0]
        return found.astype(np.int64)

    def read(registers: Registers, group: Group) -> Lanes:
        batch = group.batch
        at, who = (one(registers, slot, batch) for slot in (byte, thread))
        runs = np.ones(len(at), bool) if group.mask is None else group.mask.reshape(-1, WARP).any(axis=1)
        wrong = runs & ((who > most) | (at % count != 0) | (at > 3))
        if wrong.any():
            warp = int(np.flatnonzero(wrong)[0])
            block, number = batch.place(warp * WARP)
            raise KernelFault(
                f"kernel {batch.launch.kernel_name}, PTX line {instruction.line} `{instruction}`: byte-id-{letter} is "
                f"{int(at[warp])} and thread-id-{letter} {int(who[warp])}. Of {count} scales the first is byte "
                f"{' or '.join(str(one) for one in range(0, 4, count))}, and the thread is one of 0 to {most}.",
                instruction.line,
                [(block, number)],
            )
        at, who = np.where(runs, at, 0), np.where(runs, who, 0)
        words = np.broadcast_to(registers[word], (batch.count,)).reshape(-1, WARP)
        lanes = first + (2 if is_a else 1) * who[:, None]
        held = np.take_along_axis(words, lanes, axis=1)
        shifts = (8 * (at[:, None] + np.arange(count))).astype(np.uint32)
        codes = held[:, :, None] >> shifts[:, None, :] & np.uint32(0xFF)
        if format_ == FLOATS:
            return E4M3.values[codes & 0x7F].astype(np.float64)
        powers: Lanes = np.where(codes == 0xFF, np.nan, np.ldexp(1.0, codes.astype(np.int64) - 127))
        return powers

    return read
