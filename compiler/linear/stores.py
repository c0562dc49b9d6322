"""Stores: the scans' values, then every store of the kernel at every written-out point.

In       the stores of a kernel, inside of all its output loops
Out      STORE instructions; where a store overwrites what another one reads, behind the values of both
Next     ways.py (who has the list), collecting.py and scattered.py (the other ways), scan.py,
         lower_expr.py (one store at a point)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from hcq.compiler.linear.context import Context, Lowering
from hcq.ir.node import Node, toposort
from hcq.ir.op import NEEDED, Op

if TYPE_CHECKING:
    from hcq.compiler.linear.scan import Scans
    from hcq.compiler.linear.scattered import Scattered


class StoreWay(Protocol):
    """A way to write all stores of a kernel."""

    def takes(self) -> bool:
        """Whether it is the one for this kernel."""

    def write(self) -> None:
        """Write them, inside of all output loops."""


class Stores(Lowering):
    """Stores point by point; those whose lanes lie far apart go through scratch."""

    def __init__(self, context: Context, scans: Scans | None, scattered: Scattered | None):
        super().__init__(context)
        self.scans, self.scattered = scans, scattered
        self.overwrites = _reads_what_was_stored(self.nest.stores)

    def takes(self) -> bool:
        """Any kernel's."""
        return True

    def write(self) -> None:
        """Write all stores of the kernel."""
        if self.scans is not None:
            self.scans.step()
        if self.scans is None and self.scattered is None:
            self._read_by_one_thread()
        if self.overwrites:
            self._values_first()
        for store in self.nest.stores:
            if self.scattered is not None and self.scattered.is_scattered(store):
                self.scattered.store_turned(store)
                continue
            for point in self.ranges.points(self.ranges.masks[store]):
                self.values.store(store, point)

    def _read_by_one_thread(self) -> None:
        """What a store overwrites is read by the thread that does so, and not by others of a reduction: they would
        read what that one may be writing.
        """
        reduced = set(toposort([source for reduce in self.nest.reduces for source in reduce.src]))
        for node in toposort([source for store in self.nest.stores for source in store.src[1:]]):
            if node.op is Op.LOAD and node.src[0].arg.writable and node not in reduced:
                self.values.only_stored.add(node)
        for store in self.nest.stores:
            self.values.stored |= self.ranges.masks[store]

    def _values_first(self) -> None:
        """Compute everything that is stored here: what one store overwrites, another one reads."""
        for store in self.nest.stores:
            for point in self.ranges.points(self.ranges.masks[store]):
                for source in store.src[2:3] if store.arg == NEEDED else store.src[2:]:
                    self.values.value(source, point)


def _reads_what_was_stored(stores: Sequence[Node]) -> bool:
    """True when a store's value is computed from memory that a store before it writes."""
    written: set[Node] = set()
    for store in stores:
        if any(node.op is Op.LOAD and node.src[0] in written for node in toposort(store.src[2:])):
            return True
        written.add(store.src[0])
    return False
