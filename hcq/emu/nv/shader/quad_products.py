"""mma.m8n8k4 of halves: four products of a warp at once, each of eight threads.

In       Code whose shape is claimed
Out      a step
Next     matrix_ops.py (products of a whole warp)
Source   PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type"

Threads 4 q to 4 q + 3 and 4 q + 16 to 4 q + 19 compute product q. Each of A and B may be row- or column-major: that
says which elements a thread holds.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader import matrix_ops
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.decode import Code, Registers, Step
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.types import TYPES, Lanes, Type

B32 = TYPES["b32"]
ROWS, COLUMNS, DEPTH = 8, 8, 4
PRODUCTS = 4
_THREAD = np.arange(WARP)
_PRODUCT, _UPPER = (_THREAD % 16 // 4)[:, None], (_THREAD // 16)[:, None]
_IN_QUAD = (_THREAD % 4)[:, None]
LINE = _IN_QUAD + 4 * _UPPER  # a row or a column that a thread holds alone


def _places(is_along_k: bool) -> tuple[Lanes, Lanes]:
    """(line, k) of the four elements of A or B: a line of A is a row, of B a column."""
    i = np.arange(DEPTH)[None, :]
    if is_along_k:
        line, k = np.broadcast_arrays(LINE, i)
    else:
        line, k = np.broadcast_arrays(i + 4 * _UPPER, _IN_QUAD)
    return line, k


def _sums(type_: Type) -> tuple[Lanes, Lanes]:
    """(row, column) of the eight elements of C or D."""
    i = np.arange(ROWS)[None, :]
    if type_.name == "f16":
        row, column = np.broadcast_arrays(LINE, i)
        return row, column
    row = (_THREAD & 1)[:, None] + (i & 2) + 4 * _UPPER
    return row, (i & 4) + (_THREAD & 2)[:, None] + (i & 1)


def product(code: Code) -> Step:
    """The step of an mma.m8n8k4 of halves."""
    layouts = code.take("row", "col"), code.take("row", "col")
    d_type = code.type("f16", "f32")
    if code.take("f16") != "f16" or code.take("f16") != "f16" or not all(layouts):
        raise code.refuse("m8n8k4 is a product of .f64, or of .f16 with .row or .col for A and for B")
    c_type = code.type("f16", "f32")
    if c_type.name == "f32" and d_type.name == "f16":
        raise code.refuse("sums of .f32 do not become .f16")
    code.expect(4)
    places = _places(layouts[0] == "row"), _places(layouts[1] == "col")
    counts = 2, 2, 4 if c_type.name == "f16" else 8
    slots = [
        [code.slot(part, B32) for part in code.parts(operand, count)]
        for operand, count in zip(code.operands[1:], counts)
    ]
    targets = code.parts(code.operands[0], 4 if d_type.name == "f16" else 8)
    writes = [code.writer(code.destination(target, B32)) for target in targets]
    halves, of_c = matrix_ops.to_numbers("f16"), matrix_ops.to_numbers(c_type.name)
    pack, least = matrix_ops.from_numbers(d_type.name, False), matrix_ops.LEAST["f16"] ** 2
    c_place, d_place = _sums(c_type), _sums(d_type)

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        x, y = (
            _matrices(halves(_words(batch, registers, mine)), place) for mine, place in zip(slots, places)
        )
        z = _matrices(of_c(_words(batch, registers, slots[2])), c_place, COLUMNS)
        found = matrix_ops.in_order(least, x, y.transpose(0, 2, 1), z)
        spread = found.reshape(-1, PRODUCTS, ROWS, COLUMNS)[:, _PRODUCT, d_place[0], d_place[1]]
        packed = pack(np.ascontiguousarray(spread).reshape(batch.count, -1))
        for i, write in enumerate(writes):
            write(registers, group, np.ascontiguousarray(packed[:, i]))

    return step


def _words(batch: Batch, registers: Registers, slots: list[int]) -> Lanes:
    return np.stack([np.broadcast_to(registers[slot], (batch.count,)) for slot in slots], axis=1)


def _matrices(elements: Lanes, place: tuple[Lanes, Lanes], width: int = DEPTH) -> Lanes:
    """(threads, elements) -> (products, 8, width)."""
    found = np.zeros((len(elements) // WARP, PRODUCTS, ROWS, width))
    found[:, _PRODUCT, place[0], place[1]] = elements.reshape(-1, WARP, elements.shape[1])
    return found.reshape(-1, ROWS, width)
