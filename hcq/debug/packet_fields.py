"""Fields of packets that a person compares: `dim_x>=64`, `operation=RELEASE`.

In       text; a packet
Out      FieldTest: whether a packet's field compares so; `checked`, whether there is such a packet, and such a field
Next     packets.py (names of packets), points.py (points that have such tests), commands.py (who asks)
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from hcq import backends
from hcq.debug.arguments import number_of
from hcq.debug.packets import is_called, names_of
from hcq.errors import UsageError

COMPARISON = re.compile(r"(\w+)(==|!=|<=|>=|=|<|>)(\w+)")
OPERATORS = {"=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
             ">": operator.gt, ">=": operator.ge}  # fmt: skip


class FieldTest(NamedTuple):
    """A comparison of a packet's field with a number, or with the name of a value."""

    field: str
    operator: str
    value: int | str

    @classmethod
    def read(cls, text: str) -> FieldTest:
        """From text such as `dim_x>4` or `operation=RELEASE`. Raises UsageError."""
        found = COMPARISON.fullmatch(text)
        if found is None:
            raise UsageError(
                f"{text!r} compares no field. Say FIELD=VALUE; also !=, <, <=, >, >=, without blanks: dim_x>=4."
            )
        value = found[3] if found[3][0].isalpha() else number_of(found[3])
        if isinstance(value, str) and found[2] not in ("=", "==", "!="):
            raise UsageError(f"{text!r}: a name is compared by = or != alone.")
        return cls(found[1], found[2], value)

    def holds(self, packet: Any) -> bool:
        """Of a packet; of one that has no such field nothing holds."""
        value = getattr(packet, self.field, None)
        if value is None:
            return False
        if isinstance(self.value, str):
            name = getattr(value, "name", value)
            return bool(OPERATORS[self.operator](str(name).lower(), self.value.lower()))
        return bool(OPERATORS[self.operator](value, self.value))


def checked(pattern: str, fields: Iterable[FieldTest], emulated: Iterable[str]) -> None:
    """Raises UsageError where no packet of the emulated GPUs (words of HCQ_EMULATE) has such a type, or such fields."""
    devices = sorted({word.partition(":")[0].upper() for word in emulated})
    known = [one for device in devices for one in backends.of(device).packets()]
    named = [one for one in known if is_called(one, pattern)]
    if known and not named:
        letters = re.sub(r"\W|_", "", pattern.lower())
        near = [names_of(one)[0] for one in known if letters in one.__name__.lower()][:6]
        near = near or difflib.get_close_matches(pattern, [names_of(one)[0] for one in known], 6)
        hint = f" Is it {' or '.join(near)}?" if near else " `packets` lists the latest ones."
        raise UsageError(f"no packet of {', '.join(devices)} is called {pattern!r}.{hint}")
    for one in fields if known else ():
        if not any(one.field in packet.fields or not packet.fields or packet.tail for packet in named):
            has = sorted({field for packet in named for field in packet.fields})
            raise UsageError(f"no packet {pattern} has a field {one.field!r}. Fields: {', '.join(has)}.")
