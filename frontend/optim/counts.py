"""Counts: one number for each parameter, as how many steps it has made, in one tensor per device.

In       an optimizer's parameters
Out      `Counts`: the number of each, and new numbers for those that take part in a step, by one kernel
Changes  these numbers, lazily
Next     optimizer.py (who has them)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.nn.constant import constant
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class Counts:
    """Numbers by parameter, which begin at `start`."""

    def __init__(self, start: float):
        self.start = start
        self.where: list[tuple[str, int]] = []
        self.tensors: dict[str, Tensor] = {}
        self._masks: dict[tuple[str, frozenset[int]], Tensor] = {}

    def add(self, params: list[Tensor]) -> None:
        """Further parameters."""
        new: dict[str, int] = {}
        for parameter in params:
            before = self.tensors.get(parameter.device)
            place = (0 if before is None else before.shape[0]) + new.get(parameter.device, 0)
            new[parameter.device] = new.get(parameter.device, 0) + 1
            self.where.append((parameter.device, place))
        wide = any(parameter.dtype is dtypes.float64 for parameter in params)
        for device, count in new.items():
            before = self.tensors.get(device)
            dtype = (
                dtypes.float64
                if wide or (before is not None and before.dtype is dtypes.float64)
                else dtypes.float32
            )
            fresh = constant((count,), self.start, dtype, device)
            if before is not None:
                fresh = before.detach().cast(dtype).cat(fresh).realize()
            self.tensors[device] = fresh
        self._masks.clear()

    def of(self, place: int) -> Tensor:
        """The number of one parameter."""
        device, index = self.where[place]
        return self.tensors[device][index]

    def set(self, values: dict[int, float]) -> None:
        """Other numbers for some parameters."""
        for device, tensor in self.tensors.items():
            numbers = tensor.tolist()
            for place, value in values.items():
                if self.where[place][0] == device:
                    numbers[self.where[place][1]] = value
            tensor.assign(type(tensor)(numbers, device, tensor.dtype)).realize()

    def update(
        self, places: list[int], change: Callable[[Tensor], Tensor], write: Callable[[Tensor, Tensor], Any]
    ) -> None:
        """New numbers for the parameters that take part."""
        taking: dict[str, set[int]] = {}
        for place in places:
            device, index = self.where[place]
            taking.setdefault(device, set()).add(index)
        for device, tensor in self.tensors.items():
            indices = taking.get(device)
            if not indices:
                continue
            new = change(tensor)
            if len(indices) < tensor.shape[0]:
                new = self._mask(device, frozenset(indices), tensor).where(new, tensor)
            write(tensor, new)

    def _mask(self, device: str, indices: frozenset[int], tensor: Tensor) -> Tensor:
        """True for the parameters that take part; made once for each choice of them."""
        mask = self._masks.get((device, indices))
        if mask is None:
            flags = [index in indices for index in range(tensor.shape[0])]
            mask = self._masks[device, indices] = type(tensor)(flags, device, dtypes.bool)
        return mask
