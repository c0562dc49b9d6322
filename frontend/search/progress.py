"""Progress: what a search says while it runs, on stderr.

In       a kernel's name, what was tried, the best time and the heuristic's
Out      on a terminal one line that is written again and again; elsewhere a line when a kernel begins and ends
Changes  stderr
Next     searching.py (who tells it)
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from typing import TextIO

WIDTH = 20  # of the bar
EVERY_S = 0.1


class Progress:
    """One kernel's search.

    stream   where it is written
    name     the kernel
    seconds  how long the search may take
    """

    def __init__(
        self, stream: TextIO, name: str, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stream = stream
        self.name = name
        self.seconds = seconds
        self.clock = clock
        self.begun = clock()
        self._written = float("-inf")
        self._length = 0
        self.is_terminal = bool(getattr(stream, "isatty", lambda: False)())
        if not self.is_terminal:
            self._say(f"hcq: search {name}, at most {seconds:.0f} s\n")

    def tell(self, tried: int, best_ns: float, heuristic_ns: float) -> None:
        """Something was measured."""
        now = self.clock()
        if not self.is_terminal or now - self._written < EVERY_S:
            return
        self._written = now
        share = min(1.0, (now - self.begun) / max(self.seconds, 1e-9))
        bar = "#" * round(WIDTH * share)
        self._line(f"search {self.name} [{bar:.<{WIDTH}}] {_words(tried, best_ns, heuristic_ns)}")

    def end(self, tried: int, best_ns: float, heuristic_ns: float, why: str = "") -> None:
        """The search has ended."""
        took = self.clock() - self.begun
        text = f"hcq: search {self.name}: {why or _words(tried, best_ns, heuristic_ns)}, {took:.1f} s"
        if self.is_terminal:
            self._line(text)
            self._say("\n")
        else:
            self._say(f"{text}\n")

    def _line(self, text: str) -> None:
        text = text[: shutil.get_terminal_size((120, 1)).columns - 1]  # a line that wraps is not written over
        self._say(f"\r{text.ljust(self._length)}")
        self._length = len(text)

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody listens
            self.stream.write(text)
            self.stream.flush()


def _words(tried: int, best_ns: float, heuristic_ns: float) -> str:
    gain = heuristic_ns / best_ns if best_ns else 1.0
    return f"{tried} tried, best {shown_ns(best_ns)}, {gain:.2f} times as fast as the heuristic's"


def shown_ns(ns: float) -> str:
    """A time for people."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"
