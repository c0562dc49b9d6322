"""Above: what rooms that stand on this one do for it. They register here; nothing here imports them.

In       functions, registered once by frontend/upper.py
Out      the same, for run/ and symbolic/, which call them by these names
Changes  `register`: the names
Next     ../upper.py (who registers), run/realize.py, run/plan.py and symbolic/variable.py (who call)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

group_plan: Callable[..., Any]  # (structure, roots, group of devices) -> a plan that runs on all of them
brought: Callable[..., Any]  # (storage, where, realized) -> a node that reads the same values there
stored: Callable[..., Any]  # (group, dtype, shape, bytes, name) -> memory of each of them
# (device, kernels, target) -> kernel's key -> the schedule that was found for it
schedules_for: Callable[..., Mapping[str, str]]
schedules_digest: Callable[[], str]  # of all schedules that were found

ASKED_FOR = frozenset({"group_plan", "brought", "stored", "schedules_for", "schedules_digest"})


def register(**functions: Callable[..., Any]) -> None:
    """From now on these are called by these names. Raises NameError for one that nobody asks for."""
    unknown = functions.keys() - ASKED_FOR
    if unknown:
        raise NameError(f"register({', '.join(sorted(unknown))}): nothing below calls that")
    globals().update(functions)
