"""Synonyms: methods under their second names.

In       what the method takes
Out      what it gives
Next     other_names.py (the table)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.ops.base import Methods
from hcq.frontend.ops.forwarded import Forwarded
from hcq.frontend.ops.other_names import OTHER_NAMES


class Synonyms(Methods):
    """absolute, subtract, multiply, divide, greater, less, ..."""

    __slots__ = ()


def _same(self: Any, call: str, result: Any) -> Any:
    return result


for _name, _first in OTHER_NAMES.items():
    _form = Forwarded(_name, _first, _same, f"PyTorch's other name of `{_first}`.", "")
    setattr(Synonyms, _name, _form)
    _form.__set_name__(Synonyms, _name)
