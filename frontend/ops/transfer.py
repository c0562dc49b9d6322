"""Transfer: a tensor on another device, on several, or in another dtype by the same call.

In       the name of a device, or of several; a dtype
Out      lazy tensors whose node is a COPY; nothing moves before they are computed
Changes  `shard_`: the tensor itself; `devices` opens what is named
Next     core/device.py (names of devices), ../devices/sharding/ (tensors of several devices), ../run/realize.py (who
         copies)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core import device as devices
from hcq.frontend.core import sizes
from hcq.frontend.core.base import Core, changed
from hcq.frontend.core.device import group as group_of
from hcq.frontend.core.device import is_group, members
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.dtype import DType
from hcq.ir.node import Node
from hcq.ir.op import Op


class Transfer(Methods):
    """to, cpu, shard."""

    __slots__ = ()
    _are_functions: bool = False

    def to(
        self,
        target: str | DType | Self | None = None,
        dtype: DType | bool | None = None,
        non_blocking: bool = False,
        copy: bool = False,
    ) -> Self:
        """On another device, in another dtype, or both: x.to("CPU"), x.to(dtypes.float16), x.to("AMD", dtypes.int8).

        target         may be a tensor, whose device and dtype are meant
        non_blocking   may be given, and has no effect: no copy waits
        copy           True: memory of its own even where nothing changes

        >>> Tensor([1.9]).to(dtypes.int32).tolist()
        [1]
        """
        if copy:
            return self.to(target, dtype, non_blocking).clone()
        if isinstance(target, Core):
            return self.to(target.device, target.dtype)
        if isinstance(target, DType):
            return self.cast(target)
        dtype = None if isinstance(dtype, bool) else dtype
        if target is None:
            return self if dtype is None else self.cast(dtype)
        name = devices.canonical(target)
        x = self
        if name != self.device:
            x = self._of(self.node if self.node.op is Op.CONST else self._moved(name), name)
        return x if dtype is None else x.cast(dtype)

    def shard(self, devices: Any, axis: int | None = None) -> Self:
        """On several devices of this machine: split along an axis, as evenly as can be; without one, a copy on each.

        devices  their names: ["AMD:0", "AMD:1"], or "AMD:0,AMD:1"
        Raises   UsageError for an axis with fewer elements than there are devices

        What is computed from it stays on them. Work that fits the split is done where the values are; sums over the
        split axis, and what is split otherwise, is exchanged between the devices (docs/devices.md).

        >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]]).shard(["CPU:0", "CPU:1"], axis=0)
        >>> x.device, x.sum(dim=0).tolist()
        ('CPU,CPU:1', [4.0, 6.0])
        """
        from hcq.frontend.devices.sharding.placement import Placement, split_evenly

        name = group_of(devices)
        place = None if axis is None else self._axis_of("shard", axis)
        if not is_group(name):
            return self.to(name)
        if place is not None:
            split_evenly("shard", self.node.shape, place, members(name))
        if self.node.op is Op.CONST:
            return self._of(self.node, name)
        where = Placement(name, place, name == self.device)
        return self._of(self._moved(where), name)

    def _moved(self, where: Any) -> Node:
        """The node on another device, or in another placement; what variables cut is cut there by their numbers."""
        node, counts = self.node, sizes.counts_of(self.node)
        if not counts:
            return Node(Op.COPY, self.dtype, (node,), where)
        from hcq.frontend.symbolic import variable

        node = Node(Op.COPY, self.dtype, (sizes.zeroed(node),), where)
        there = [(axis, variable.bound_of(count).node(str(where))) for axis, count in counts]
        return sizes.with_counts(node, there)

    def shard_(self, devices: Any, axis: int | None = None) -> Self:
        """`shard`, in place: this very tensor is on those devices then, as a parameter that modules hold.

        Its gradient, if it has one, goes with it. An optimizer made before knows it where it was: make that after.

        >>> x = Tensor([1.0, 2.0])
        >>> x.shard_(("CPU:0", "CPU:1"), axis=0).device, x.tolist()
        ('CPU,CPU:1', [1.0, 2.0])
        """
        placed = self.detach().shard(devices, axis).clone().realize()
        if self._grad is not None:
            self._grad.shard_(devices, axis)
        self._before_change()
        self.node, self.device = placed.node, placed.device
        self.node.arg.tracked = self._requires_grad
        changed()
        return self

    def cpu(self) -> Self:
        """On the CPU: x.to("CPU").

        >>> hcq.tensor([1]).cpu().device
        'CPU'
        """
        return self.to("CPU")
