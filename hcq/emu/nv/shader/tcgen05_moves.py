"""tcgen05.cp and .shift: what fills tensor memory or moves in it, asynchronously; what tcgen05.ld.red makes of a load.

In       Code; matrix descriptors, addresses of tensor memory
Out      steps, which issue; done when somebody looks at an mbarrier, in the order of products and copies
Changes  tensor memory
Next     tcgen05_ops.py (who asks), tcgen05_plans.py (descriptors), tensor_memory.py
Source   PTX ISA, "tcgen05.cp", "Optional Decompression", "tcgen05.shift", "tcgen05.ld"

Inferred: that a shift moves a row to the next lane, and the first one of its 32 stays; that of 64x128b the first 32
rows are for the warps that .warpx2 names first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader import byte_matrix_moves, shared_matrix, tcgen05_products, tensor_memory, tensor_races
from hcq.emu.nv.shader.bulk_moves import Issuer, address, each
from hcq.emu.nv.shader.decode import Code, Registers, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import address_of
from hcq.emu.nv.shader.syntax import Operand
from hcq.emu.nv.shader.tcgen05_plans import descriptor
from hcq.emu.nv.shader.types import TYPES, Lanes

U64 = TYPES["u64"]
WARP_LANES = 32  # of tensor memory, that a warp of a warpgroup reaches
SHIFTED_WORDS = 8
COPIES = {  # shape -> rows, bytes of a row
    "128x256b": (128, 32), "128x128b": (128, 16), "4x256b": (4, 32), "32x128b": (32, 16), "64x128b": (64, 16),
}  # fmt: skip
# to which warps' lanes each 32 rows go
TO_WARPS = {
    "warpx4": ((0, 1, 2, 3),), "warpx2::02_13": ((0, 2), (1, 3)), "warpx2::01_23": ((0, 1), (2, 3)),
}  # fmt: skip
MULTICASTS = {"32x128b": ("warpx4",), "64x128b": ("warpx2::02_13", "warpx2::01_23")}


def copy(code: Code, is_pair: bool) -> Step:
    """Of a pair of blocks each copies from its own shared memory to its own tensor memory."""
    shape, multicast = code.take(*COPIES), code.take(*TO_WARPS)
    if not shape:
        raise code.refuse(f"supported are {', '.join(COPIES)}")
    if multicast not in MULTICASTS.get(shape, ("",)):
        raise code.refuse("32x128b goes to all four warps' lanes with .warpx4, 64x128b to two with .warpx2")
    bits = byte_matrix_moves.PACKED.get(code.take(*byte_matrix_moves.PACKED), 0) if code.flag("b8x16") else 8
    if not bits:
        raise code.refuse(f".b8x16 is made of .{' or .'.join(byte_matrix_moves.PACKED)}")
    code.expect(2)
    goal, slot = address_of(code, code.operands[0]), code.source(1, U64)
    rows, row_bytes = COPIES[shape]
    places = TO_WARPS.get(multicast, ())
    select, instruction = code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        to = goal(registers)
        for issuer in each(group, select(registers, group), instruction):
            at = address(to, issuer)
            bits_of = np.broadcast_to(registers[slot], (batch.count,))[issuer.lanes]
            matrix, why = descriptor(bits_of)
            if matrix is None:
                raise issuer.refuse(f"the matrix descriptor {int(bits_of[0]):#x}: {why}")
            blocks = _allocated(issuer, at, row_bytes // 4, is_pair)
            for block in blocks:
                tcgen05_products.tell(issuer, block, matrix, rows, False, row_bytes)
                _touched(issuer, block, at, rows, row_bytes // 4, places)

            def work(
                issuer: Issuer = issuer,
                matrix: shared_matrix.Descriptor = matrix,
                at: int = at,
                blocks: list[int] = blocks,
            ) -> None:
                for block in blocks:
                    lanes = tcgen05_products.lanes_in(batch, block)
                    try:
                        words = shared_matrix.rows_of(batch, lanes, matrix, rows, row_bytes)[0]
                    except BadAccess as bad:
                        raise issuer.fault(bad, "load of a matrix") from None
                    if bits < 8:
                        pieces = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 16)
                        words = byte_matrix_moves.unpacked(pieces, bits).view(np.uint32).reshape(rows, -1)
                    _put(tcgen05_products.memory_of(batch).words[block], at, words, places)

            batch.copies.count(work)

    return step


def _allocated(issuer: Issuer, at: int, columns: int, is_pair: bool) -> list[int]:
    """The blocks that take part, in which these columns are somebody's."""
    column = tensor_memory.column_of(at)
    blocks = tcgen05_products.blocks_of(issuer, is_pair)
    memory = tcgen05_products.memory_of(issuer.batch)
    if not all(memory.is_allocated(block, column, columns) for block in blocks):
        raise issuer.refuse(f"columns {column} to {column + columns - 1} are not all allocated")
    return blocks


