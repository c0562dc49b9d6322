"""The tables: every instruction decodes to what was encoded, and LLVM's own code reads as LLVM spells it."""

from __future__ import annotations

import random
import re

import pytest

from hcq.emu.amd.shader import disassembly, isa
from hcq.emu.amd.shader.control import compile_ending
from hcq.emu.amd.shader.errors import ShaderFault, UnknownInstruction
from hcq.emu.amd.shader.isa import DPP, DPP8, DPP8_FI, LITERAL, SDWA, Format, Isa
from hcq.emu.amd.shader.lane_ops import relative_moves
from hcq.emu.amd.shader.operands import Context, Mode
from hcq.emu.amd.shader.program import Program
from hcq.errors import UsageError
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.bench import ACC_OFFSET, ISAS
from tests.hcq.emu.amd.shader.kernels import CODE_BASE, Loaded
from tests.hcq.emu.amd.shader.random_kernels import make

FORMATS = [
    pytest.param(isa, one, id=f"{arch}-{one.name}") for arch, isa in ISAS.items() for one in isa.formats
]
MARKERS = {LITERAL, DPP, DPP8, DPP8_FI, SDWA}


def random_fields(rng: random.Random, one: Format) -> dict[str, int]:
    """Values for every field that is free, without the source codes that ask for another word."""
    out = {}
    for name, part in one.layout.fields.items():
        if name in ("op", "op_high") or name.startswith("encoding"):
            continue
        value = rng.getrandbits(part.width)
        while ("src" in name and value in MARKERS) or (name == "soffset" and value == LITERAL):
            value = rng.getrandbits(part.width)
        out[name] = value
    return out


@pytest.mark.parametrize(("isa", "one"), FORMATS)
def test_every_instruction_decodes_to_what_was_encoded(isa: Isa, one: Format) -> None:
    for opcode in one.table.values():
        rng = random.Random(opcode.name)
        for _ in range(4):
            fields = random_fields(rng, one)
            literal = 0x12345678 if opcode.operand("literal32") else None
            words = isa.encode(opcode.name, one.name, literal, **fields)
            inst = isa.decode([*words, 0, 0], pc=0x40)
            assert (inst.name, inst.format) == (opcode.name, one.name.replace("MTBUF", "MUBUF"))
            assert {name: inst.fields[name] for name in fields} == fields, opcode.name
            assert inst.words == words and inst.literal == literal
            assert inst.next_pc == 0x40 + 4 * len(words)
            assert disassembly.text(isa, inst).startswith(opcode.name)


@pytest.mark.parametrize("arch", ISAS)
def test_no_two_instructions_of_a_format_share_a_number(arch: str) -> None:
    for one in ISAS[arch].formats:
        assert all(number == opcode.number for number, opcode in one.table.items())
        top = sum(part.width for name, part in one.layout.fields.items() if name in ("op", "op_high"))
        assert all(number < 1 << top for number in one.table)


def listed(assembly: str) -> list[str]:
    """The mnemonics of an assembly listing, in order, without the suffixes that name an encoding."""
    names = []
    for line in assembly.splitlines():
        match = re.match(r"\t([a-z]\w+)", line)
        if match and not line.startswith("\t."):
            names += [
                re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)$", "", part) for part in dual_parts(line, match[1])
            ]
        if ".end_amdhsa_kernel" in line or line.startswith("\t.section"):
            break
    return names


def dual_parts(line: str, first: str) -> list[str]:
    second = re.search(r":: (\w+)", line)
    return [first, second[1]] if second else [first]


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("seed", range(6))
def test_llvms_code_decodes_to_the_instructions_llvm_lists(arch: str, seed: int) -> None:
    loaded = Loaded(make(seed).gpu, arch)
    program = Program(ISAS[arch], loaded.memory, loaded.symbols["body"], 64, 0)
    pcs = sorted(program.instructions)
    assert pcs[0] == CODE_BASE
    actual = []
    for pc in pcs:
        inst = program.instructions[pc]
        actual += [half.name for half in inst.pair] if inst.pair else [inst.name]
    expected = [name for name in listed(loaded.assembly) if name != "s_code_end"]
    assert expected[: len(actual)] == actual


