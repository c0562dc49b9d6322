"""Lines: which line of the source an instruction was made from.

In       a code object with debug information, and an offset in it, or behind a symbol of it
Out      "file:line"; "" where nobody says
Changes  nothing; the table of an object is read once
Next     hcq/amd/foreign/code_objects.py and hcq/amd/program.py (who have the object), hcq/observe/report_waves.py and
         hcq/observe/foreign/report.py (who print the line)
Source   DWARF 4 and 5, .debug_line, read by pyelftools; R_AMDGPU_ABS32_LO, ABS64, ABS32: "User Guide for AMDGPU
         Backend", "Relocation Records"

Tables of an object that is not linked name addresses by relocations. They are applied here, with each section at 0.
"""

from __future__ import annotations

import bisect
import os.path
from functools import lru_cache
from io import BytesIO
from typing import Any

RELOCATED_BYTES = {1: 4, 3: 8, 6: 4}  # by the type of a relocation: how much it writes
NOT_LINKED = "ET_REL"
Row = tuple[int, str, int]  # from this address on: file, line; line 0 where a sequence ends


def line_of(image: bytes, offset: int) -> str:
    """Where the instruction at an offset of the loaded object comes from."""
    rows = _rows(image)
    at = bisect.bisect_right(rows, offset, key=lambda row: row[0]) - 1
    if at < 0 or not rows[at][2]:
        return ""
    return f"{rows[at][1]}:{rows[at][2]}"


def line_at(image: bytes, symbol: str, offset: int) -> str:
    """Where the instruction at an offset behind a symbol comes from."""
    start = symbol_at(image, symbol)
    return "" if start is None else line_of(image, start + offset)


def symbol_at(image: bytes, symbol: str) -> int | None:
    """Where a symbol is; None where the object has none of that name."""
    return _symbols(image).get(symbol)


@lru_cache(16)
def _symbols(image: bytes) -> dict[str, int]:
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(BytesIO(image))
        tables = [elf.get_section_by_name(name) for name in (".symtab", ".dynsym")]
        return {one.name: one["st_value"] for table in tables if table for one in table.iter_symbols()}
    except Exception:  # as below
        return {}


def linked(image: bytes) -> bytes:
    """The image with the relocations of its debug sections applied."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.relocation import RelocationSection

    elf = ELFFile(BytesIO(image))
    if elf["e_type"] != NOT_LINKED:
        return image
    made = bytearray(image)
    for table in elf.iter_sections():
        if not isinstance(table, RelocationSection) or not table.name.startswith(".rela.debug_"):
            continue
        target, symbols = elf.get_section(table["sh_info"]), elf.get_section(table["sh_link"])
        for one in table.iter_relocations():
            size = RELOCATED_BYTES.get(one["r_info_type"], 0)
            at = target["sh_offset"] + one["r_offset"]
            if not size or one["r_offset"] + size > target["sh_size"]:
                continue
            value = symbols.get_symbol(one["r_info_sym"])["st_value"] + one["r_addend"]
            made[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(made)


@lru_cache(16)
def _rows(image: bytes) -> list[Row]:
    from elftools.dwarf.dwarfinfo import DWARFInfo
    from elftools.elf.elffile import ELFFile

    found: list[Row] = []
    try:
        elf = ELFFile(BytesIO(linked(image)))
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
                    name = "" if state.end_sequence else file_of(program, state.file, root)
                    found.append((state.address, name, 0 if state.end_sequence else state.line))
    except Exception:  # debug information that makes no sense, which raises anything, is left out
        return []
    # where one sequence ends and the next begins, the beginning counts
    return sorted(found, key=lambda row: (row[0], row[2] != 0))


def file_of(program: Any, number: int, root: str) -> str:
    """A file of a line table, by its number. root: the folder of its unit."""
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
