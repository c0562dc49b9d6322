"""Which registers an instruction reads and writes, against the text that LLVM's assembler has for the same words."""

from __future__ import annotations

import re

import pytest

from hcq.emu.amd.shader.field_registers import ACCUMULATORS, VECTORS, Part, use_of
from hcq.emu.amd.shader.isa import Isa
from hcq.emu.amd.shader.operands import Context, Mode
from hcq.emu.amd.shader.register_uses import uses_of
from hcq.emu.amd.shader.registers import VECTOR
from tests.hcq.emu.amd.shader.bench import ACC_OFFSET, DEFAULT_MODE, ISAS
from tests.hcq.emu.amd.shader.test_encodings import lines_of

REGISTER = re.compile(r"(?<![\w.])([vsa])(?:(\d+)(?:\.[lh])?|\[(\d+):(\d+)\])(?![\w\[])")
SCALARS = re.compile(r"(?<![\w.])(vcc_lo|vcc_hi|vcc|m0)(?!\w)")
# what the emulator refuses, and what its text leaves to the reader
OTHERS = re.compile(
    r".*_format_|.*d16_format|buffer_store_lds|s_(buffer_)?atomic|s_scratch|ds_(gws|ordered|bvh|add_gs|sub_gs|condx)"
    r"|v_(swmmac|screen|swaprel|cube)|global_load_tr|global_atomic_ordered|s_atc|s_dcache|.*prefetch|s_cbranch|s_rfe"
    r"|s_barrier|s_get_barrier|s_alloc|s_set_gpr|v_mqsad|v_qsad|v_cvt_sr"
)


def context(isa: Isa, words: list[int], size: int = 0) -> Context:
    size = size or (64 if isa.is_gfx9 else 32)
    return Context(
        isa, isa.decode([*words, 0, 0]), Mode(DEFAULT_MODE), size, ACC_OFFSET if isa.is_gfx9 else 0
    )


def named(text: str, isa: Isa) -> set[int]:
    """The registers that a line of assembly names."""
    found: set[int] = set()
    for file, one, first, last in REGISTER.findall(text):
        span = range(int(one), int(one) + 1) if one else range(int(first), int(last) + 1)
        base = {"s": 0, "v": VECTOR, "a": VECTOR + ACC_OFFSET}[file]
        found |= {base + number for number in span}
    for name in SCALARS.findall(text):
        found |= {"vcc": {106, 107}, "vcc_lo": {106}, "vcc_hi": {107}, "m0": {isa.m0}}[name]
    return found


@pytest.mark.parametrize("arch", ISAS)
def test_every_register_that_the_assembler_names_is_used_and_no_other(arch: str) -> None:
    isa, wrong, looked = ISAS[arch], [], 0
    for text, words in lines_of(arch):
        if OTHERS.match(text):
            continue
        looked += 1
        wanted = named(text, isa)
        uses = uses_of(context(isa, words))
        found = set(uses.all)
        implied = {106, 107, 124, 125, 126, 127}
        if wanted - found or (found - wanted) - implied:
            wrong.append(f"{text}: {sorted(wanted)} read as {sorted(found)}")
    assert looked > 800
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:60]])


def numbers(parts: tuple[Part, ...]) -> set[int]:
    """Registers of fields, as numbers of one file with accumulation registers behind the others."""
    found = {number for part in parts for number in part.registers}
    vectors = {VECTOR + number - VECTORS for number in found if VECTORS <= number < ACCUMULATORS}
    accumulators = {VECTOR + ACC_OFFSET + number - ACCUMULATORS for number in found if number >= ACCUMULATORS}
    return {number for number in found if number < VECTORS} | vectors | accumulators


@pytest.mark.parametrize("size", (32, 64))
@pytest.mark.parametrize("arch", ISAS)
def test_the_registers_of_its_fields_are_those_that_an_instruction_uses(arch: str, size: int) -> None:
    isa, wrong = ISAS[arch], []
    if isa.is_gfx9 and size == 32:
        pytest.skip("has waves of 64 lanes alone")
    implied = {106, 107, 124, 125, 126, 127}
    for text, words in lines_of(arch):
        ctx = context(isa, words, size)
        if OTHERS.match(text):
            continue
        uses, use = uses_of(ctx), use_of(ctx.inst, size, isa.has_halves)
        for verb, known, named_by_fields in (
            ("reads", uses.reads, use.reads),
            ("writes", uses.writes, use.writes),
        ):
            if differ := (set(known) ^ numbers(named_by_fields)) - implied:
                wrong.append(f"{text} {verb} {sorted(differ)}, or not")
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:60]])
