"""tcgen05.mma: products of matrices into tensor memory, also of small floats with a scale for each 16 or 32 numbers.

In       Code; descriptors of matrices in shared memory and of the instruction, addresses of tensor memory
Out      a step, which issues the product; it is done when somebody looks at an mbarrier
Changes  tensor memory
Next     tcgen05_ops.py (the other instructions), tcgen05_plans.py (descriptors), tcgen05_sparse.py (metadata, masks
         of columns), shared_matrix.py (gathers matrices), tensor_memory.py (where D is)
Source   PTX ISA 8.6, "tcgen05.mma", "Matrix Descriptor", "Instruction Descriptor", "Block Scaling"; CUTLASS's
         structures of descriptors

An instruction takes 32 bytes of depth. Sums are made in double precision and rounded once; a GPU's last places differ.
Of a pair of blocks (cta_group::2) each has half of A's rows and half of B's columns in its shared memory, and half of
D in its tensor memory. That each has the scales of its own rows and of all columns is inferred, and that .ashift moves
a row to the next one. Of weights that stay (.ws) 64 or 32 rows fill all lanes: D is cut into two or four parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import (
    async_races,
    shared_matrix,
    sparse_matrix_ops,
    tcgen05_sparse,
    tensor_memory,
    tensor_races,
)
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.bulk_moves import Issuer, address, each
from hcq.emu.nv.shader.decode import Code, Registers, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.matrix_ops import from_numbers, to_numbers
from hcq.emu.nv.shader.memory_ops import address_of
from hcq.emu.nv.shader.syntax import Address, Immediate, Vector
from hcq.emu.nv.shader.tcgen05_plans import KINDS, ROWS, Kind, Plan, descriptor, plan_of
from hcq.emu.nv.shader.types import TYPES, Lanes
from hcq.emu.shader.small_floats import E2M1, E2M3, E3M2, E4M3, E5M2, SmallFloat

U32, U64 = TYPES["u32"], TYPES["u64"]
DEPTH_WORDS = 8  # of a row of A in tensor memory
LANE_WORDS = 4  # of a mask of lanes
MAX_INPUT_SCALE = 15
SMALL = {"e4m3": E4M3, "e5m2": E5M2, "e2m3": E2M3, "e3m2": E3M2, "e2m1": E2M1}
SMALL_BITS = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}


def blocks_of(issuer: Issuer, is_pair: bool) -> list[int]:
    """Of the batch: the issuing thread's block; of a pair both, the one of even rank first."""
    clusters, block = issuer.batch.clusters, int(issuer.batch.block_of_lane[issuer.lane])
    if not is_pair:
        return [block]
    if clusters is None or clusters.size % 2:
        raise issuer.refuse("a pair of blocks needs a cluster of an even number of them")
    return [block & ~1, block | 1]  # clusters of an even size begin at even numbers


def memory_of(batch: Batch) -> tensor_memory.TensorMemory:
    """The tensor memory of a batch, made at its first use."""
    if batch.tensor_memory is None:
        batch.tensor_memory = tensor_memory.TensorMemory(len(batch.blocks))
    return batch.tensor_memory


