"""Inlined: which line of a kernel called the functions that its compiler put into it, for an instruction of theirs.

In       a code object with debug information, and an offset in it
Out      "file:line" of the outermost call; "" where nothing was inlined, or nobody says
Changes  nothing; the table of an object is read once
Next     lines.py (the line of the instruction itself), ptx_lines.py (the same for PTX)
Source   DWARF 4 and 5: DW_TAG_inlined_subroutine, DW_AT_call_file, DW_AT_call_line; read by pyelftools
"""

from __future__ import annotations

import os.path
from functools import lru_cache
from io import BytesIO
from typing import Any

from hcq.code.lines import file_of, linked, symbol_at

Span = tuple[int, int, str]  # from this address on, up to that one: the line of the call
TAG = "DW_TAG_inlined_subroutine"


def caller_at(image: bytes, symbol: str, offset: int) -> str:
    """The same of the instruction at an offset behind a symbol."""
    start = symbol_at(image, symbol)
    return "" if start is None else caller_of(image, start + offset)


def caller_of(image: bytes, offset: int) -> str:
    """Where the outermost function was called whose code has the instruction at an offset of the loaded object."""
    return next((place for start, end, place in _spans(image) if start <= offset < end), "")


@lru_cache(16)
def _spans(image: bytes) -> tuple[Span, ...]:
    from elftools.elf.elffile import ELFFile

    found: list[Span] = []
    try:
        elf = ELFFile(BytesIO(linked(image)))
        if elf.has_dwarf_info():
            dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False)
            for unit in dwarf.iter_CUs():
                top = unit.get_top_DIE()
                program = dwarf.line_program_for_CU(unit)
                if program is not None:
                    _look(
                        top, dwarf, program, _text(top, "DW_AT_comp_dir"), _number(top, "DW_AT_low_pc"), found
                    )
    except Exception:  # debug information that makes no sense, which raises anything, is left out
        return ()
    return tuple(found)


def _look(die: Any, dwarf: Any, program: Any, root: str, base: int, found: list[Span]) -> None:
    """What is inlined into an entry; not what is inlined there again."""
    for child in die.iter_children():
        if child.tag != TAG:
            _look(child, dwarf, program, root, base, found)
            continue
        line = _number(child, "DW_AT_call_line")
        place = f"{file_of(program, _number(child, 'DW_AT_call_file'), root)}:{line}"
        found += [(start, end, place) for start, end in _ranges(child, dwarf, base) if line]


def _ranges(die: Any, dwarf: Any, base: int) -> list[tuple[int, int]]:
    if "DW_AT_ranges" not in die.attributes:
        low, high = _number(die, "DW_AT_low_pc"), die.attributes.get("DW_AT_high_pc")
        if high is None:
            return []
        return [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]
    made = []
    for one in dwarf.range_lists().get_range_list_at_offset(_number(die, "DW_AT_ranges"), die.cu):
        if hasattr(one, "base_address"):
            base = one.base_address
        elif getattr(one, "is_absolute", False):
            made.append((one.begin_offset, one.end_offset))
        else:
            made.append((base + one.begin_offset, base + one.end_offset))
    return made


def _number(die: Any, name: str) -> int:
    found = die.attributes.get(name)
    return 0 if found is None else int(found.value)


def _text(die: Any, name: str) -> str:
    found = die.attributes.get(name)
    return "" if found is None else os.path.normpath(found.value.decode("utf-8", "replace"))
