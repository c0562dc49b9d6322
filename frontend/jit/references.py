"""References: who holds a tensor: a dict, a list, an attribute, a variable that a function closes over.

In       a tensor that is still held when the function has returned
Out      every reference to it, so that a replay can put the next tensor there, as a call would; IN_A_TUPLE and PASSED,
         what sys.getrefcount counts of a value that nobody else holds
Changes  `put` sets a reference
Next     capture.py (who asks), replay.py (who puts)

The two counts are measured: releases of Python count the variables of a function differently (3.14 and later lend a
variable to a call where earlier ones give it a reference).
"""

from __future__ import annotations

import gc
import types
from sys import getrefcount
from typing import Any, NamedTuple


def _in_a_tuple() -> int:
    counts = [getrefcount(item) for item, _ in [(object(), None)]]
    return counts[0]


def _passed() -> int:
    item = object()
    return _count(item)


def _count(item: object) -> int:
    return getrefcount(item)


IN_A_TUPLE = _in_a_tuple()  # of a variable that was unpacked from a tuple
PASSED = _passed()  # of an argument that is a caller's variable


class Reference(NamedTuple):
    """An entry of a dict, an element of a list, an attribute of an object, a variable that a function closes over."""

    holder: Any
    key: Any

    @property
    def key_of(self) -> tuple[int, Any]:
        """Equal for one reference at two times."""
        return id(self.holder), self.key

    def is_there(self) -> bool:
        """Whether it can be put there."""
        return not isinstance(self.holder, list) or self.key < len(self.holder)

    def put(self, tensor: Any) -> None:
        """Keep this tensor there, instead of the one before."""
        if isinstance(self.holder, types.CellType):
            self.holder.cell_contents = tensor
        elif isinstance(self.holder, (dict, list)):
            self.holder[self.key] = tensor
        else:
            vars(self.holder)[self.key] = tensor


def references_to(tensor: Any) -> list[Reference] | None:
    """Every reference to a tensor, given as the only variable of a caller; None when some are of another kind."""
    found: dict[tuple[int, Any], Reference] = {}
    for holder in gc.get_referrers(tensor):
        if isinstance(holder, types.FrameType):
            continue
        # loops, for a comprehension would hold the tensor in a cell of its own
        if isinstance(holder, types.CellType):
            found[id(holder), ""] = Reference(holder, "")
        elif isinstance(holder, (dict, list)) or hasattr(holder, "__dict__"):
            items = holder if isinstance(holder, (dict, list)) else vars(holder)
            for key, value in list(items.items() if isinstance(items, dict) else enumerate(items)):
                if value is tensor:
                    found[id(holder), key] = Reference(holder, key)
            key = value = None
        else:
            return None
    return list(found.values()) if found and getrefcount(tensor) == len(found) + PASSED else None