@pytest.mark.parametrize("arch", ISAS)
def test_words_that_no_table_names_are_refused_with_their_address(arch: str) -> None:
    with pytest.raises(UnknownInstruction, match=rf"pc 0x80: ffffffff 00000000 is no {arch} instruction"):
        ISAS[arch].decode([0xFFFFFFFF, 0], pc=0x80)


def test_an_instruction_cut_off_at_the_end_of_code_is_refused() -> None:
    words = assemble(ISAS["gfx1100"], "v_add3_u32", ("v0", "v1", "v2", "v3"))
    with pytest.raises(UnknownInstruction, match="is no gfx1100 instruction"):
        ISAS["gfx1100"].decode(words[:1])


def test_the_assembler_says_what_an_instruction_takes() -> None:
    with pytest.raises(UsageError, match=r"2 operands; it takes 3: vdst, src0, vsrc1"):
        assemble(ISAS["gfx1100"], "v_add_f32", ("v0", "v1"))
    with pytest.raises(UsageError, match="gfx942 has no instruction 'v_dual_mov'"):
        assemble(ISAS["gfx942"], "v_dual_mov", ())


@pytest.mark.parametrize(
    ("arch", "name", "operands", "text"),
    [
        ("gfx1100", "v_add_f32", ("v1", 0.5, "v2"), "v_add_f32 v1, 0.5, v2"),
        ("gfx1100", "s_and_b64", ("s[4:5]", "vcc", "exec"), "s_and_b64 s[4:5], vcc, exec"),
        ("gfx1100", "v_add_f16", ("v1.h", "v2.l", "v3.h"), "v_add_f16 v1.h, v2.l, v3.h"),
        ("gfx942", "v_mov_b32", ("v7", 0x12345678), "v_mov_b32 v7, 0x12345678"),
        ("gfx942", "v_cmp_lt_i64", ("v[2:3]", "v[4:5]"), "v_cmp_lt_i64 vcc, v[2:3], v[4:5]"),
    ],
)
def test_instructions_read_as_they_were_written(
    arch: str, name: str, operands: tuple[str | int | float, ...], text: str
) -> None:
    words = assemble(ISAS[arch], name, operands)
    assert disassembly.text(ISAS[arch], ISAS[arch].decode(words)) == text


@pytest.mark.parametrize("arch", ISAS)
def test_random_words_compile_or_are_refused_by_name(arch: str) -> None:
    """Hostile code ends a dispatch with a report; no words make the emulator itself fail."""
    isa, rng = ISAS[arch], random.Random(arch)
    program = Program.__new__(Program)
    compiled = 0
    for _ in range(4000):
        one = rng.choice(isa.formats)
        words = [rng.getrandbits(32) for _ in range(5)]
        words[0] = words[0] & ~one.mask | one.value
        try:
            inst = isa.decode(words, 0x100)
            assert disassembly.text(isa, inst)
            context = Context(isa, inst, Mode(0x3F0), 64 if isa.is_gfx9 else 32, ACC_OFFSET)
            if compile_ending(context) is None and relative_moves(context, 0) is None:
                program.compile_step(context)
                compiled += 1
        except ShaderFault:
            continue
    assert compiled > 500


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ("vdst:V32\n    1 v_new  1 v_newer", "1 v_newer is v_new already"),
        ("gone\n    2 v_none", "2 v_none is None already"),
        ("gone\n    0 v_other", "0 v_other is v_old already"),
    ],
)
def test_opcodes_that_contradict_each_other_are_refused(
    tmp_path, monkeypatch, changes: str, why: str
) -> None:
    monkeypatch.setattr(isa, "OPCODES", tmp_path)
    (tmp_path / "older.txt").write_text("[VOP1]\nvdst:V32 src0:V32\n    0 v_old\n")
    (tmp_path / "newer.txt").write_text("over older\n[VOP1]\nvdst:V32\n    0 v_replaced\n")
    assert isa.read_tables("newer")["VOP1"][0].name == "v_replaced"
    (tmp_path / "newer.txt").write_text(f"over older\n[VOP1]\n{changes}\n")
    with pytest.raises(UsageError, match=why):
        isa.read_tables("newer")
