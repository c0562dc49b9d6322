"""Levels: what a transform puts in the place of arguments while the function runs.

In       tensors
Out      `Level`: stand-ins for them with the same values, that a derivative is taken by; `Example`: one without values
Changes  the transforms that this thread is inside of, for as long as the function runs
Next     reverse.py, forward.py, vmap.py (who run functions inside), core/base.py (`transforms`)

A stand-in is a FUNCTION node of its own around the value, so that a derivative is taken by this argument and by nothing
else that has the same value. Its name is its level and its number, and the same for each call, so that a graph is
compiled once; what a level returns has no stand-ins of the level any more, so that calls never meet.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hcq.errors import UsageError
from hcq.frontend.core.base import drop_default_mode, mode_of_thread
from hcq.frontend.core.storage import Storage
from hcq.frontend.grad.function import Function, same
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType
from hcq.ir.node import Node, Shape, substitute

if TYPE_CHECKING:
    from typing_extensions import Self


@functools.cache
def _argument(level: int, number: int) -> Function:
    return Function(f"argument {number} of transform {level}", same, is_tracked=True)


class Level:
    """A transform that runs a function: `with Level() as level:` around the call.

    depth   how many transforms are around this one
    """

    randomness = "same"  # of what is drawn inside: as without the transform

    def __enter__(self) -> Self:
        mode = mode_of_thread()
        self.depth = len(mode.transforms)
        mode.transforms.append(self)
        self._no_grad_depth, mode.no_grad_depth = mode.no_grad_depth, 0
        self._stand_ins: dict[Node, Node] = {}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        mode = mode_of_thread()
        mode.transforms.pop()
        mode.no_grad_depth = self._no_grad_depth
        drop_default_mode()

    def stand_in(self, tensor: Tensor) -> Tensor:
        """A tensor of the same values, that nothing else is."""
        node = _argument(self.depth, len(self._stand_ins)).of(tensor.node, tensor.node)
        self._stand_ins[node] = tensor.node
        return Tensor._of(node, tensor.device)

    def without_stand_ins(self, nodes: Sequence[Node]) -> list[Node]:
        """The same graphs, on the arguments themselves."""
        return substitute(nodes, self._stand_ins)


class Example(Storage):
    """One example of a batch, or any value that is not known while a function runs: a leaf without memory."""

    __slots__ = ("call",)

    def __init__(self, call: str, dtype: DType, shape: Shape, device: str):
        self.call = call
        super().__init__(device, dtype, shape)

    def _refuse(self) -> Any:
        raise UsageError(
            f"[{self.call}] the function needs values of one example while it runs: .item(), .numpy(), print, a branch "
            "on a tensor, realize(), or an operator whose shape depends on values. Keep to tensors: where(x > 0, a, b) "
            "in the place of a branch."
        )

    @property
    def buffer(self) -> Any:
        """There is none."""
        return self._refuse()

    @buffer.setter
    def buffer(self, value: Any) -> None:
        assert value is None

    @property
    def place(self) -> Any:
        """Asked for when a graph is scheduled."""
        return self._refuse()

    def kind_of(self) -> object:
        return self._refuse()

    def like(self, buffer: Any = None) -> Storage:
        return self._refuse()  # type: ignore[no-any-return]


def example(call: str, dtype: DType, shape: Shape, device: str = "") -> Node:
    """A leaf for a value of that kind that batching fills in later.

    device   where the value is, for leaves that users' functions get to see
    """
    return Example(call, dtype, shape, device).node()
