"""Placement: which part of a tensor each device of a group has.

In       the devices of a group, an axis, the size of that axis
Out      `Placement`, and `Layout`, what a value of a graph looks like on the devices
Next     storage.py (memory that is placed so), partition.py (which layout each value of a graph gets)

A group of devices has a name, as one device has: their names, joined by commas. Its first device comes first in every
order: of shards along an axis, of ranks in a collective.
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.errors import UsageError
from hcq.ir.node import Shape
from hcq.ir.op import Op


class Split(NamedTuple):
    """Along one axis, each device has as many elements as its size says, in the order of the group."""

    axis: int
    sizes: tuple[int, ...]

    def start(self, rank: int) -> int:
        """Where the part of one device begins."""
        return sum(self.sizes[:rank])

    def shape(self, whole: Shape, rank: int) -> Shape:
        """The shape of one device's part."""
        return (*whole[: self.axis], self.sizes[rank], *whole[self.axis + 1 :])


class Partial(NamedTuple):
    """Each device has a term of the whole shape: the value is what the operation makes of them all."""

    op: Op


Layout = Split | Partial | None  # None: every device has all of it


class Placement(NamedTuple):
    """What the argument of a COPY to a group says: where to, and how.

    group    the group's name
    axis     the axis that is split; None for a copy on each device
    is_here  the value is on that group already, and is only placed otherwise
    """

    group: str
    axis: int | None
    is_here: bool

    def __str__(self) -> str:
        return self.group


def even(size: int, count: int) -> tuple[int, ...]:
    """Sizes that differ by one at most, the larger ones first."""
    return tuple([size // count + (rank < size % count) for rank in range(count)])


def split_evenly(call: str, shape: Shape, axis: int, group: tuple[str, ...]) -> Split:
    """How an axis is split over a group. Raises UsageError when some device would have nothing."""
    size = shape[axis]
    if size < len(group):
        raise UsageError(
            f"[{call}] axis {axis} of shape {shape} has {size} elements for {len(group)} devices: one would have "
            f"none. Shard another axis, or over {max(size, 1)} devices, or leave the axis out for a copy on each."
        )
    return Split(axis, even(size, len(group)))
