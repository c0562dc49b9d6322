"""Layouts that are data: a file of data/ says enums, layouts and their fields; each is made when first asked for.

In       a file: lines `enum`, lines of layouts, a line that begins with a tab continues the one before
Out      LayoutFile: its lines, its enums by name, fields of a line's text
Changes  nothing; a file is read once, when something of it is first asked for
Next     method.py and qmd.py (what a line of their files is), hcq/layout.py (what a field is)
Source   at the top of each file

A field is name@high:low or name@bit, and may go on: *unit, /Enum, =default, xn+step for an array of n that stand step
bits apart, where {i} in the name is the entry's number.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cached_property
from typing import Any

from hcq.errors import UsageError
from hcq.layout import Bits, bits, repeated
from hcq.nv.abi.names import DATA

FIELD = re.compile(
    r"(?P<name>[\w{}]+)@(?P<high>\d+)(?::(?P<low>\d+))?(?:\*(?P<unit>\d+))?(?:/(?P<enum>\w+))?"
    r"(?:=(?P<default>\d+))?(?:x(?P<count>\d+)\+(?P<step>\d+))?"
)


class LayoutFile:
    """A file of data/. module: whose layouts these are, as tracebacks and pages name them."""

    def __init__(self, name: str, module: str) -> None:
        self.name, self.module = f"{name}.tsv", module
        self._enums: dict[str, type[IntEnum]] = {}

    @cached_property
    def lines(self) -> list[list[str]]:
        """The cells of every line but remarks and enums, in the order of the file."""
        return [cells for cells in self._cells if cells[0] != "enum"]

    @cached_property
    def enum_texts(self) -> dict[str, str]:
        """Name of an enum -> its members as text."""
        return {cells[1]: cells[2] for cells in self._cells if cells[0] == "enum"}

    @cached_property
    def _cells(self) -> list[list[str]]:
        text = (DATA / self.name).read_text(encoding="utf-8").replace("\n\t", " ")
        return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]

    def enum(self, name: str) -> type[IntEnum]:
        """The enum of this name. Raises UsageError for one that the file has not."""
        if name not in self._enums:
            if name not in self.enum_texts:
                raise UsageError(f"{self.name} has no enum {name!r}. It has: {', '.join(self.enum_texts)}.")
            pairs = (text.partition("=") for text in self.enum_texts[name].split())
            members = {member: int(value) for member, _, value in pairs}
            make: Any = IntEnum  # a type checker knows names that are written down only
            self._enums[name] = make(name, members, module=self.module)
        return self._enums[name]

    def fields(self, text: str) -> dict[str, Bits]:
        """The fields of a line. Raises UsageError for one that is not written as a field is."""
        found: dict[str, Bits] = {}
        for one in text.split():
            parts = FIELD.fullmatch(one)
            if parts is None:
                raise UsageError(f"{self.name}: {one!r} is not name@high:low.")
            found.update(self._field(**parts.groupdict()))
        return found

    def _field(
        self,
        name: str,
        high: str,
        low: str | None,
        unit: str | None,
        enum: str | None,
        default: str | None,
        count: str | None,
        step: str | None,
    ) -> dict[str, Bits]:
        values: Any = None if enum is None else self.enum(enum)
        start = int(default or 0)
        field = bits(
            int(high),
            None if low is None else int(low),
            unit=int(unit or 1),
            enum=values,
            default=start if default is None or values is None else values(start),
        )
        return repeated(range(0, int(count or 1) * int(step or 1), int(step or 1)), {name: field})
