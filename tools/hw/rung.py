"""Rung: one step of the ladder: its name, what it asks, and how it is asked.

In       nothing
Out      Rung
Next     ladder.py (who climbs), nv/ladder.py and amd/ladder.py (the lower rungs)
"""

from collections.abc import Callable
from typing import Any

Rung = tuple[str, str, Callable[[], Any]]
