"""Shares: how one range of a kernel is divided among the threads of a GPU's block.

In       an Axis, and how many threads, lanes and copies it gets
Out      `Share`: how much of the range it covers, and what that is good for
Next     heuristic_gpu.py (who plans with them and applies them)
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.compiler.loops.loop import Axis

_AHEAD = "steps at once, whose loads are under way together"
_AGAIN = "results of a thread, which read the same"


@dataclass
class Share:
    """How one step of a range's outer loop is divided."""

    axis: Axis
    threads: int = 1
    lanes: int = 1
    copies: int = 1  # written out
    run: int = 1  # vectors side by side of one thread
    like: Axis | None = None  # counted by the same threads as this one

    def why(self) -> str:
        """What its threads, lanes and copies are good for."""
        is_sum = self.axis.is_reduce
        parts = [
            f"{self.threads} threads {'share each sum' if is_sum else 'side by side'}"
            if self.threads > 1
            else "",
            f"{self.lanes} neighbours in one access" if self.lanes > 1 else "",
            f"{self.run} vectors of a thread side by side" if self.run > 1 else "",
            f"{self.copies} {_AHEAD if is_sum else _AGAIN}" if self.copies > 1 else "",
        ]
        return f"{self.axis.name}: {', '.join(filter(None, parts)) or 'one value after the other'}"

    @property
    def size(self) -> int:
        """Values of the range that it covers."""
        return self.copies * self.threads * self.run * self.lanes
