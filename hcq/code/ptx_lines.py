"""Lines of PTX: which line of the source a line of PTX was made from.

In       PTX with .loc and .file, as nvrtc --generate-line-info and nvcc -lineinfo write them
Out      "file:line"; "" where nobody says
Changes  nothing; the table of a text is read once
Next     hcq/nv/program.py (who has the text), lines.py (the same for machine code)
Source   PTX ISA, "Debugging Directives"
"""

from __future__ import annotations

import bisect
import re
from functools import lru_cache

_LOC = re.compile(rb"^\s*\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(rb'^\s*\.file\s+(\d+)\s+"([^"]*)"')
_END = re.compile(rb"^\s*\}\s*$")


def line_of_ptx(ptx: bytes, line: int) -> str:
    """Where a line of the text, counted from 1, comes from.

    >>> line_of_ptx(b'.loc 1 7 3\\nret;\\n.file 1 "sum.cu"', 2)
    'sum.cu:7'
    """
    lines, places = _table(ptx)
    at = bisect.bisect_right(lines, line) - 1
    return places[at] if at >= 0 else ""


@lru_cache(16)
def _table(ptx: bytes) -> tuple[list[int], list[str]]:
    """Where something else begins to hold, and what. Line 0 is of no source: what the compiler itself put there."""
    files: dict[int, str] = {}
    found: list[tuple[int, int, int]] = []  # line of the text, file, line of it
    for number, text in enumerate(ptx.splitlines(), 1):
        if loc := _LOC.match(text):
            found.append((number, int(loc[1]), int(loc[2])))
        elif file := _FILE.match(text):
            files[int(file[1])] = file[2].decode("utf-8", "replace")
        elif found and _END.match(text):  # of a function: what stands behind it has lines of its own
            found.append((number, 0, 0))
    places = [f"{files[file]}:{line}" if line and file in files else "" for _, file, line in found]
    return [number for number, _, _ in found], places
