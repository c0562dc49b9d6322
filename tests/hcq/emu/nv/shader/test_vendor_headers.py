"""Every piece of inline assembly in NVIDIA's headers (CUB, libcu++, cuda::ptx, fp8, mma) is decoded.

What is not is legal on none of the chips that are emulated: the vendor's assembler says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.nv.shader.opcodes import decode
from hcq.emu.nv.shader.parser import parse
from hcq.errors import UsageError
from tests.hcq.emu.nv.shader.running import needs_header, needs_nvjitlink

PIECE = re.compile(
    r'\basm\s*(?:volatile|__volatile__)?\s*\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)((?::[^;]*)?)\)\s*;', re.S
)
CONSTRAINT = re.compile(r'"[=+]?&?([a-zA-Z])"\s*\(')
REGISTERS = {"r": "b32", "l": "b64", "h": "b16", "f": "f32", "d": "f64", "q": "b128", "b": "b8"}
ARCHS = ("sm_100a", "sm_120a", "sm_90a", "sm_103a")
LATER = ("mbarrier::report", "override::")  # of sm_107, which is not emulated


def pieces(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(text, the letters of its operands), each once; those of a statement that others go on with are left out."""
    seen = set()
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix in (".lock",):
            continue
        for found in PIECE.finditer(path.read_text("utf-8", "replace")):
            text = (
                "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', found[1])).replace("\\n", "\n").replace("\\t", " ")
            )
            piece = text, tuple(CONSTRAINT.findall(found[2]))
            if piece not in seen and text.strip() and not any(word in text for word in LATER):
                seen.add(piece)
                yield piece


def kernel(text: str, letters: tuple[str, ...], arch: str) -> str:
    """A number stands where the operand must be one: 4 suits copies of words, 1 counts of dimensions."""
    number = "1" if text.startswith("tensormap") else "4"
    names = [f"%op{i}" if letter in REGISTERS else number for i, letter in enumerate(letters)]
    registers = [
        f".reg .{REGISTERS[letter]} %op{i};" for i, letter in enumerate(letters) if letter in REGISTERS
    ]
    text = re.sub(
        r"%(\d+)", lambda found: names[int(found[1])] if int(found[1]) < len(names) else found[0], text
    )
    text = text.replace("%%", "%")
    head = f".version 9.2\n.target {arch}\n.address_size 64\n.visible .entry k() {{"
    return f"{head} {' '.join(registers)}\n{text}\nret; }}"


def is_decoded(text: str) -> bool:
    try:
        module = parse(text)
        decode(module, module.functions["k"])
    except (PtxError, UsageError, KeyError):
        return False
    return True


def is_legal(piece: tuple[str, tuple[str, ...]]) -> bool:
    from hcq.nv.toolchain.nvjitlink import link_ptx

    for arch in ARCHS:
        try:
            link_ptx(kernel(*piece, arch), arch)
        except UsageError:
            continue
        return True
    return False


@pytest.mark.thorough
@needs_nvjitlink
@needs_header("cccl/cuda/ptx")
def test_all_inline_assembly_of_the_vendors_headers_is_decoded():
    from hcq.nv.toolchain.nvrtc import header_folder

    folder = header_folder()
    assert folder is not None
    every = list(pieces(folder))
    refused = [piece for piece in every if not is_decoded(kernel(*piece, "sm_100a"))]
    assert len(every) > 1000
    assert [text for text, letters in refused if is_legal((text, letters))] == []
