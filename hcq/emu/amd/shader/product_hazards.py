"""Wait states around the matrix products of CDNA: how long a product takes, and who must wait how long for it.

In       two instructions, of which the first or the second is a product
Out      `product_of`; wait states that must stand between the two
Next     hazards.py (who asks), matrix_ops.py (what a product computes)
Source   CDNA2 and CDNA3 ISA documents, 4.5: manually inserted wait states; LLVM 22, GCNHazardRecognizer.cpp and what it
         inserts between each pair of products of these parts

A product takes 2 to 16 passes, of four cycles each. Those of doubles have a unit of their own; from gfx942 on, so have
those of single floats.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hcq.emu.amd.shader.operands import Context
from hcq.emu.amd.shader.register_uses import source_registers, uses_of
from hcq.emu.amd.shader.registers import VECTOR

NAME = re.compile(
    r"v_s?mfmac?_(?:scale_)?(?P<out>f32|f64|i32)_(?P<size>4x4|16x16|32x32)x\d+_?(?P<blocks>\d+b_)?(?P<factors>\w+)"
)
MATRIX, SINGLE, DOUBLE = "matrix", "single", "double"
OLD_PASSES = {"4x4": 2, "16x16": 8, "32x32": 16}  # of gfx90a
PASSES = {"4x4": 2, "16x16": 4, "32x32": 8}
EIGHT_BITS = (0, 1)  # CBSZ, BLGP: the formats of eight bits


class Product(NamedTuple):
    """A matrix product.

    passes   that it takes
    unit     that computes it
    result   its registers
    addend   those that it adds to; none where that is a number
    factors  all others that it reads
    """

    passes: int
    unit: str
    result: tuple[int, ...]
    addend: tuple[int, ...]
    factors: tuple[int, ...]


def product_of(ctx: Context) -> Product | None:
    """The product that an instruction computes; None for another instruction."""
    found = NAME.match(ctx.inst.name)
    if found is None:
        return None
    uses = uses_of(ctx)
    is_sparse = "smfmac" in ctx.inst.name  # adds to its result; source 2 says where the zeros are
    addend = uses.writes if is_sparse else tuple(source_registers(ctx, "src2"))
    addend = tuple(one for one in addend if one >= VECTOR)
    named = ("src0", "src1", "src2") if is_sparse else ("src0", "src1")
    factors = {one for field in named for one in source_registers(ctx, field)}
    factors |= set(uses.reads) - set(addend)
    unit = MATRIX
    if found["out"] == "f64":
        unit = DOUBLE
    elif found["factors"] == "f32" and ctx.isa.arch != "gfx90a":
        unit = SINGLE
    passes = _passes(ctx, unit, found["size"], bool(found["blocks"]), found["factors"])
    return Product(passes, unit, uses.writes, addend, tuple(one for one in factors if one >= VECTOR))


def _passes(ctx: Context, unit: str, size: str, has_blocks: bool, factors: str) -> int:
    arch, fields = ctx.isa.arch, ctx.inst.fields
    if unit == DOUBLE:
        return 4 if size == "4x4" else 16 if arch == "gfx950" else 8
    if arch == "gfx90a":
        return OLD_PASSES[size]
    takes_eight = factors == "f8f6f4" and (fields["cbsz"] in EIGHT_BITS or fields["blgp"] in EIGHT_BITS)
    is_slow = size != "4x4" and (has_blocks or unit == SINGLE or takes_eight)
    return PASSES[size] * (2 if is_slow else 1)


def before_use(first: Product, arch: str, use: str) -> int:
    """Behind a product, before an instruction that is none uses the result. use: read, written, or sent (to memory)."""
    if first.unit == DOUBLE:
        if first.passes == 4:
            return 9 if use == "sent" else 6
        if use == "sent":
            return 18
        return 19 if first.passes == 16 and use == "read" else 11
    if first.unit == SINGLE:
        return first.passes + 2
    return first.passes + 3 + (arch == "gfx950" and first.passes > 2)


def before_factor(first: Product, arch: str) -> int:
    """Behind a product, before another multiplies its result."""
    return before_use(first, arch, "read")


def before_addend(first: Product, second: Product, arch: str) -> int:
    """Behind a product, before another adds to its result, or to a part of that."""
    is_old = arch == "gfx90a"
    if first.unit == DOUBLE and second.unit == MATRIX:
        return 0
    if first.result == second.addend:  # the sum goes on
        if first.unit == DOUBLE and first.passes == 4:
            return 4
        return 2 if first.passes == 2 and not is_old else 0
    if first.unit == DOUBLE:
        return {4: 4, 8: 9, 16: 17}[first.passes]
    if is_old:
        return first.passes + (second.unit == DOUBLE)
    if first.unit == SINGLE:
        return 0 if second.unit == MATRIX else first.passes
    is_longer = arch == "gfx950" and (first.passes > 2 or second.unit == MATRIX)
    return first.passes + 1 + is_longer


def before_overwritten(first: Product) -> int:
    """Behind a product, before another instruction overwrites what it adds to."""
    return first.passes - 1 if first.unit == MATRIX else 0
