"""Facts: numbers and words that a file says about a model, each checked when it is taken.

In       a mapping of a file's metadata, or of JSON
Out      whole numbers, finite ones, texts, lists
Next     configuration.py and tokenizer.py (who ask)

Nothing is believed: a file may say a list for a number, or a number that no model has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError


class Facts:
    """What a file says. `plain` of each call is what holds where it does not say; without it, it has to say something.

    >>> Facts({"heads": 4}, "config.json").whole("heads")
    4
    """

    def __init__(self, values: Mapping[str, Any], where: str, prefix: str = ""):
        self._values, self._where, self._prefix = values, where, prefix

    def get(self, key: str) -> Any:
        """What it says, unchecked; None for nothing."""
        return self._values.get(f"{self._prefix}{key}")

    def wrong(self, key: str, takes: str) -> UsageError:
        """The error that it says something else."""
        return UsageError(
            f"[llm] {self._where} says {shown(self.get(key))} for {self._prefix}{key}; it takes {takes}."
        )

    def whole(self, key: str, plain: int | None = None, low: int = 0, high: int = 1 << 30) -> int:
        """A whole number within bounds."""
        value = self.get(key)
        if value is None and plain is not None:
            return plain
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, f"a whole number from {low} to {high}")
        return value

    def real(self, key: str, plain: float | None = None, low: float = 0.0, high: float = 1e30) -> float:
        """A finite number within bounds."""
        value = self.get(key)
        if value is None and plain is not None:
            return plain
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise self.wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, key: str, plain: bool) -> bool:
        """Yes or no."""
        value = self.get(key)
        if value is None:
            return plain
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str, plain: str | None = None) -> str:
        """A text."""
        value = self.get(key)
        if value is None and plain is not None:
            return plain
        if not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def values(self, key: str, kind: type, what: str) -> list[Any] | None:
        """A list of one kind, or None."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise self.wrong(key, f"a list of {what}")
        found = list(value)
        for entry in found:
            if isinstance(entry, bool) or not (
                isinstance(entry, kind) or (kind is float and isinstance(entry, int))
            ):
                raise UsageError(
                    f"[llm] {self._where} has {shown(entry)} in {self._prefix}{key}, a list of {what}."
                )
            if isinstance(entry, float) and math.isnan(entry):
                raise UsageError(f"[llm] {self._where} has NaN in {self._prefix}{key}, a list of {what}.")
        return found

    def part(self, *keys: str) -> Facts:
        """The first of some objects within that has something in it; an empty one where none has."""
        for key in keys:
            value = self.get(key)
            if value is not None and not isinstance(value, Mapping):
                raise self.wrong(key, "an object")
            if value:
                return Facts(value, f"{self._where}, {key},")
        return Facts({}, self._where)
