"""A row of the corpus: two kernels of one text, the wrong one and the right one.

In       text with lines that begin with - (in the wrong kernel alone) or + (in the right one alone)
Out      Row
Next     languages.py (compiles `wrong` and `right`), __init__.py (all rows)
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """Two kernels, both called `kernel`.

    name      what is wrong, in words; unique for its language
    language  one of languages.py
    word      of HCQ_SANITIZE
    rule      that the wrong one breaks; the right one breaks none
    text      with lines of - and +
    block     threads
    grid      blocks
    buffers   bytes of each buffer that it is given, in order
    fresh     the numbers of buffers into which nobody writes zeros before
    numbers   integers that it is given behind these
    only      machines of the language that it is for; empty: all
    """

    name: str
    language: str
    word: str
    rule: str
    text: str
    block: int = 256
    grid: int = 1
    buffers: tuple[int, ...] = (4096,)
    numbers: tuple[int, ...] = ()
    fresh: tuple[int, ...] = ()
    only: tuple[str, ...] = ()

    @property
    def wrong(self) -> str:
        """The text of the wrong kernel."""
        return _without("+", self.text)

    @property
    def right(self) -> str:
        """The text of the right one."""
        return _without("-", self.text)


def _without(mark: str, text: str) -> str:
    """The lines that do not begin with this mark; of the others' own marks only what follows."""
    lines = []
    for line in text.splitlines():
        first = line.lstrip()[:1]
        if first == mark:
            continue
        lines.append(line.replace(first, " ", 1) if first and first in "+-" else line)
    return "\n".join(lines)
