"""Event: one thing that a kernel log tells, with the lines that tell it.

In       what the readers of lines found
Out      Event; the same as data for JSON
Next     amd_faults.py, patterns.py, nvidia.py (who make them), show.py (who prints them)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

# fault: something went wrong here. consequence: it follows from something before it. outcome: how it ended.
# notice: worth knowing, nothing wrong. unknown: a driver's line that is not known.
ROLES = ("fault", "consequence", "outcome", "notice", "unknown")


@dataclass
class Event:
    """One event. `sentence` says what happened; the rest is empty where nothing is known."""

    kind: str
    line: int
    role: str = "fault"
    sentence: str = ""
    when: str = ""
    device: str = ""
    meaning: str = ""
    causes: str = ""
    advice: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)  # lines where the very same stands again

    def as_json(self) -> dict[str, Any]:
        """Everything; `line` is where it begins."""
        return asdict(self)
