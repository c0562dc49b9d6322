"""Trace paths: which file a process writes its trace to, when several of them have the same HCQ_TRACE.

In       the path as it was given, such as "run-%r.hcqtrace"
Out      `path_of`: this process's; `files_of`: those of all processes that are there
Next     trace_writer.py (who opens it), hcq/events/ranks.py (who knows the rank)

    %r  the number of the rank     %p  of the process     %h  the name of the host     %%  a percent sign
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from pathlib import Path

from hcq.errors import UsageError
from hcq.events import ranks

_PATTERN = re.compile("%(.?)", re.DOTALL)
LETTERS = "rph%"


def path_of(pattern: str, process: int | None = None) -> str:
    """The path of one process, this one unless it is given. Raises UsageError for a rank that nobody knows."""

    def rank() -> str:
        number = ranks.number_here()
        if number is None:
            raise UsageError(
                f"HCQ_TRACE={pattern}: which rank is this process? Start it with mpirun or srun, call"
                " hcq.events.ranks.set_here before the first device opens, or use %p, the number of the process."
            )
        return str(number)

    return _filled(
        pattern,
        {
            "r": rank,
            "p": lambda: str(os.getpid() if process is None else process),
            "h": ranks.host_name,
            "%": lambda: "%",
        },
        str,
    )


def files_of(pattern: str) -> list[Path]:
    """The files that are there of any rank, process and host."""
    expression = _filled(pattern, {"r": lambda: "[0-9]+", "p": lambda: "[0-9]+", "h": lambda: "[^/]+",
                                   "%": lambda: "%"}, re.escape)  # fmt: skip
    candidates = _filled(pattern, {**dict.fromkeys("rph", lambda: "*"), "%": lambda: "%"}, glob.escape)
    return [Path(one) for one in sorted(glob.glob(candidates)) if re.fullmatch(expression, one)]


def letters_of(pattern: str) -> set[str]:
    """What a path depends on: some of r, p and h."""
    return set(_PATTERN.findall(pattern)) - {"%"}


def _filled(pattern: str, values: dict[str, Callable[[], str]], spelled: Callable[[str], str]) -> str:
    made, at = "", 0
    for found in _PATTERN.finditer(pattern):
        letter = found[1]
        if letter not in LETTERS or not letter:
            raise UsageError(
                f"HCQ_TRACE={pattern}: %{letter} means nothing. %r is the rank, %p the process, %h the host, %% a"
                " percent sign."
            )
        made += spelled(pattern[at : found.start()]) + values[letter]()
        at = found.end()
    return made + spelled(pattern[at:])
