"""Terse: packets whose printed form leaves out what is zero. AMD's packets have many fields, and few are ever set.

In       a packet
Out      one line: its name and the fields that are not zero
Changes  nothing
Next     pm4.py, sdma.py, aql.py and kfd.py (who print like this), hcq/layout.py (what a packet is)
"""

from __future__ import annotations

from typing import ClassVar

from hcq.layout import Packet


class Terse(Packet):
    """A packet that prints its non-zero fields; those in `unsaid` follow from its class and are never printed."""

    unsaid: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        parts = [
            f"{name}={self.fields[name].show(value)}"
            for name, value in self.values.items()
            if value and name not in self.unsaid
        ]
        if self.tail is not None and self.tail_words:
            parts.append(f"{self.tail}=[{' '.join(f'{word:08x}' for word in self.tail_words)}]")
        parts += [f"unclaimed_word_{index}={value:#010x}" for index, value in self.unclaimed.items()]
        return f"{type(self).__name__}({', '.join(parts)})"
