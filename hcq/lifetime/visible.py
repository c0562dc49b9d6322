"""Visible: which device a number names where HCQ_VISIBLE hides some or changes their order.

In       a kind of device and a number, as `hcq.open` is given them; the switches
Out      the number that the system gives it
Next     opening.py (who asks), hcq/config.py (HCQ_VISIBLE)
"""

from __future__ import annotations

from hcq import backends
from hcq.config import Config
from hcq.errors import UsageError


def number_of(name: str, kind: str, index: int, settings: Config) -> int:
    """The number of the device that is called `name` here. Raises UsageError for one that is hidden."""
    for word, _ in settings.visible or ():
        if word and backends.find(word) is None:
            known = ", ".join(backends.names())
            raise UsageError(f"HCQ_VISIBLE names {word}, which is no kind of device. Known are {known}.")
    visible = settings.numbers_of(kind)
    if visible is None:
        return index
    if index >= len(visible):
        raise UsageError(f"open({name!r}): {_shown_of(kind, visible)}.")
    return visible[index]


def _shown_of(kind: str, visible: tuple[int, ...]) -> str:
    """What HCQ_VISIBLE leaves of a kind, in words."""
    if not visible:
        return f"HCQ_VISIBLE is empty, which hides every GPU. Unset it, or name {kind}:0 in it"
    if len(visible) == 1:
        return f"HCQ_VISIBLE shows one device of {kind}, which is number 0"
    return f"HCQ_VISIBLE shows {len(visible)} devices of {kind}, of which 0 is the first"
