"""A function of an object file, its instructions as lines, and the vendors' programs that can read them.

In       a code object's bytes, the symbol of an entry
Out      the function's bytes and where they lie; Line, what every disassembler returns
Changes  nothing; a vendor's program runs on a copy of the object
Next     host.py, amd.py, nv.py (who read), tools/trace/disasm.py (who prints)
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from hcq.code import elf
from hcq.errors import DriverError, UsageError

TOOL_TIMEOUT_S = 60


class Line(NamedTuple):
    """One instruction. `target` is the label, symbol or address that it refers to, or ""."""

    offset: int
    raw: bytes
    text: str
    label: str = ""
    target: str = ""
    source: str = ""


class Function(NamedTuple):
    """Where a function lies: the bytes of its section from its start on, and its offset in that section."""

    code: bytes
    start: int
    section: int
    object: elf.Object
    symbols: list[elf.Symbol]


def find_function(image: bytes, entry: str, name: str) -> Function:
    """The code of an entry. Raises UsageError, listing what the object has, when it has no such function."""
    object_ = elf.Object(image, name)
    tables = [s for s in object_.sections if s.type in (elf.SHT_SYMTAB, elf.SHT_DYNSYM)]
    symbols = [symbol for table in tables for symbol in object_.symbols(table)]
    for symbol in symbols:
        if symbol.name == entry and 0 < symbol.section < elf.SHN_LORESERVE:
            section = object_.sections[symbol.section]
            start = symbol.value - (section.va if object_.type == elf.ET_DYN else 0)
            size = symbol.size_bytes or section.size_bytes - start
            code = object_.contents(section)
            if not 0 <= start < len(code):
                raise UsageError(
                    f"disasm {name}: {entry!r} starts outside its section; the object is damaged."
                )
            return Function(code[start : start + size], start, symbol.section, object_, symbols)
    names = sorted({s.name for s in symbols if s.type == elf.STT_FUNC and not s.is_undefined})
    raise UsageError(
        f"disasm {name}: no function {entry!r} in its object. Its functions: {', '.join(names[:12]) or 'none'}."
    )


def find_tool(*names: str) -> str | None:
    """Where the first of these programs that is installed is."""
    return next((path for path in map(shutil.which, names) if path), None)


def run_tool(tool: str, options: tuple[str, ...], image: bytes, name: str) -> list[Line]:
    """What a program prints of an object. Raises DriverError with its words when it fails."""
    with tempfile.TemporaryDirectory(prefix="hcq-trace-") as folder:
        path = Path(folder) / "kernel.o"
        path.write_bytes(image)
        try:
            done = subprocess.run(
                [tool, *options, str(path)], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DriverError(f"disasm {name}: {tool} did not answer ({error}).") from None
    if done.returncode:
        raise DriverError(f"disasm {name}: {tool} -> {done.returncode}: {done.stderr.strip()[:300]}")
    return [Line(number, b"", text) for number, text in enumerate(done.stdout.splitlines())]
