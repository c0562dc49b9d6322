"""Color: colours for a terminal, and nothing but text for everybody else.

In       text and what it is: a kernel, a number, a heading, a problem
Out      the text, with escape sequences when standard output is a terminal and NO_COLOR is not set
Next     show.py (who uses it most)
Source   https://no-color.org
"""

from __future__ import annotations

import os
import sys

from hcq.checks import printable as clean

__all__ = ["Color", "clean", "counted"]

STYLES = {
    "heading": "1",
    "kernel": "1;36",
    "packet": "32",
    "buffer": "33",
    "note": "2",
    "wrong": "1;31",
    "less": "31",
    "more": "32",
}


class Color:
    """color(text, style). Names come out of files that strangers made, so control characters are spelled out."""

    def __init__(self, is_on: bool) -> None:
        self.is_on = is_on

    @staticmethod
    def for_stdout() -> Color:
        """Colours when standard output is a terminal that wants them."""
        return Color(
            sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )

    def __call__(self, text: object, style: str) -> str:
        plain = clean(str(text))
        return f"\x1b[{STYLES[style]}m{plain}\x1b[0m" if self.is_on and plain else plain


def counted(number: int, what: str) -> str:
    """ "1 submission", "2 submissions", "3 copies"."""
    return (
        f"{number} {what}"
        if number == 1
        else f"{number} {what[:-1]}ies"
        if what.endswith("y")
        else f"{number} {what}s"
    )
