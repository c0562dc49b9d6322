"""Matrix instructions of a warp: mma.sync, ldmatrix, stmatrix, movmatrix.

In       Code; fragments as lists of registers
Out      steps
Changes  shared memory (stmatrix)
Next     matrix_ops.py (fragments, products), small_matrix_ops.py, sparse_matrix_ops.py, quad_products.py (others),
         byte_matrix_moves.py (matrices of bytes)
Source   PTX ISA, "mma", "ldmatrix", "stmatrix", "movmatrix"
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader import byte_matrix_moves, quad_products, small_matrix_ops, spaces, sparse_matrix_ops
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.matrix_ops import (
    B32,
    INPUT_BITS,
    a_fragment,
    b_fragment,
    c_fragment,
    form_of,
    moves,
    only_live,
    part_of,
    product,
    row_addresses,
    shared_address,
)
from hcq.emu.nv.shader.memory_ops import address_of, check_alignment

RULES = Rules()


@RULES.on("mma")
def mma(code: Code) -> Step:
    """D = A * B + C"""
    code.flag("sync"), code.flag("aligned")
    sparse = code.take("sp", "sp::ordered_metadata")
    kind = next((word for word in code.rest if word.startswith("kind::")), "")
    if kind:
        if not code.take(*small_matrix_ops.KINDS):
            raise code.refuse(f".{kind}: the kinds are {', '.join(small_matrix_ops.KINDS)}")
        return small_matrix_ops.product(code, kind, sparse)
    if sparse:
        return sparse_matrix_ops.product(code, sparse != "sp")
    if "m8n8k4" in code.rest and "f16" in code.rest:
        code.flag("m8n8k4")
        return quad_products.product(code)
    form = form_of(code)
    (m, n, k), c_type, bits = form.sizes, form.c_type, INPUT_BITS[form.kinds[0]]
    c_place = c_fragment(m, n)
    places = a_fragment(m, k, bits), b_fragment(k, n, bits)
    parts = [
        part_of(code, operand, kind, bits, place, sizes)
        for operand, kind, place, sizes in zip(code.operands[1:], form.kinds, places, ((m, k), (k, n)))
    ]
    parts.append(part_of(code, code.operands[3], c_type.name, c_type.width, c_place, (m, n)))
    return product(code, parts, form.d_type, c_place, form.saturates, form.combine)


@RULES.on("ldmatrix")
def ldmatrix(code: Code) -> Step:
    """Threads 8i to 8i + 7 name the rows of matrix i; every thread gets two neighbours of each matrix."""
    if "m8n8" not in code.rest:
        code.flag("sync"), code.flag("aligned")
        return byte_matrix_moves.load(code)
    count, transposes = moves(code)
    at_of = address_of(code, code.operands[1])
    writes = [code.writer(code.destination(target, B32)) for target in code.parts(code.operands[0], count)]
    instruction = code.instruction

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        at = shared_address(batch, at_of(registers))
        for number, write in enumerate(writes):
            threads, rows = row_addresses(batch, at, number)
            live = only_live(batch, group, threads)
            data = np.zeros((len(threads), 8), np.uint16)
            try:
                check_alignment(rows[live], 16)
                data[live] = spaces.SHARED.load(batch, threads[live], rows[live], np.uint16, 8)
            except BadAccess as bad:
                raise group.fault(bad, instruction, "load of a matrix row", threads[live]) from None
            matrices = data.reshape(-1, 8, 8)
            if transposes:
                matrices = matrices.transpose(0, 2, 1)
            write(registers, group, np.ascontiguousarray(matrices).view(np.uint32).reshape(-1))

    return step


@RULES.on("stmatrix")
def stmatrix(code: Code) -> Step:
    """`stmatrix`: 8 x 8 matrices from the registers of a warp to shared memory."""
    if "m16n8" in code.rest:
        code.flag("sync"), code.flag("aligned")
        return byte_matrix_moves.store(code)
    count, transposes = moves(code)
    at_of = address_of(code, code.operands[0])
    slots = [code.slot(source, B32) for source in code.parts(code.operands[1], count)]
    instruction = code.instruction

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        at = shared_address(batch, at_of(registers))
        for number, slot in enumerate(slots):
            threads, rows = row_addresses(batch, at, number)
            live = only_live(batch, group, threads)
            values = np.ascontiguousarray(np.broadcast_to(registers[slot], (batch.count,)))
            matrices = values.view(np.uint16).reshape(-1, 8, 8)
            if transposes:
                matrices = matrices.transpose(0, 2, 1)
            data = np.ascontiguousarray(matrices).reshape(-1, 8)
            try:
                check_alignment(rows[live], 16)
                spaces.SHARED.store(batch, threads[live], rows[live], data[live])
            except BadAccess as bad:
                raise group.fault(bad, instruction, "store of a matrix row", threads[live]) from None

    return step


@RULES.on("movmatrix")
def movmatrix(code: Code) -> Step:
    """The transpose of an 8x8 matrix that is spread over the warp."""
    code.flag("sync"), code.flag("aligned")
    if not code.flag("m8n8") or not code.flag("trans"):
        raise code.refuse("expected movmatrix.sync.aligned.m8n8.trans.b16")
    code.type("b16")
    code.expect(2)
    slot = code.source(1, B32)
    write = code.result(B32)

    def step(registers: Registers, group: Group) -> None:
        values = np.ascontiguousarray(np.broadcast_to(registers[slot], (group.batch.count,)))
        matrices = values.view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1)
        write(registers, group, np.ascontiguousarray(matrices).view(np.uint32).reshape(-1))

    return step
