"""x86-64 and aarch64 code, read by capstone: jumps have labels, calls have symbols, lines have their source if known.

In       a code object's bytes, its arch, the symbol of the entry
Out      Lines
Next     function.py (where the code lies), hcq/code/elf.py (reads the object)
"""

from __future__ import annotations

import re
import struct
from typing import Any

from hcq.code import elf
from hcq.errors import DriverError, UsageError
from hcq.tools.disassembly.function import Function, Line, find_function


def disassemble(image: bytes, arch: str, entry: str, name: str) -> list[Line]:
    """The instructions of one function. Raises UsageError for another arch, DriverError without capstone."""
    if arch not in ("x86_64", "aarch64"):
        raise UsageError(f"disasm {name}: there is no disassembler for {arch!r}. Known: x86_64, aarch64.")
    try:
        import capstone
    except ImportError:
        raise DriverError(
            f"disasm {name}: {arch} code is read by capstone, which is not installed: pip install capstone"
        ) from None
    function = find_function(image, entry, name)
    machine = (
        (capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        if arch == "x86_64"
        else (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    )
    reader = capstone.Cs(*machine)
    reader.detail = True
    reader.skipdata = True
    found = list(reader.disasm(function.code, function.start))
    jumps = {at: to for at, to in ((one.address, _jump(one, capstone)) for one in found) if to is not None}
    starts = {one.address for one in found}
    inside = sorted({to for at, to in jumps.items() if to in starts and to != function.start})
    labels = {to: f".L{number}" for number, to in enumerate(inside, 1)}
    labels[function.start] = entry
    relocations = _relocations(function)
    symbols = {
        symbol.value - (function.object.sections[function.section].va if function.object.type == elf.ET_DYN else 0):
            symbol.name
        for symbol in function.symbols
        if symbol.section == function.section and symbol.name and symbol.type == elf.STT_FUNC
    }  # fmt: skip
    sources = _sources(function)
    out = []
    for one in found:
        text = f"{one.mnemonic} {one.op_str}".strip()
        target = ", ".join(
            relocations[at] for at in range(one.address, one.address + one.size) if at in relocations
        )
        to = jumps.get(one.address)
        if to in labels:
            text = re.sub(rf"#?\b0x{to:x}$|#?\b{to}$", labels[to], text)
        elif to is not None and not target:
            target = symbols.get(to, "")
        out.append(
            Line(
                one.address - function.start,
                bytes(one.bytes),
                text,
                labels.get(one.address, ""),
                target,
                sources.get(one.address, ""),
            )
        )
    return out


def _jump(one: Any, capstone: Any) -> int | None:
    """Where a direct jump or call goes, or None. A call that a relocation fills in goes nowhere yet."""
    if one.id == 0:  # bytes that are no instruction
        return None
    groups = set(one.groups)
    if not groups & {capstone.CS_GRP_JUMP, capstone.CS_GRP_CALL, capstone.CS_GRP_BRANCH_RELATIVE}:
        return None
    for operand in one.operands:
        if operand.type == capstone.CS_OP_IMM:
            return int(operand.imm)
    return None


def _relocations(function: Function) -> dict[int, str]:
    """Offset in the function's section -> the symbol whose address goes there."""
    found: dict[int, str] = {}
    object_ = function.object
    if object_.type != elf.ET_REL:
        return found
    for table in object_.sections:
        if table.type != elf.SHT_RELA or table.info != function.section:
            continue
        symbols = object_.symbols(object_.section(table.link, f"the symbols of {table.name!r}"))
        for entry in object_.relocations(table):
            if entry.symbol >= len(symbols):
                continue
            symbol = symbols[entry.symbol]
            name = symbol.name
            if not name and 0 < symbol.section < len(object_.sections):
                name = object_.sections[symbol.section].name
            found[entry.offset] = name + (f"{entry.addend:+#x}" if entry.addend not in (0, -4) else "")
    return found


def _sources(function: Function) -> dict[int, str]:
    """Address -> file:line, for objects that carry line tables (cc -g)."""
    if not any(section.name in (".debug_line", ".zdebug_line") for section in function.object.sections):
        return {}
    import io

    from elftools.common.exceptions import DWARFError, ELFError, ELFParseError
    from elftools.elf.elffile import ELFFile

    found: dict[int, str] = {}
    base = function.object.sections[function.section].va if function.object.type == elf.ET_DYN else 0
    try:
        dwarf = ELFFile(io.BytesIO(function.object.image)).get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is None:
                continue
            files = program["file_entry"]
            first = 0 if program["version"] >= 5 else 1
            for entry in program.get_entries():
                state = entry.state
                if state is None or state.end_sequence or not 0 <= state.file - first < len(files):
                    continue
                file = files[state.file - first].name.decode("utf-8", "replace")
                found[state.address - base] = f"{file}:{state.line}"
    except (DWARFError, ELFError, ELFParseError, ValueError, KeyError, IndexError, struct.error):
        return {}  # line tables are a comfort; the code is shown without them
    return found
