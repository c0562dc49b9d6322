"""AMD code, read by our own instruction tables when they know the arch, else by llvm-objdump.

In       a code object's bytes, its arch, the symbol of the entry
Out      Lines, with labels for branches
Next     hcq/emu/amd/shader/architectures.py (the tables), function.py (where the code lies)
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

from hcq.errors import DriverError, HcqError
from hcq.tools.disassembly.function import Line, find_function, find_tool, run_tool


def disassemble(image: bytes, arch: str, entry: str, name: str) -> list[Line]:
    """The instructions of one function. Raises DriverError when nothing here can read them."""
    from hcq.emu.amd.shader.architectures import isa_of  # NumPy comes with it

    isa = isa_of(arch)
    if isa is not None:
        return _by_tables(image, isa, entry, name)
    tool = find_tool("llvm-objdump", "amdgpu-objdump")
    if tool is None:
        raise DriverError(
            f"disasm {name}: our instruction tables do not know {arch}, and llvm-objdump is not on PATH. "
            "Install it: apt install llvm (or take ROCm's, /opt/rocm/llvm/bin)."
        )
    return run_tool(tool, ("-d", f"--disassemble-symbols={entry}"), image, name)


def _by_tables(image: bytes, isa: Any, entry: str, name: str) -> list[Line]:
    from hcq.emu.amd.shader import disassembly

    function = find_function(image, entry, name)
    words = struct.unpack(f"<{len(function.code) // 4}I", function.code[: len(function.code) // 4 * 4])
    found: list[tuple[int, tuple[int, ...], Any]] = []
    at = 0
    while at < len(words):
        one: Any = None
        raw = words[at : at + 1]
        with contextlib.suppress(HcqError):
            one = isa.decode(words[at:], 4 * at)
            raw = one.words
        found.append((4 * at, raw, one))
        at += len(raw)
    jumps = {offset: _jump(one) for offset, _, one in found if one is not None}
    inside = sorted(
        {to for to in jumps.values() if to is not None} & {offset for offset, _, _ in found} - {0}
    )
    labels = {to: f".L{number}" for number, to in enumerate(inside, 1)}
    labels[0] = entry
    out = []
    for offset, raw, one in found:
        text = f".long {raw[0]:#010x}" if one is None else disassembly.text(isa, one)
        to = jumps.get(offset)
        if to in labels:
            text = f"{one.name} {labels[to]}"
        out.append(Line(offset, struct.pack(f"<{len(raw)}I", *raw), text, labels.get(offset, "")))
    return out


def _jump(one: Any) -> int | None:
    """Where a branch goes, in bytes from the function's start: a signed count of words after it."""
    if not one.name.startswith(("s_branch", "s_cbranch")) or "simm16" not in one.fields:
        return None
    words = one.fields["simm16"]
    return int(one.next_pc + 4 * (words - 0x10000 if words >= 0x8000 else words))
