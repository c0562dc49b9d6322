"""Release: frees a list of resources, and continues although the kernel driver refuses some of them.

In       what undoes each thing, in order
Out      nothing, or the first refusal
Changes  what the acts change
Next     device.py (closing), hcq/amd/rings.py, hcq/nv/channel.py (queues and their memory)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hcq.errors import HcqError


def do_all(acts: Iterable[Callable[[], object]]) -> None:
    """One act after the other; one that is refused does not keep the others. Raises the first refusal."""
    first: HcqError | None = None
    for act in acts:
        try:
            act()
        except HcqError as refusal:
            first = first or refusal
    if first is not None:
        raise first


def quietly(*acts: Callable[[], object]) -> None:
    """The same where something else has gone wrong already: that is the error to raise."""
    try:
        do_all(acts)
    except HcqError:
        return
