"""What the examples show in a terminal: a bar for work that takes long, curves and clouds of points made of characters.

In       numbers
Out      text
Changes  the last line of the terminal, while a bar is on it; where the output is a file, nothing is rewritten
Next     characters.py, diffusion.py, cartpole.py, textures.py (who draw with it)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

WIDTH = 60
BLOCKS = " ▁▂▃▄▅▆▇█"


class Progress:
    """A line that is rewritten: how far, what was said last, and how long it will take."""

    def __init__(self, what: str, steps: int):
        self.what, self.steps = what, steps
        self.done = 0
        self.began = time.perf_counter()
        self.is_terminal = sys.stdout.isatty()

    def step(self, said: str = "") -> None:
        """One step is done."""
        self.done += 1
        if not self.is_terminal:
            return
        filled = 30 * self.done // self.steps
        left = (time.perf_counter() - self.began) / self.done * (self.steps - self.done)
        bar = "#" * filled + "." * (30 - filled)
        print(
            f"\r{self.what} [{bar}] {self.done}/{self.steps}  {said}  {left:.0f} s left   ",
            end="",
            flush=True,
        )

    def end(self, said: str) -> None:
        """All is done: what stays on the line."""
        start = "\r" if self.is_terminal else ""
        print(f"{start}{self.what}: {said}, {time.perf_counter() - self.began:.1f} s".ljust(110).rstrip())


def curve(values: Sequence[float], height: int = 8) -> str:
    """The values from left to right, averaged to at most 60 columns; the largest is at the top."""
    count = min(WIDTH, len(values))
    bounds = [len(values) * at // count for at in range(count + 1)]
    parts = [values[start : max(stop, start + 1)] for start, stop in zip(bounds, bounds[1:])]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    scale = (8 * height - 1) / (high - low) if high > low else 0.0
    levels = [1 + round((value - low) * scale) for value in means]
    rows = []
    for row in reversed(range(height)):
        label = f"{high:9.3f}" if row == height - 1 else f"{low:9.3f}" if row == 0 else " " * 9
        rows.append(f"{label} |" + "".join(BLOCKS[max(0, min(8, level - 8 * row))] for level in levels))
    return "\n".join(rows)


def cloud(points: Sequence[Sequence[float]], reach: float, height: int = 18) -> str:
    """Points (x, y) of a square from -reach to reach, more where there are more."""
    width = 2 * height
    counts = [[0] * width for _ in range(height)]
    for x, y in points:
        column, row = int((x + reach) / (2 * reach) * width), int((reach - y) / (2 * reach) * height)
        if 0 <= column < width and 0 <= row < height:
            counts[row][column] += 1
    most = max(1, *(max(row) for row in counts))
    shades = " .:+*#@"
    return "\n".join(
        "".join(shades[0 if not n else 1 + min(5, 6 * (n - 1) // most)] for n in row) for row in counts
    )
