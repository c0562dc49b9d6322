"""Lines: which line of the source an instruction was made from.

In       a linked code object with debug information, and an offset in it
Out      "file:line"; "" where nobody says
Changes  nothing; the table of an object is read once
Next     code_objects.py (who has the object), observe/foreign/report.py (who prints the line)
Source   DWARF 4 and 5, .debug_line, read by pyelftools
"""

from __future__ import annotations

import bisect
import os.path
from functools import lru_cache
from io import BytesIO
from typing import Any

Row = tuple[int, str, int]  # from this address on: file, line; line 0 where a sequence ends


def line_of(image: bytes, offset: int) -> str:
    """Where the instruction at an offset of the loaded object comes from."""
    rows = _rows(image)
    at = bisect.bisect_right(rows, offset, key=lambda row: row[0]) - 1
    if at < 0 or not rows[at][2]:
        return ""
    return f"{rows[at][1]}:{rows[at][2]}"


@lru_cache(16)
def _rows(image: bytes) -> list[Row]:
    from elftools.common.exceptions import ELFError
    from elftools.dwarf.dwarfinfo import DWARFInfo
    from elftools.elf.elffile import ELFFile

    found: list[Row] = []
    try:
        elf = ELFFile(BytesIO(image))
        if not elf.has_dwarf_info():
            return []
        dwarf: DWARFInfo = elf.get_dwarf_info(relocate_dwarf_sections=False)
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is None:
                continue
            folder = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
            root = folder.value.decode("utf-8", "replace") if folder is not None else ""
            for entry in program.get_entries():
                state = entry.state
                if state is not None:
                    name = "" if state.end_sequence else _file(program, state.file, root)
                    found.append((state.address, name, 0 if state.end_sequence else state.line))
    except (ELFError, ValueError, KeyError, IndexError, AttributeError, AssertionError):
        return []  # debug information that makes no sense is left out
    # where one sequence ends and the next begins, the beginning counts
    return sorted(found, key=lambda row: (row[0], row[2] != 0))


def _file(program: Any, number: int, root: str) -> str:
    header = program.header
    is_five = header["version"] >= 5
    files, folders = header["file_entry"], header["include_directory"]
    entry = files[number if is_five else number - 1]
    name = entry.name.decode("utf-8", "replace")
    index = entry.dir_index
    if is_five:
        folder = folders[index].decode("utf-8", "replace") if index < len(folders) else ""
    else:
        folder = folders[index - 1].decode("utf-8", "replace") if index else ""
    return os.path.normpath(os.path.join(root, folder, name))
