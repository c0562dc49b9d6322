"""Instructions as LLVM's assembler encodes them: the tables know every one by the same name, size and registers.

tests/data/amd/encodings_*.txt holds what the assembler made of each mnemonic that it knows for an architecture, with
different registers for every operand.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hcq.emu.amd.shader import disassembly
from tests.hcq.emu.amd.shader.bench import ISAS

DATA = Path(__file__).parents[4] / "data" / "amd"
REGISTERS = re.compile(r"\b[vsa](?:\d+(?:\.[lh])?|\[\d+:\d+\])")


def lines_of(arch: str) -> list[tuple[str, list[int]]]:
    found = []
    for line in (DATA / f"encodings_{arch}.txt").read_text(encoding="utf-8").splitlines()[1:]:
        text, _, words = line.partition(" ; ")
        found.append((text, [int(word, 16) for word in words.split()]))
    return found


def registers(text: str) -> set[str]:
    """The registers that a line names; the low half of one is written with and without its suffix."""
    return {name.removesuffix(".l") for name in REGISTERS.findall(text)}


@pytest.mark.parametrize("arch", ISAS)
def test_the_tables_read_what_the_assembler_wrote(arch: str) -> None:
    isa, wrong = ISAS[arch], []
    lines = lines_of(arch)
    assert len(lines) > 900
    for text, words in lines:
        inst = isa.decode([*words, 0, 0])
        shown = disassembly.text(isa, inst)
        name = re.sub(r"_(e32|e64)$", "", text.split()[0])
        if (inst.name, list(inst.words)) != (name, words) or not registers(text) <= registers(shown):
            wrong.append(f"{text}: read as {shown}")
    assert not wrong


@pytest.mark.parametrize("arch", ISAS)
def test_nearly_all_of_a_table_is_backed_by_the_assembler(arch: str) -> None:
    """What is missing are forms that its text cannot ask for alone: dual issue, and a few with odd operands."""
    known = {re.sub(r"_(e32|e64)$", "", text.split()[0]) for text, _ in lines_of(arch)}
    names = {opcode.name for one in ISAS[arch].formats for opcode in one.table.values()}
    assert len(names - known) < len(names) // 12, sorted(names - known)
