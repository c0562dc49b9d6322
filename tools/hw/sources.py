"""Sources: what a vendor wants to be looked at on the host, and asking questions of which each may be refused.

In       nothing
Out      Sources; ask_each
Next     host.py (who looks), nv/host.py, amd/host.py (what at)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Sources(NamedTuple):
    """What there is to look at.

    files     single files, from /proc and /sys
    folders   folders whose every small file is kept
    commands  name of the file -> command
    drop      name -> pattern of the line from which on a command's output is left out
    """

    files: Sequence[str] = ()
    folders: Sequence[str] = ()
    commands: Mapping[str, Sequence[str]] = {}
    drop: Mapping[str, str] = {}


def ask_each(found: dict[str, Any], questions: Mapping[str, Callable[[], Any]]) -> None:
    """Each question by itself; a refusal is its answer."""
    for name, question in questions.items():
        try:
            found[name] = question()
        except Exception as error:
            found[name] = f"refused: {error}"