def _touched(
    issuer: Issuer, block: int, at: int, rows: int, count: int, places: tuple[tuple[int, ...], ...]
) -> None:
    """Tell what looks for races that so many columns from an address on are written, where `_put` does it."""
    warps = np.array([warp for some in places for warp in some] or [0])
    lanes = warps[:, None] * WARP_LANES + np.arange(WARP_LANES if places else rows)
    lanes, columns = lanes + tensor_memory.lane_of(at), tensor_memory.column_of(at) + np.arange(count)
    tensor_races.touched(issuer.batch, issuer.lane, "store", block, lanes, columns, issuer.instruction.line)


def _put(place: Lanes, at: int, words: Lanes, places: tuple[tuple[int, ...], ...]) -> None:
    lane, column = tensor_memory.lane_of(at), tensor_memory.column_of(at)
    columns = slice(column, column + words.shape[1])
    if not places:
        place[lane : lane + len(words), columns] = words
        return
    for number, warps in enumerate(places):
        for warp in warps:
            first = lane + WARP_LANES * warp
            place[first : first + WARP_LANES, columns] = words[WARP_LANES * number :][:WARP_LANES]


def shift(code: Code, is_pair: bool) -> Step:
    """`tcgen05.shift.down`: of 32 lanes each gets the 32 bytes of the one before it."""
    if not code.flag("down"):
        raise code.refuse("expected tcgen05.shift.cta_group.down")
    code.expect(1)
    at_of, select, instruction = address_of(code, code.operands[0]), code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        for issuer in each(group, select(registers, group), instruction):
            at = address(at_of(registers), issuer)
            lane, column = tensor_memory.lane_of(at), tensor_memory.column_of(at)
            if lane % WARP_LANES:
                raise issuer.refuse(f"the address {at:#x} is of lane {lane}, no multiple of {WARP_LANES}")
            blocks = _allocated(issuer, at, SHIFTED_WORDS, is_pair)
            for block in blocks:
                _touched(issuer, block, at, WARP_LANES, SHIFTED_WORDS, ())

            def work(lane: int = lane, column: int = column, blocks: list[int] = blocks) -> None:
                for block in blocks:
                    words = tcgen05_products.memory_of(batch).words[block]
                    moved = words[lane : lane + WARP_LANES, column : column + SHIFTED_WORDS]
                    moved[1:] = moved[:-1].copy()

            batch.copies.count(work)

    return step


def reduction(code: Code, target: Operand) -> Callable[[Registers, Group, Lanes], None]:
    """What tcgen05.ld.red does besides: each thread gets the least or largest of what it loads."""
    type_ = code.type("f32", "u32", "s32")
    what = code.take("min", "max")
    is_absolute, keeps_nan = code.flag("abs"), code.flag("NaN")
    if not what or (type_.name != "f32" and (is_absolute or keeps_nan)):
        raise code.refuse("expected .min or .max; .abs and .NaN are for .f32")
    write = code.writer(code.destination(target, type_))
    if type_.name == "f32":
        least = (
            (np.minimum if keeps_nan else np.fmin) if what == "min" else np.maximum if keeps_nan else np.fmax
        )
    else:
        least = np.minimum if what == "min" else np.maximum

    def reduce(registers: Registers, group: Group, loaded: Lanes) -> None:
        values = loaded.view(type_.scalar)
        if is_absolute:
            values = np.abs(values)
        found = least.reduce(values, axis=0)
        bits = np.ascontiguousarray(found).view(np.uint32)
        if type_.name == "f32":
            bits = np.where(np.isnan(found), np.uint32(0x7FFFFFFF), bits)
        write(registers, group, bits)

    return reduce
