"""Tensor parallel: layers whose weights are divided over ranks, which make each activation together.

In       whole layers, the same on every rank; a group of ranks
Out      `ColumnLinear`, `RowLinear`, and what stands at their ends: `enter` and `leave`
Changes  nothing by itself; forward and backward send activations
Next     transformer.py (a model of them), collectives.py (what is sent)
Source   Shoeybi et al. 2019, Megatron-LM: the pair of operators f and g

A column layer has some of the outputs, a row layer behind it the same ones of its inputs: what is between them stays on
the rank. `leave` adds up what the ranks have made, and passes gradients on as they are; `enter` passes values on, and
adds up gradients. Both send when they are reached, in forward and in backward, so a model with them is not recorded
by jit. What is computed between two of them is computed once more for the gradients, and not kept meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hcq.errors import UsageError
from hcq.frontend.grad.function import Function
from hcq.frontend.more.distributed.collectives import all_gather, all_reduce
from hcq.frontend.more.distributed.group import Group
from hcq.frontend.nn.layers.linear import Linear
from hcq.frontend.nn.module import Module
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Node


def leave(x: Tensor, group: Group) -> Tensor:
    """The sum over the ranks; the gradient of it is passed on to each of them.

    >>> world = hcq.distributed.init()
    >>> hcq.distributed.leave(Tensor([1.0]), world).item() == world.size
    True
    """
    if group.size == 1:
        return x
    total = all_reduce(x.detach(), group=group)

    def kept(node: Node, g: Node) -> Node:
        # the parts below begin here, and not at the loss
        return Tensor._of(g, x.device).detach().realize().node

    return x._like(Function("leave", kept).of(total.node, x.node))


def enter(x: Tensor, group: Group) -> Tensor:
    """x, which all ranks have; the gradients that they make of it are added up.

    >>> world = hcq.distributed.init()
    >>> hcq.distributed.enter(Tensor([1.0]), world).tolist()
    [1.0]
    """
    if group.size == 1:
        return x

    x.realize()  # so that each part of the model begins with memory

    def summed(node: Node, g: Node) -> Node:
        return all_reduce(Tensor._of(g, x.device).detach(), group=group).node

    return x._like(Function("enter", summed).of(x.node, x.node))


class Divided(Module):
    """A linear layer of which this rank has a part: of the axes in `axes`, attribute -> axis."""

    axes: ClassVar[Mapping[str, int]] = {}
    weight: Tensor
    bias: Tensor | None

    def __init__(self, layer: Linear, group: Group):
        self.group = group
        self.in_features, self.out_features = layer.in_features, layer.out_features
        for name in ("weight", "bias"):
            value = getattr(layer, name)
            if value is not None and name in self.axes:
                value = self.part(name, value.detach())
                value.requires_grad = True
            setattr(self, name, value)

    def part(self, name: str, whole: Tensor) -> Tensor:
        """This rank's part of a parameter, in memory of its own. Raises UsageError when it does not divide."""
        axis, group = self.axes[name], self.group
        if whole.shape[axis] % group.size:
            raise UsageError(
                f"[{type(self).__name__}] {name} of shape {whole.shape} over {group.size} ranks: axis {axis} must "
                "divide."
            )
        length = whole.shape[axis] // group.size
        index: list[Any] = [slice(None)] * len(whole.shape)
        index[axis] = slice(group.rank * length, (group.rank + 1) * length)
        return whole[tuple(index)].clone().realize().detach()

    def whole(self, name: str) -> Tensor:
        """The whole parameter; all ranks must call it together."""
        return all_gather(getattr(self, name).detach().contiguous(), self.axes[name], self.group)


class ColumnLinear(Divided):
    """A part of the outputs of a linear layer. (..., in) -> (..., out / ranks).

    enters  whether it calls `enter` on what it is given; layers beside each other are better given one `enter(x)`

    >>> world = hcq.distributed.init()
    >>> layer = hcq.distributed.ColumnLinear(nn.Linear(4, 6), world)
    >>> layer(Tensor.zeros(2, 4)).shape == (2, 6 // world.size)
    True
    """

    axes: ClassVar[Mapping[str, int]] = {"weight": 0, "bias": 0}

    def __init__(self, layer: Linear, group: Group, enters: bool = True):
        super().__init__(layer, group)
        self.enters = enters

    def forward(self, x: Tensor) -> Tensor:
        """This rank's outputs; x is the same on all ranks."""
        return (enter(x, self.group) if self.enters else x).linear(self.weight, self.bias)


class RowLinear(Divided):
    """A part of the inputs of a linear layer. (..., in / ranks) -> (..., out), the same on all ranks.

    >>> world = hcq.distributed.init()
    >>> layer = hcq.distributed.RowLinear(nn.Linear(4, 6), world)
    >>> layer(Tensor.zeros(2, 4 // world.size)).shape
    (2, 6)
    """

    axes: ClassVar[Mapping[str, int]] = {"weight": 1}

    def forward(self, x: Tensor) -> Tensor:
        """All outputs; x is this rank's part of the inputs."""
        y = leave(x.linear(self.weight), self.group)
        return y if self.bias is None else y + self.bias


def whole_state(model: Module) -> dict[str, Tensor]:
    """The state of the model as one rank would have it, by the same names. All ranks must call it together.

    >>> world = hcq.distributed.init()
    >>> layer = hcq.distributed.ColumnLinear(nn.Linear(4, 6), world)
    >>> hcq.distributed.whole_state(layer)["weight"].shape
    (6, 4)
    """
    found = dict(model.state_dict())
    for prefix, module in model.named_modules():
        if isinstance(module, Divided):
            for name in module.axes:
                if getattr(module, name) is not None:
                    found[f"{prefix}.{name}" if prefix else name] = module.whole(name)
    return found


def load_whole_state(model: Module, state: Mapping[str, Tensor]) -> None:
    """Write what `whole_state` gave, here or on another number of ranks, into it. Raises as load_state_dict does.

    >>> world = hcq.distributed.init()
    >>> layer = hcq.distributed.RowLinear(nn.Linear(4, 6), world)
    >>> hcq.distributed.load_whole_state(layer, nn.Linear(4, 6).state_dict())
    >>> hcq.distributed.whole_state(layer)["weight"].shape
    (6, 4)
    """
    own = dict(state)
    for prefix, module in model.named_modules():
        if isinstance(module, Divided):
            for name in module.axes:
                dotted = f"{prefix}.{name}" if prefix else name
                if dotted in own and getattr(module, name) is not None:
                    own[dotted] = module.part(name, own[dotted].detach())
    realize(own.values())
    model.load_state_dict(own)
