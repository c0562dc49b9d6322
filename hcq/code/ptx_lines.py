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

_LOC = re.compile(rb"^\s*\.loc\s+(\d+)\s+(\d+)(?:\s+(\d+))?(?:.*\binlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
Place = tuple[int, int, int]  # file, line, column
_FILE = re.compile(rb'^\s*\.file\s+(\d+)\s+"([^"]*)"')
_END = re.compile(rb"^\s*\}\s*$")


def line_of_ptx(ptx: bytes, line: int) -> str:
    """Where a line of the text, counted from 1, comes from.

    >>> line_of_ptx(b'.loc 1 7 3\\nret;\\n.file 1 "sum.cu"', 2)
    'sum.cu:7'
    """
    lines, places, _ = _table(ptx)
    at = bisect.bisect_right(lines, line) - 1
    return places[at] if at >= 0 else ""


def caller_of_ptx(ptx: bytes, line: int) -> str:
    """Where the function of such a line was inlined, by the outermost that was; "" where none was.

    >>> text = b'.loc 2 7 3, function_name $f, inlined_at 1 9 1\\nret;\\n.file 1 "a.cu"\\n.file 2 "b.h"'
    >>> line_of_ptx(text, 2), caller_of_ptx(text, 2)
    ('b.h:7', 'a.cu:9')
    """
    lines, _, callers = _table(ptx)
    at = bisect.bisect_right(lines, line) - 1
    return callers[at] if at >= 0 else ""


@lru_cache(16)
def _table(ptx: bytes) -> tuple[list[int], list[str], list[str]]:
    """Where something else begins to hold, and what. Line 0 is of no source: what the compiler itself put there."""
    files: dict[int, str] = {}
    found: list[
        tuple[int, int, int, Place | None]
    ] = []  # line of the text, file, line of it, the outermost place
    callers: dict[Place, Place] = {}  # what was inlined -> where
    for number, text in enumerate(ptx.splitlines(), 1):
        if loc := _LOC.match(text):
            here = int(loc[1]), int(loc[2]), int(loc[3] or 0)
            outer = (int(loc[4]), int(loc[5]), int(loc[6])) if loc[4] else None
            if outer is None:
                callers.pop(here, None)
            else:
                callers[here] = outer
            seen = {here}
            while outer in callers and outer not in seen:
                seen.add(outer)
                outer = callers[outer]
            found.append((number, here[0], here[1], outer))
        elif file := _FILE.match(text):
            files[int(file[1])] = file[2].decode("utf-8", "replace")
        elif found and _END.match(text):  # of a function: what stands behind it has lines of its own
            found.append((number, 0, 0, None))
    places = [f"{files[file]}:{line}" if line and file in files else "" for _, file, line, _ in found]
    outers = [f"{files[one[0]]}:{one[1]}" if one is not None and one[0] in files else "" for *_, one in found]
    return [each[0] for each in found], places, outers