def lanes_in(batch: Batch, block: int) -> Lanes:
    """A thread of a block, as an array."""
    return np.array([block * (batch.count // len(batch.blocks))])


def tell(
    issuer: Issuer,
    block: int,
    matrix: shared_matrix.Descriptor,
    rows: int,
    is_turned: bool,
    depth_bytes: int,
    some: Lanes | None = None,
) -> None:
    """Tell what looks for races and missing waits, if anything does, what is read in a block. some: of the rows."""
    batch = issuer.batch
    if batch.races is None and batch.waits is None:
        return
    at = shared_matrix.addresses(batch, lanes_in(batch, block), matrix, rows, is_turned, depth_bytes)
    if some is not None:
        at = at[:, np.unique(some // 8 if is_turned else some)]
    try:
        async_races.gathered(batch, issuer.lane, issuer.instruction.line, at)
    except BadAccess as bad:
        raise issuer.fault(bad, "load of a matrix") from None


def product(code: Code, is_pair: bool) -> Step:
    """The step of a tcgen05.mma whose first words are claimed."""
    name = code.take(*KINDS)
    if not name:
        raise code.refuse(f"the kind is one of {', '.join(KINDS)}")
    kind = KINDS[name]
    keeps_weights, is_sparse, moves_down = code.flag("ws"), code.flag("sp"), code.flag("ashift")
    if keeps_weights and (is_pair or kind.scales or moves_down):
        raise code.refuse(".ws is for one block, without scales and .ashift")
    blocks = 0
    if kind.scales:
        if not code.flag("block_scale"):
            raise code.refuse(f"{name} needs .block_scale")
        size = code.take(*kind.scales) or next(iter(kind.scales))
        blocks = kind.scales[size]
    while code.take(*(one for one in code.rest if one.startswith("collector::"))):
        pass
    operands = list(code.operands)
    meta_at = address_of(code, operands.pop(3)) if is_sparse and len(operands) > 3 else None
    mask_slot = code.slot(operands.pop(), U64) if keeps_weights and len(operands) == 6 else None
    input_scale = 0
    if isinstance(last := operands[-1], Immediate) and len(operands) > 5 + 2 * bool(blocks):
        operands.pop()
        input_scale = last.value
    if not 0 <= input_scale <= MAX_INPUT_SCALE:
        raise code.refuse(f"the power by which D is divided is from 0 to {MAX_INPUT_SCALE}")
    masks: list[int] = []
    scale_at: list[Callable[[Registers], Lanes]] = []
    rest = operands[4:]
    if blocks:
        scale_at = [address_of(code, one) for one in rest[:2]]
        rest = rest[2:]
    elif rest and isinstance(rest[0], Vector):
        masks = [code.slot(part, U32) for part in code.parts(rest[0], LANE_WORDS * (1 + is_pair))]
        rest = rest[1:]
    if len(operands) < 5 or len(rest) != 1:
        raise code.refuse("expected [d], a, b, the instruction's descriptor, and whether D is added to")
    adds = code.predicate(rest[0])
    d_at = address_of(code, operands[0])
    a_in_memory = isinstance(operands[1], Address)
    if moves_down and not a_in_memory:
        raise code.refuse(".ashift moves rows of A in tensor memory")
    a_at = address_of(code, operands[1]) if a_in_memory else None
    a_slot = None if a_in_memory else code.slot(operands[1], U64)
    b_slot, i_slot = code.slot(operands[2], U64), code.slot(operands[3], U32)
    select, instruction = code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch

        def one(slot: int, issuer: Issuer) -> int:
            return int(np.broadcast_to(registers[slot], (batch.count,))[issuer.lane])

        for issuer in each(group, select(registers, group), instruction):
            plan = plan_of(kind, one(i_slot, issuer), is_pair, is_sparse, keeps_weights)
            if isinstance(plan, str):
                raise issuer.refuse(f"the instruction descriptor {one(i_slot, issuer):#x}: {plan}")
            where = address(d_at(registers), issuer)
            a: shared_matrix.Descriptor | int
            a = address(a_at(registers), issuer) if a_at is not None else 0
            if a_slot is not None:
                a = _matrix(one(a_slot, issuer), issuer)
            work = _Work(
                kind, plan, issuer, where, a, _matrix(one(b_slot, issuer), issuer),
                bool(np.broadcast_to(adds(registers), (batch.count,))[issuer.lane]), input_scale,
                tuple(one(slot, issuer) for slot in masks), blocks,
                tuple(address(at(registers), issuer) for at in scale_at), tuple(blocks_of(issuer, is_pair)),
                keeps_weights, None if meta_at is None else address(meta_at(registers), issuer),
                0 if mask_slot is None else one(mask_slot, issuer), moves_down,
            )  # fmt: skip
            work.check()
            work.tell()
            batch.copies.count(work.run)

    return step


def _matrix(number: int, issuer: Issuer) -> shared_matrix.Descriptor:
    found, why = descriptor(np.array([number], np.uint64))
    if found is None:
        raise issuer.refuse(f"the matrix descriptor {number:#x}: {why}")
    return found


class _Work(NamedTuple):
    """A product that was issued. a: a matrix in shared memory, or an address of tensor memory."""

    kind: Kind
    plan: Plan
    issuer: Issuer
    where: int
    a: shared_matrix.Descriptor | int
    b: shared_matrix.Descriptor
    adds: bool
    input_scale: int
    masks: tuple[int, ...]
    blocks: int
    scale_at: tuple[int, ...]
    parts: tuple[int, ...]  # blocks, each of which has its part of D
    keeps_weights: bool
    meta: int | None
    column_mask: int
    moves_down: bool

    @property
    def is_split(self) -> bool:
        """Whether a pair's product has 64 rows in each block: the right half of D is in the lanes from 64 on."""
        return len(self.parts) * ROWS[0] == self.plan.rows and len(self.parts) > 1 and self.meta is None

    @property
    def folds(self) -> int:
        """Into how many parts side by side D is cut, which lie one below the other."""
        if self.keeps_weights:
            return tensor_memory.LANES // self.plan.rows
        return 2 if self.is_split else 1

    @property
    def memory(self) -> tensor_memory.TensorMemory:
        """That of the batch, which has some: D is allocated."""
        found = self.issuer.batch.tensor_memory
        assert found is not None
        return found

    def check(self) -> None:
        """Refuse columns that nobody has allocated."""
        known = self.issuer.batch.tensor_memory
        if self.is_split and (isinstance(self.a, int) or self.blocks or self.masks):
            raise self.issuer.refuse(
                "128 rows of a pair with A in tensor memory, scales or lanes that are left out are not emulated"
            )
        if self.column_mask:
            why = tcgen05_sparse.why_no_mask(self.column_mask, self.plan.rows, self.plan.shift_limit)
            if why:
                raise self.issuer.refuse(f"the mask of columns {self.column_mask:#x}: {why}")
        needed = [(self.where, self.plan.columns // self.folds)]
        if self.meta is not None:
            needed.append((self.meta, self._metadata().columns))
        if isinstance(self.a, int):
            needed.append((self.a, DEPTH_WORDS))
        sides = self.plan.rows // len(self.parts), self.plan.columns
        needed += [(at, -(-rows // 32)) for at, rows in zip(self.scale_at, sides)]
        for at, count in needed:
            first = tensor_memory.column_of(at)
            if known is None or not all(known.is_allocated(block, first, count) for block in self.parts):
                raise self.issuer.refuse(f"columns {first} to {first + count - 1} are not all allocated")

    def tell(self) -> None:
        """Say which places in shared and tensor memory are touched, for the thread that issues the product, at once."""
        plan, own = self.plan, self.plan.rows // len(self.parts)
        source, keeps, rows, depth_bytes = self._columns()
        for number, block in enumerate(self.parts):
            tell(self.issuer, block, self.b, rows, plan.turned[1], depth_bytes, source[keeps])
            if isinstance(self.a, int):
                self._touch(block, "load", self._lanes(own), self.a, np.arange(DEPTH_WORDS))
            else:
                tell(self.issuer, block, self.a, own, plan.turned[0], shared_matrix.DEPTH_BYTES)
            if self.meta is not None:
                where = self._metadata()
                self._touch(block, "load", where.lane, self.meta, where.column)
            for at, count in zip(self.scale_at, (own, plan.columns)):
                self._touch(block, "load", np.arange(min(count, 32)), at, np.arange(-(-count // 32)))
            lanes = self._lanes(own * self.folds)
            if self.masks:
                lanes = lanes[~self._is_off(number)[lanes]]
            self._touch(block, "store", lanes, self.where, np.arange(plan.columns // self.folds))

    def _touch(self, block: int, kind: str, lanes: Lanes, at: int, columns: Lanes) -> None:
        batch, lane, instruction = self.issuer
        columns = tensor_memory.column_of(at) + columns
        tensor_races.touched(batch, lane, kind, block, lanes, columns, instruction.line)

    def _is_off(self, number: int) -> Lanes:
        """Which lanes of D in a block of the pair are left as they are."""
        masks = self.masks[LANE_WORDS * number : LANE_WORDS * (number + 1)]
        return np.array([mask >> bit & 1 for mask in masks for bit in range(32)], bool)

    def _columns(self) -> tuple[Lanes, Lanes, int, int]:
        """Of B in each block: (the place of each column, whether it counts or is 0, how many to load, their bytes)."""
        plan = self.plan
        source, keeps = tcgen05_sparse.columns_of(
            self.column_mask, plan.rows, plan.columns // len(self.parts)
        )
        depth_bytes = shared_matrix.DEPTH_BYTES * (1 if self.meta is None else 2)
        return source, keeps, -(-int(source[-1] + 1) // 8) * 8, depth_bytes

    def run(self) -> None:
        """D = A B + D / 2**input_scale, or A B."""
        plan = self.plan
        source, keeps, rows, depth_bytes = self._columns()
        halves = [
            self._in_shared(block, self.b, rows, plan.b, plan.turned[1], depth_bytes)[source] * keeps[:, None]
            for block in self.parts
        ]
        b = np.concatenate(halves) * plan.signs[1]
        for number, block in enumerate(self.parts):
            self._run_in(number, block, self._a(block) * plan.signs[0], b)

    def _run_in(self, number: int, block: int, a: Lanes, b: Lanes) -> None:
        """The part of D that is in one block."""
        plan = self.plan
        stored = np.ones(1, bool)
        if self.meta is not None:
            a, stored = self._whole(block, a)
        if self.blocks:
            a, b = (
                self._scaled(block, one, at, which)
                for which, (one, at) in enumerate(zip((a, b), self.scale_at))
            )
        total = a @ b.T
        if self.meta is not None and not np.isfinite(total).all():
            total = sparse_matrix_ops.total(0.0, a[None], stored[None], b.T[None], np.zeros(1))[0]
        if self.folds > 1:
            total = np.concatenate(np.split(total, self.folds, axis=1))
        words = self.memory.words[block]
        lanes = self._lanes(len(total))[:, None]
        columns = tensor_memory.column_of(self.where) + np.arange(total.shape[1])
        if self.adds:
            old = words[lanes, columns]
            numbers = (
                to_numbers(plan.result)(old)
                if plan.result != "s32"
                else old.view(np.int32).astype(np.float64)
            )
            if plan.result == "f16":  # in the lower half of each word
                numbers = numbers[:, ::2]
            total = total + numbers / 2.0**self.input_scale
        if plan.result == "f16":
            halves = np.ascontiguousarray(from_numbers("f16", False)(np.ascontiguousarray(total))).view(
                np.uint16
            )
            found = halves.astype(np.uint32)
        else:
            found = from_numbers(plan.result, plan.saturates)(np.ascontiguousarray(total))
        is_written = np.ones((len(total), 1), bool)
        if self.masks:
            is_written = ~self._is_off(number)[lanes]
        words[lanes, columns] = np.where(is_written, found, words[lanes, columns])

    def _lanes(self, rows: int) -> Lanes:
        """Where the rows of D are; of a product of 64 rows, 16 in the lanes of each warp."""
        row = np.arange(rows)
        first = tensor_memory.lane_of(self.where)
        is_whole = rows == tensor_memory.LANES or self.keeps_weights
        return first + (row if is_whole else row // 16 * 32 + row % 16)

    def _metadata(self) -> tcgen05_sparse.Metadata:
        plan = self.plan
        bits = 4 if self.kind.dense else 32 if plan.a == "tf32" else 16 if plan.a in ("f16", "bf16") else 8
        return tcgen05_sparse.metadata(
            self._lanes(plan.rows // len(self.parts)), bits, plan.selector if bits >= 16 else 0
        )

    def _whole(self, block: int, a: Lanes) -> tuple[Lanes, Lanes]:
        """A with zeros where nothing is stored, and where something is."""
        assert self.meta is not None
        plan, at = self.plan, tensor_memory.column_of(self.meta)
        codes = tcgen05_sparse.codes(self.memory.words[block], self._metadata(), at)
        unit = 2 if self.kind.dense else 0 if plan.a == "tf32" else 1
        allowed = sparse_matrix_ops.ORDERED if unit else sparse_matrix_ops.HALVES
        wrong = ~allowed[codes]
        if wrong.any():
            row, chunk = (int(where[0]) for where in np.nonzero(wrong))
            raise self.issuer.refuse(
                f"the metadata of row {row} and chunk {chunk} of A are {int(codes[row, chunk]):#06b}, which has no "
                "meaning"
            )
        full, stored = sparse_matrix_ops.whole(a[None], codes[None], unit)
        return full[0], stored[0]

    def _a(self, block: int) -> Lanes:
        plan, rows = self.plan, self.plan.rows // len(self.parts)
        if not isinstance(self.a, int):
            return self._in_shared(block, self.a, rows, plan.a, plan.turned[0])
        columns = tensor_memory.column_of(self.a) + np.arange(DEPTH_WORDS)
        words = self.memory.words[block][self._lanes(rows)[:, None], columns]
        if self.moves_down:
            words = np.concatenate((words[:1], words[:-1]))
        return _numbers(plan.a, is_dense=self.kind.dense, is_padded=False)(np.ascontiguousarray(words))

    def _in_shared(
        self,
        block: int,
        matrix: shared_matrix.Descriptor,
        rows: int,
        name: str,
        is_turned: bool,
        depth_bytes: int = shared_matrix.DEPTH_BYTES,
    ) -> Lanes:
        numbers, batch = _numbers(name, is_dense=self.kind.dense, is_padded=True), self.issuer.batch
        try:
            lanes = lanes_in(batch, block)
            return shared_matrix.load(batch, lanes, matrix, rows, numbers, is_turned, depth_bytes)[0]
        except BadAccess as bad:
            raise self.issuer.fault(bad, "load of a matrix") from None

    def _scaled(self, block: int, values: Lanes, at: int, number: int) -> Lanes:
        """Numbers times their scales: row m has those in lane m % 32, column m / 32, from byte id on."""
        rows, depth = values.shape
        row = np.arange(rows)
        column = tensor_memory.column_of(at) + row // 32
        words = self.memory.words[block][row % 32, column]
        first = self.plan.scale_ids[number]
        scales = np.stack(
            [
                _scale(words >> np.uint32(8 * (first + which)) & 0xFF, self.plan)
                for which in range(self.blocks)
            ],
            axis=1,
        )
        return (values.reshape(rows, self.blocks, -1) * scales[:, :, None]).reshape(rows, depth)


def _scale(codes: Lanes, plan: Plan) -> Lanes:
    """A power of two, of which 255 is no number; or a float of eight bits without its sign."""
    if plan.has_power_scales:
        exponents = codes.astype(np.int64)
        return np.where(exponents == 0xFF, np.nan, np.ldexp(1.0, exponents - 127))
    return E4M3.values[codes & 0x7F].astype(np.float64)


def _numbers(name: str, is_dense: bool, is_padded: bool) -> Callable[[Lanes], Lanes]:
    """What 32-bit words, the last axis, hold.

    is_dense   two numbers of four bits in a byte
    is_padded  16 numbers of six or four bits at the beginning of 16 bytes; else each at the beginning of a byte
    """
    if name not in SMALL:
        return to_numbers(name)
    table, bits = SMALL[name], SMALL_BITS[name]
    if bits == 8 or (not is_dense and not is_padded):
        return lambda words: table.values[words.view(np.uint8) & (len(table.values) - 1)].astype(np.float64)
    per_piece = 128 // bits if is_dense else 16
    return lambda words: _in_pieces(words, table, bits, per_piece)


def _in_pieces(words: Lanes, table: SmallFloat, bits: int, per_piece: int) -> Lanes:
    """Numbers that lie one behind the other from the beginning of each 16 bytes on."""
    octets = words.view(np.uint8).reshape(len(words), -1, 16)
    lit = np.unpackbits(octets, axis=2, bitorder="little")[:, :, : bits * per_piece]
    codes = lit.reshape(len(words), -1, per_piece, bits) @ (1 << np.arange(bits))
    return table.values[codes].astype(np.float64).reshape(len(words), -1)
