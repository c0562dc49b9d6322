"""Used pages: which parts of a process's addresses it has touched itself, as Linux's page tables say.

In       /proc/<pid>/pagemap, addresses
Out      the stretches of pages that are present, or swapped out
Next     elf_search.py (who looks for objects there), observe/foreign/sanitizer.py (what a program's host may have
         written)
Source   proc(5), Documentation/admin-guide/mm/pagemap.rst: bit 63 present, bit 62 swapped
"""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO

PAGE = 4096


def used(pages: FileIO, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each part of a mapping that the process has used. Nothing where it cannot be read."""
    import numpy as np

    try:
        pages.seek(start // PAGE * 8)
        data = pages.read((end - start) // PAGE * 8) or b""
    except (OSError, OverflowError, ValueError):
        return
    entries = np.frombuffer(data[: len(data) & ~7], np.uint64)
    is_used = np.concatenate(([False], entries >> np.uint64(62) != 0, [False]))
    edges = np.flatnonzero(is_used[1:] != is_used[:-1]).tolist()
    for first, last in zip(edges[::2], edges[1::2]):
        yield start + first * PAGE, start + last * PAGE
