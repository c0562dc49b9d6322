"""Tensor maps: copies of tiles by them, and instructions that change them.

In       Code with [map, {coordinates}], an address in shared memory, an mbarrier
Out      steps that issue copies; steps that write fields of a map
Changes  shared and global memory, through bulk_moves.py; maps in memory
Next     tensor_tiles.py (which bytes a tile is), bulk_ops.py (who calls this), hcq/nv/abi/tensor_map.py (the 128 bytes)
Source   PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "tensormap.replace", "tensormap.cp_fenceproxy"
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader import atomic_ops, bulk_moves, memory_ops, spaces, tensor_tiles
from hcq.emu.nv.shader.bulk_moves import Issuer, Move, Reduction
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess, PtxError
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import address_of
from hcq.emu.nv.shader.syntax import Immediate, TensorAddress
from hcq.emu.nv.shader.tensor_tiles import Tiling
from hcq.emu.nv.shader.types import TYPES
from hcq.nv.abi.tensor_map import (
    LOW_STRIDE_BITS,
    MAX_RANK,
    STRIDE_UNIT,
    TENSOR_MAP_ALIGNMENT,
    TENSOR_MAP_BYTES,
    ElementType,
    Swizzle,
    TensorMap,
)

RULES = Rules()
U32, U64 = TYPES["u32"], TYPES["u64"]
MODES = ("tile", "im2col", "im2col_no_offs", "im2col::w", "im2col::w::128", "tile::gather4", "tile::scatter4")
SHARED_ALIGNMENT = 128
ROWS = 4  # of a gather or scatter
WORDS = TENSOR_MAP_BYTES // 4
# what reductions know an element as
TYPE_NAMES = {
    ElementType.U32: "u32",
    ElementType.S32: "s32",
    ElementType.U64: "u64",
    ElementType.S64: "s64",
    ElementType.F16: "f16",
    ElementType.F32: "f32",
    ElementType.F32_FTZ: "f32",
    ElementType.F64: "f64",
    ElementType.BF16: "bf16",
}
TF32, TF32_FTZ = 11, 12  # tensormap.replace.elemtype


def claim_mode(code: Code) -> tuple[int, bool]:
    """The dimensions among the modifiers, and whether four rows are named; only tiles are emulated."""
    rank = code.take(*(f"{rank}d" for rank in range(1, MAX_RANK + 1)))
    if not rank:
        raise code.refuse("expected a number of dimensions, .1d to .5d")
    mode = code.take(*MODES)
    takes_rows = mode in ("tile::gather4", "tile::scatter4")
    if mode not in ("", "tile") and not takes_rows:
        raise code.refuse(f"the mode .{mode} is not emulated: no document has the layout of its maps")
    if takes_rows and rank != "2d":
        raise code.refuse(f".{mode} is for .2d")
    return int(rank[0]), takes_rows


def copy_tile(code: Code, reduces: str) -> Step:
    """`cp.async.bulk.tensor`, in both directions, and `cp.reduce.async.bulk.tensor`."""
    is_gather, is_scatter = "tile::gather4" in code.rest, "tile::scatter4" in code.rest
    rank, takes_rows = claim_mode(code)
    to, source = (memory_ops.take_space(code) for _ in range(2))
    is_counted, is_multicast = bulk_moves.claim_end(code)
    is_pair = code.take("cta_group::1", "cta_group::2") == "cta_group::2"
    memory_ops.claim_hints(code)
    if (to, source, is_counted) not in (("shared", "global", True), ("global", "shared", False)):
        raise code.refuse("tiles go from .global to .shared with an mbarrier, or back in a bulk group")
    if (is_gather and not is_counted) or (is_scatter and is_counted):
        raise code.refuse("rows are gathered into .shared and scattered from there")
    if len(code.operands) < 2 + is_counted + is_multicast:
        raise code.refuse("operands are missing")
    map_operand, shared_operand = (1, 0) if is_counted else (0, 1)
    find = _tile_reader(code, map_operand, rank, takes_rows)
    shared = address_of(code, code.operands[shared_operand])
    mbarrier = address_of(code, code.operands[2]) if is_counted else shared
    goals = bulk_moves.goals_of(code, 3, is_multicast)
    select, instruction = code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        lanes = select(registers, group)
        places, barriers = shared(registers), mbarrier(registers)
        for issuer in bulk_moves.each(group, lanes, instruction):
            tiling, rows = find(registers, issuer)
            start = spaces.shared_number(issuer.batch, bulk_moves.address(places, issuer))
            if is_counted:
                barrier = spaces.shared_number(issuer.batch, bulk_moves.address(barriers, issuer))
                for goal, told in zip(goals(registers, issuer, start), goals(registers, issuer, barrier)):
                    object_at = bulk_moves.in_pair(told, goal, barrier) if is_pair else told
                    bulk_moves.bring(issuer, _move(issuer, tiling, rows, goal), object_at, is_pair)
            else:
                move = _move(issuer, tiling, rows, start)
                bulk_moves.take(
                    issuer, move, _reduction(code, issuer, reduces, tiling.tensor) if reduces else None
                )

    return step


Places = list[tuple[int, ...]]  # of one tile, or of four rows
Find = Callable[[Registers, Issuer], tuple[Tiling, Places]]


def _tile_reader(code: Code, number: int, rank: int, takes_rows: bool) -> Find:
    """What reads the map and the coordinates of a thread, and refuses a map that makes no sense.

    takes_rows  the coordinates are a column and four rows
    """
    operand = code.operands[number]
    if not isinstance(operand, TensorAddress):
        raise code.refuse("expected [tensor map, {coordinates}]")
    wanted = 1 + ROWS if takes_rows else rank
    if len(operand.coordinates.parts) != wanted:
        raise code.refuse(f"{len(operand.coordinates.parts)} coordinates, not {wanted}")
    at = address_of(code, operand.map)
    slots = [code.slot(part, U32) for part in operand.coordinates.parts]

    def find(registers: Registers, issuer: Issuer) -> tuple[Tiling, Places]:
        va = bulk_moves.address(at(registers), issuer)
        found = load_map(issuer, va)
        tensor = found.tensor if isinstance(found, Tiling) else found
        if not isinstance(found, Tiling) or tensor.rank != rank:
            why = tensor_tiles.why_wrong(tensor, rank)
            raise issuer.refuse(f"the tensor map at {va:#x} cannot be used: {why}")
        values = (bulk_moves.value(registers, slot, issuer) for slot in slots)
        place = tuple(value - ((value & 1 << 31) << 1) for value in values)
        if not takes_rows:
            return found, [place]
        if found.tensor.box[1] != 1:
            raise issuer.refuse(
                f"the box of the tensor map at {va:#x} has {found.tensor.box[1]} rows, not one"
            )
        return found, [(place[0], row) for row in place[1:]]

    return find


def load_map(issuer: Issuer, va: int) -> Tiling | TensorMap:
    """The tensor map at a generic address: of a parameter, or in global or constant memory; its tiles if it has any."""
    _check_map_address(issuer, va)
    at = np.array([va], np.uint64)
    steps = np.arange(0, TENSOR_MAP_BYTES, 8, dtype=np.uint64)
    try:
        words = spaces.GENERIC.load(
            issuer.batch, np.repeat(issuer.lanes, len(steps)), at + steps, np.uint64, 1
        )
    except BadAccess as bad:
        raise issuer.fault(bad, "load of a tensor map") from None
    return tensor_tiles.tiling_of(words.tobytes())


def _check_map_address(issuer: Issuer, va: int) -> None:
    is_param = 0 <= va - spaces.PARAM_WINDOW < spaces.WINDOW_BYTES
    in_bank = va - spaces.PARAM_WINDOW + issuer.batch.launch.param_base if is_param else va
    if in_bank % TENSOR_MAP_ALIGNMENT:
        raise issuer.refuse(
            f"the tensor map at {va:#x} is not aligned to {TENSOR_MAP_ALIGNMENT} bytes: declare it as CUtensorMap does"
        )


def _move(issuer: Issuer, tiling: Tiling, rows: Places, start: int) -> Move:
    if start % SHARED_ALIGNMENT:
        raise issuer.refuse(
            f"the tile's place in shared memory, {start:#x}, is no multiple of {SHARED_ALIGNMENT}"
        )
    tensor, tiles = tiling.tensor, [tiling.tile(place) for place in rows]
    tile = tiles[0]
    if len(tiles) > 1:  # one behind the other
        size = len(tile.offsets) * tile.piece_bytes
        tile = tile._replace(
            at=np.concatenate([one.at for one in tiles]),
            inside=np.concatenate([one.inside for one in tiles]),
            offsets=np.concatenate([one.offsets + size * number for number, one in enumerate(tiles)]),
        )
    offsets = (tile.offsets + start).astype(np.uint64)
    # the swizzle takes pieces of 16 bytes as a whole, and so what is in them
    places = tensor_tiles.swizzled(offsets, Swizzle(tensor.swizzle))
    return Move(
        tile.at, tile.inside, places, tile.piece_bytes, tensor_tiles.filling(tensor, tile.piece_bytes)
    )


def _reduction(code: Code, issuer: Issuer, what: str, tensor: TensorMap) -> Reduction:
    name = TYPE_NAMES.get(ElementType(tensor.element_type))
    if name is None:
        raise issuer.refuse(f"elements of {ElementType(tensor.element_type).name} have no reductions")
    try:
        return Reduction(atomic_ops.operation_of(code, what, TYPES[name]), TYPES[name])
    except PtxError:
        raise issuer.refuse(f"elements of .{name} have no .{what}") from None


# -- maps that kernels change


FIELDS = (
    "global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride", "elemtype",
    "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode",
)  # fmt: skip
WITH_NUMBER = ("box_dim", "global_dim", "global_stride", "element_stride")


@RULES.on("tensormap")
def tensormap(code: Code) -> Step:
    """`tensormap.replace`: a field of a map; `tensormap.cp_fenceproxy`: a map from shared to global memory."""
    if code.flag("cp_fenceproxy"):
        return _publish(code)
    if not code.flag("replace") or not code.flag("tile"):
        raise code.refuse("expected tensormap.replace.tile or tensormap.cp_fenceproxy")
    what = code.take(*FIELDS)
    if not what:
        raise code.refuse(f"expected one of .{', .'.join(FIELDS)}")
    code.expect(3 if what in WITH_NUMBER else 2)
    space = memory_ops.space_of(code, memory_ops.take_space(code), code.operands[0])
    code.flag("b1024")
    type_ = code.type("b32", "b64")
    number = 0
    if what in WITH_NUMBER:
        ordinal = code.operands[1]
        if not isinstance(ordinal, Immediate) or not 0 <= ordinal.value < MAX_RANK - (
            what == "global_stride"
        ):
            raise code.refuse("the number of the dimension is an immediate that the map has a field for")
        number = ordinal.value
    at, slot = address_of(code, code.operands[0]), code.source(len(code.operands) - 1, type_)
    select, instruction = code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        lanes = select(registers, group)
        starts = at(registers)
        for issuer in bulk_moves.each(group, lanes, instruction):
            places = np.uint64(bulk_moves.address(starts, issuer)) + np.arange(
                0, TENSOR_MAP_BYTES, 4, dtype=np.uint64
            )
            who = np.repeat(issuer.lanes, WORDS)
            try:
                words = space.load(issuer.batch, who, places, np.uint32, 1)
                changed = _replaced(words.tobytes(), what, number, bulk_moves.value(registers, slot, issuer))
                space.store(issuer.batch, who, places, np.frombuffer(changed, np.uint32))
            except BadAccess as bad:
                raise issuer.fault(bad, "access to a tensor map") from None

    return step


def _replaced(data: bytes, what: str, number: int, value: int) -> bytes:
    """The map with a field changed; counts are given in full, but for the rank, which is given less one."""
    changes: dict[str, int]
    if what == "global_stride":
        high, low = divmod(value // STRIDE_UNIT, 1 << LOW_STRIDE_BITS)
        changes = {f"stride_low{number}": low, f"stride_high{number}": high}
    elif what in WITH_NUMBER:
        name = {"box_dim": "box", "global_dim": "dim", "element_stride": "step"}[what]
        changes = {f"{name}{number}_less_1": value - 1}
    elif what == "global_address":
        changes = {"global_address": value, "unnamed_85": 0}
    elif what == "rank":
        changes = {"rank_less_1": value}
    elif what == "elemtype":
        is_tf32 = value in (TF32, TF32_FTZ)
        plain = {TF32: ElementType.F32, TF32_FTZ: ElementType.F32_FTZ}.get(value, value)
        changes = {"element_type": plain, **({"is_tf32": 1} if is_tf32 else {})}
    elif what == "swizzle_mode":
        changes = {"swizzle": value, "unnamed_86": 0}
    else:
        changes = {{"interleave_layout": "interleave", "fill_mode": "fill"}.get(what, what): value}
    whole = int.from_bytes(data, "little")
    for name, part in changes.items():
        field = TensorMap.fields[name]
        whole = whole & ~field.mask | part << field.low & field.mask
    return whole.to_bytes(TENSOR_MAP_BYTES, "little")


def _publish(code: Code) -> Step:
    while code.take(
        "global",
        "shared",
        "shared::cta",
        "tensormap::generic",
        "release",
        *memory_ops.SCOPES,
        "sync",
        "aligned",
    ):
        pass
    code.expect(3)
    size = code.operands[2]
    if not isinstance(size, Immediate) or size.value != TENSOR_MAP_BYTES:
        raise code.refuse(f"the size is {TENSOR_MAP_BYTES}")
    to, source = address_of(code, code.operands[0]), address_of(code, code.operands[1])
    select, instruction = code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        lanes = select(registers, group)
        steps = np.arange(0, TENSOR_MAP_BYTES, 8, dtype=np.uint64)
        goals, starts = to(registers), source(registers)
        for issuer in bulk_moves.each(group, lanes, instruction):
            who = np.repeat(issuer.lanes, len(steps))
            start = spaces.shared_number(issuer.batch, bulk_moves.address(starts, issuer))
            try:
                data = spaces.SHARED.load(issuer.batch, who, np.uint64(start) + steps, np.uint64, 1)
                goal = np.uint64(bulk_moves.address(goals, issuer))
                spaces.GLOBAL.store(issuer.batch, None, goal + steps, data)
            except BadAccess as bad:
                raise issuer.fault(bad, "copy of a tensor map") from None

    return step
