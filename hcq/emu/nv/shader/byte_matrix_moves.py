"""ldmatrix and stmatrix of bytes, and of numbers of six and four bits: 16 columns of a row are 16 bytes.

In       Code whose .sync.aligned is claimed
Out      steps
Changes  shared memory (stmatrix)
Next     matrix_ops.py (of halfwords), small_matrix_ops.py (who multiplies such bytes)
Source   PTX ISA, "ldmatrix", "stmatrix"; which thread has what: CUTLASS's traits of SM100's copies, and what others saw
         on an sm_120

In memory 16 numbers of four bits are 8 bytes, of six bits 12; the rest of the 16 bytes is not read. Registers have each
in a byte of its own, from bit 0 on.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader import matrix_ops, spaces
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.decode import Code, Registers, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import address_of, check_alignment
from hcq.emu.nv.shader.types import TYPES, Lanes

B32 = TYPES["b32"]
ROW_BYTES = 16
PACKED = {"b4x16_p64": 4, "b6x16_p32": 6}  # bits of a number in memory


def bits_of(code: Code, may_be_bytes: bool) -> int:
    """How many bits the numbers in memory have: .b8, or .b8x16 of a format."""
    code.take("shared", "shared::cta")
    if code.flag("b8x16"):
        found = PACKED.get(code.take(*PACKED), 0)
    else:
        found = 8 if may_be_bytes and code.flag("b8") else 0
    if not found:
        raise code.refuse(f"rows of 16 are .b8x16 of .{' or .'.join(PACKED)}, and transposed ones .b8, too")
    code.expect(2)
    return found


def unpacked(rows: Lanes, bits: int) -> Lanes:
    """(n, 16) bytes as they are in memory -> (n, 16) numbers."""
    if bits == 8:
        return rows
    every = np.unpackbits(rows[:, : 2 * bits], axis=1, bitorder="little").reshape(-1, ROW_BYTES, bits)
    found: Lanes = np.packbits(every, axis=2, bitorder="little")[:, :, 0]
    return found


def _threads(batch: Batch, first: int, count: int) -> Lanes:
    """The threads from `first` on of every warp, which name rows."""
    found: Lanes = np.arange(0, batch.count, WARP)[:, None] + first + np.arange(count)[None, :]
    return found.reshape(-1)


def _live(group: Group, threads: Lanes) -> Lanes:
    return np.ones(len(threads), bool) if group.mask is None else group.mask[threads]


def load(code: Code) -> Step:
    """ldmatrix.m8n16 and .m16n16: of the latter, whose rows become columns, a matrix fills two registers."""
    is_large = code.take("m8n16", "m16n16") == "m16n16"
    word = code.take("x1", "x2", "x4")
    count = int(word[1:]) if word else 1
    if code.flag("trans") != is_large or count * (2 if is_large else 1) > 4:
        raise code.refuse("there are .m8n16, and .m16n16.x1 and .x2 with .trans")
    bits = bits_of(code, is_large)
    at_of, instruction = address_of(code, code.operands[1]), code.instruction
    per_matrix = 2 if is_large else 1
    targets = code.parts(code.operands[0], count * per_matrix)
    writes = [code.writer(code.destination(target, B32)) for target in targets]
    rows = 8 * per_matrix

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        at = matrix_ops.shared_address(batch, at_of(registers))
        for number in range(count):
            threads = _threads(batch, rows * number, rows)
            places = np.broadcast_to(at, (batch.count,))[threads]
            live = _live(group, threads)
            data = np.zeros((len(threads), ROW_BYTES), np.uint8)
            try:
                check_alignment(places[live], ROW_BYTES)
                data[live] = spaces.SHARED.load(batch, threads[live], places[live], np.uint8, ROW_BYTES)
            except BadAccess as bad:
                raise group.fault(bad, instruction, "load of a matrix row", threads[live]) from None
            matrices = unpacked(data, bits).reshape(-1, rows, ROW_BYTES)
            if is_large:
                matrices = matrices.transpose(0, 2, 1)
            # a thread has four neighbours of a row, of a large matrix those eight rows below, too
            words = np.ascontiguousarray(matrices).view(np.uint32).reshape(-1, per_matrix, 8, 4)
            for half in range(per_matrix):
                value = np.ascontiguousarray(words[:, half]).reshape(-1)
                writes[number * per_matrix + half](registers, group, value)

    return step


def store(code: Code) -> Step:
    """stmatrix.m16n8.trans.b8: sums of a product, as bytes; each thread 0 to 7 names where a column of 16 goes."""
    code.flag("m16n8")
    word = code.take("x1", "x2", "x4")
    count = int(word[1:]) if word else 1
    if not code.flag("trans"):
        raise code.refuse("stmatrix.m16n8 needs .trans")
    code.take("shared", "shared::cta")
    if not code.flag("b8"):
        raise code.refuse("stmatrix.m16n8 stores .b8")
    code.expect(2)
    at_of, instruction = address_of(code, code.operands[0]), code.instruction
    slots = [code.slot(source, B32) for source in code.parts(code.operands[1], count)]

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        at = matrix_ops.shared_address(batch, at_of(registers))
        for number, slot in enumerate(slots):
            threads = _threads(batch, 8 * number, 8)
            places = np.broadcast_to(at, (batch.count,))[threads]
            live = _live(group, threads)
            octets = np.ascontiguousarray(np.broadcast_to(registers[slot], (batch.count,))).view(np.uint8)
            # thread 4 g + t has columns 2 t and 2 t + 1 of row g, then of row g + 8
            sums = octets.reshape(-1, 8, 4, 2, 2)
            columns = np.ascontiguousarray(sums.transpose(0, 2, 4, 3, 1)).reshape(-1, ROW_BYTES)
            try:
                check_alignment(places[live], ROW_BYTES)
                spaces.SHARED.store(batch, threads[live], places[live], columns[live])
            except BadAccess as bad:
                raise group.fault(bad, instruction, "store of a matrix row", threads[live]) from None

    return step
