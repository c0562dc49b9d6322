"""Places: where a function keeps a tensor: in a dict, a list, an attribute, a variable around it.

In       a tensor that is still held when the function has returned
Out      every place that holds it, so that a replay can put the next one there, as a call would
Changes  `put` sets a place
Next     observe.py (who asks), replay.py (who puts)
"""

from __future__ import annotations

import gc
import types
from sys import getrefcount
from typing import Any, NamedTuple

from hcq.frontend.held import PASSED


class Place(NamedTuple):
    """An entry of a dict, an element of a list, an attribute of an object, a variable that a function closes over."""

    holder: Any
    key: Any

    @property
    def word(self) -> tuple[int, Any]:
        """Equal for one place at two times."""
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


def places_of(tensor: Any) -> list[Place] | None:
    """Every place that holds a tensor, given as the only variable of a caller; None when some are of another kind."""
    found: dict[tuple[int, Any], Place] = {}
    for holder in gc.get_referrers(tensor):
        if isinstance(holder, types.FrameType):
            continue
        # loops, for a comprehension would hold the tensor in a cell of its own
        if isinstance(holder, types.CellType):
            found[id(holder), ""] = Place(holder, "")
        elif isinstance(holder, (dict, list)) or hasattr(holder, "__dict__"):
            items = holder if isinstance(holder, (dict, list)) else vars(holder)
            for key, value in list(items.items() if isinstance(items, dict) else enumerate(items)):
                if value is tensor:
                    found[id(holder), key] = Place(holder, key)
            key = value = None
        else:
            return None
    return list(found.values()) if found and getrefcount(tensor) == len(found) + PASSED else None
