"""mma.sp: products whose A is sparse: half of it is stored, and metadata say which half.

In       Code whose .sp or .sp::ordered_metadata is claimed; fragments, metadata of some threads, which threads
Out      a step; for wgmma and tcgen05: where metadata are, A made whole, the sum
Next     matrix_ops.py (dense products), small_matrix_ops.py (small floats with scales), warpgroup_ops.py (wgmma of
         sparse matrices)
Source   PTX ISA, "Sparse matrix storage", "mma.sp"; whose metadata belong to which row: CUTLASS's layouts of E for
         SM80, SM90 and SM120

Four bits say of a chunk which two of its four parts are stored: a part is one number, of 4 bits two numbers. Of tf32 a
chunk has two numbers, each of two parts. What is not stored does not multiply: infinities of B do not reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import matrix_ops
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.decode import Code, Registers, Step
from hcq.emu.nv.shader.errors import KernelFault
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.matrix_ops import LEAST, MINIFLOATS, Part, a_fragment, b_fragment, c_fragment
from hcq.emu.nv.shader.syntax import Immediate, Operand
from hcq.emu.nv.shader.types import TYPES, Lanes

ROWS, COLUMNS = 16, 8
DEPTHS = {
    "f16": (16, 32), "bf16": (16, 32), "tf32": (8, 16), "s8": (32, 64), "u8": (32, 64), "s4": (64, 128),
    "u4": (64, 128), "e4m3": (64,), "e5m2": (64,),
}  # fmt: skip
# which chunks of four parts have two that follow each other: of ordered metadata all
ORDERED = np.array([(code & 3) < code >> 2 for code in range(16)])
DIFFERENT = np.array([(code & 3) != code >> 2 for code in range(16)])
HALVES = np.array([code in (0b0100, 0b1110) for code in range(16)])


class Storage(NamedTuple):
    """How rows are stored: a chunk's four bits are of lane[row, chunk], from bit shift[row, chunk] on.

    unit      numbers in a part; 0: a chunk has two numbers, of two parts each
    allowed   by the four bits, whether they name parts
    """

    lane: Lanes
    shift: Lanes
    unit: int
    allowed: Lanes


def storage(bits: int, depth: int, selector: int, is_ordered: bool) -> Storage | None:
    """Of 16 rows of so many numbers of so many bits; None when no threads are selected so."""
    unit = {32: 0, 4: 2}.get(bits, 1)
    chunks = depth // (4 * unit or 2)
    row, chunk = np.arange(ROWS)[:, None], np.arange(chunks)[None, :]
    group, lower = row % 8, row // 8
    allowed = HALVES if not unit else ORDERED if is_ordered else DIFFERENT
    if chunks == 4:
        lane, shift, count = group * 4 + selector, 16 * lower + 4 * chunk, 4
    elif chunks == 8 and bits >= 16:
        lane, shift, count = group * 4 + 2 * selector + chunk // 4, 16 * lower + 4 * (chunk % 4), 2
    elif chunks == 8:
        lane, shift, count = group * 4 + 2 * selector + lower, 4 * chunk, 2
    else:
        lane, shift, count = group * 4 + lower + 2 * (chunk // 8), 4 * (chunk % 8), 1
    lane, shift = np.broadcast_arrays(lane, shift)
    return Storage(lane, shift, unit, allowed) if selector < count else None


def chunks_of(words: Lanes, kept: Storage) -> Lanes:
    """(warps, 32) metadata -> (warps, rows, chunks) four bits each."""
    found: Lanes = (words[:, kept.lane] >> kept.shift.astype(np.uint32) & np.uint32(15)).astype(np.int64)
    return found


def whole(stored: Lanes, codes: Lanes, unit: int) -> tuple[Lanes, Lanes]:
    """(n, rows, depth / 2) numbers and (n, rows, chunks) codes -> (n, rows, depth) numbers, and which are stored."""
    shape, chunks = stored.shape[:2], codes.shape[2]
    if not unit:
        full = np.zeros((*shape, chunks, 2))
        np.put_along_axis(full, (codes >> 3)[..., None], stored[..., None], axis=3)
        chosen = np.zeros(full.shape, bool)
        np.put_along_axis(chosen, (codes >> 3)[..., None], True, axis=3)
    else:
        full = np.zeros((*shape, chunks, 4, unit))
        chosen = np.zeros(full.shape, bool)
        parts = stored.reshape(*shape, chunks, 2, unit)
        for number in range(2):
            at = (codes >> 2 * number & 3)[..., None, None]
            np.put_along_axis(full, at, parts[..., number : number + 1, :], axis=3)
            np.put_along_axis(chosen, at, True, axis=3)
    return full.reshape(*shape, -1), chosen.reshape(*shape, -1)


def total(least: float, x: Lanes, chosen: Lanes, y: Lanes, z: Lanes) -> Lanes:
    """A * B + C, product after product in the order of k, where A is stored."""
    if np.isfinite(y).all():
        return matrix_ops.in_order(least, x, y, z)
    found = np.zeros((x.shape[0], x.shape[1], y.shape[2]))
    with np.errstate(invalid="ignore"):
        for k in range(x.shape[2]):
            found += np.where(chosen[:, :, k, None], x[:, :, k, None] * y[:, None, k, :], 0.0)
        found += z
    return found


class Sparse(NamedTuple):
    """Matrix A of a warp: what is stored, and the metadata."""

    stored: Part
    slot: int
    kept: Storage
    code: Code

    def matrix(self, registers: Registers, group: Group) -> tuple[Lanes, Lanes]:
        """(warps, rows, depth) numbers, and which of them are stored. Raises KernelFault for metadata without sense."""
        batch = group.batch
        words = np.broadcast_to(registers[self.slot], (batch.count,)).reshape(-1, WARP)
        codes = chunks_of(words, self.kept)
        check(self.code, group, codes, self.kept, np.arange(len(codes)) * WARP, _running(group))
        return whole(self.stored.matrix(batch, registers), codes, self.kept.unit)


def _running(group: Group) -> Lanes:
    """Which warps execute."""
    count = group.batch.count // WARP
    return np.ones(count, bool) if group.mask is None else group.mask.reshape(count, WARP).any(axis=1)


def check(code: Code, group: Group, codes: Lanes, kept: Storage, leaders: Lanes, runs: Lanes) -> None:
    """Refuse metadata that name a part twice, or in the wrong order: what these do is undefined.

    leaders  a thread for each matrix
    runs     which matrices are computed
    """
    wrong = ~kept.allowed[codes] & runs[:, None, None]
    if not wrong.any():
        return
    number, row, chunk = (int(where[0]) for where in np.nonzero(wrong))
    batch, instruction = group.batch, code.instruction
    thread = int(leaders[number]) + int(kept.lane[row % ROWS, chunk])
    block, place = batch.place(thread)
    meaningful = ", ".join(f"{one:#06b}" for one in np.flatnonzero(kept.allowed))
    raise KernelFault(
        f"kernel {batch.launch.kernel_name}, PTX line {instruction.line} `{instruction}`: the metadata of row {row} "
        f"and chunk {chunk} of A, by thread {place} of block {block}, are {int(codes[number, row, chunk]):#06b}; "
        f"{meaningful} have a meaning.",
        instruction.line,
        [(block, place)],
    )


def selector_of(code: Code, operand: Operand) -> int:
    """Which threads have the metadata."""
    if not isinstance(operand, Immediate) or not 0 <= operand.value <= 3:
        raise code.refuse("the sparsity selector is a number from 0 to 3")
    return operand.value


def sparse_part(code: Code, stored: Part, bits: int, depth: int, first: int, is_ordered: bool) -> Sparse:
    """A, whose metadata and selector are the operands from `first` on."""
    selector = selector_of(code, code.operands[first + 1])
    kept = storage(bits, depth, selector, is_ordered)
    if kept is None:
        raise code.refuse(f"no threads have the metadata of this product with the selector {selector}")
    return Sparse(stored, code.slot(code.operands[first], TYPES["b32"]), kept, code)


def product(code: Code, is_ordered: bool) -> Step:
    """The step of an mma.sp without a kind."""
    depths = sorted({depth for each in DEPTHS.values() for depth in each})
    shape = code.take(*(f"m{ROWS}n{COLUMNS}k{depth}" for depth in depths))
    if not shape or not code.flag("row") or not code.flag("col"):
        raise code.refuse(f"sparse are row.col products of m{ROWS}n{COLUMNS}k{depths[0]} to k{depths[-1]}")
    saturates = code.flag("satfinite")
    d_type = code.type("f16", "f32", "s32")
    kinds = code.take(*DEPTHS), code.take(*DEPTHS)
    c_type = code.type(d_type.name)
    depth = int(shape.rsplit("k", 1)[1])
    if not _are_alike(*kinds) or depth not in DEPTHS[kinds[0]] or d_type.name not in _results(kinds[0]):
        raise code.refuse(
            f"there is no sparse {shape} product of .{kinds[0]} and .{kinds[1]} to .{d_type.name}"
        )
    code.expect(6)
    bits = matrix_ops.INPUT_BITS[kinds[0]]
    a, b = (matrix_ops.to_numbers(kind) for kind in kinds)
    places = a_fragment(ROWS, depth // 2, bits), b_fragment(depth, COLUMNS, bits)
    stored = matrix_ops.fragment_part(code, code.operands[1], bits, a, places[0], (ROWS, depth // 2))
    dense = matrix_ops.fragment_part(code, code.operands[2], bits, b, places[1], (depth, COLUMNS))
    least = LEAST.get(kinds[0], 0.0) * LEAST.get(kinds[1], 0.0)
    sparse = sparse_part(code, stored, bits, depth, 4, is_ordered)
    return step_of(code, sparse, dense, c_type.name, saturates, least)


def _are_alike(a: str, b: str) -> bool:
    if not a or not b:
        return False
    if a in MINIFLOATS or a[0] in "su":
        return matrix_ops.INPUT_BITS[a] == matrix_ops.INPUT_BITS[b] and (a in MINIFLOATS) == (b in MINIFLOATS)
    return a == b


def _results(kind: str) -> tuple[str, ...]:
    if kind[0] in "su":
        return ("s32",)
    return ("f32",) if kind in ("bf16", "tf32") else ("f16", "f32")


Scaling = Callable[
    [Registers, Group, Lanes, Lanes], tuple[Lanes, Lanes]
]  # A and B to what they are with scales


def step_of(
    code: Code, a: Sparse, b: Part, kind: str, saturates: bool, least: float, scaling: Scaling | None = None
) -> Step:
    """The first operand becomes A * B + C, the fourth; both are of this kind."""
    place, type_ = c_fragment(ROWS, COLUMNS), TYPES[kind]
    c = matrix_ops.fragment_part(
        code, code.operands[3], type_.width, matrix_ops.to_numbers(kind), place, (ROWS, COLUMNS)
    )
    write = matrix_ops.results(code, type_, place, saturates)

    def step(registers: Registers, group: Group) -> None:
        batch: Batch = group.batch
        x, chosen = a.matrix(registers, group)
        y, z = b.matrix(batch, registers), c.matrix(batch, registers)
        if scaling is not None:
            x, y = scaling(registers, group, x, y)
        write(registers, group, total(least, x, chosen, y, z))

    return step
