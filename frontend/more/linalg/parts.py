"""Parts: what the functions of this folder are made of: routines over batches, rules of gradients, checks.

In       tensors
Out      tensors of what a routine stores; Functions whose rules are written with tensors
Changes  nothing, but for where the functions of complex matrices are found, which __init__.py says
Next     factors.py, orthogonal.py, spectra.py (who use it), compiler/routines/ (the routines)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar, cast

from hcq.frontend.core.errors import LinAlgError, UsageError
from hcq.frontend.grad.function import Function
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, Routine
from hcq.ir.op import Op

F = TypeVar("F", bound=Callable[..., Any])
_over_complex: list[Callable[[str], Callable[..., Any]]] = []
EPSILON = {dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52}


def matrices(call: str, x: Tensor, name: str = "A") -> Tensor:
    """The tensor, if it has matrices to compute with. Raises UsageError otherwise."""
    if x.ndim < 2:
        raise UsageError(f"[{call}] {name} of shape {x.shape}: give a matrix, or a batch of matrices.")
    computable(call, x, name)
    return x


def complex_functions(find: Callable[[str], Callable[..., Any]]) -> None:
    """Say where functions of complex matrices are found: they are made of the real ones, which ask here for them."""
    _over_complex.append(find)


def also_complex(function: F) -> F:
    """The function, which for complex arguments is that of its name among those of complex matrices."""

    @functools.wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, Tensor) and value.is_complex():
                return _over_complex[-1](function.__name__)(*args, **kwargs)
        return function(*args, **kwargs)

    return cast(F, either)


def computable(call: str, x: Tensor, name: str = "A") -> None:
    """Raises UsageError for formats that are not computed with here."""
    if x.is_complex():
        raise UsageError(
            f"[{call}] {name} is {x.dtype.name}: this is for real matrices alone. Of complex ones there are solve, "
            "inv, det, cholesky, qr, eigh, svd, eig, pinv, lstsq, matrix_exp, and what follows from these."
        )
    if x.dtype not in EPSILON:
        raise UsageError(
            f"[{call}] {name} is {x.dtype.name}: float32 and float64 are computed. Cast first: x.float()."
        )


def square(call: str, x: Tensor, name: str = "A") -> Tensor:
    """The tensor, if it has square matrices. Raises UsageError otherwise."""
    matrices(call, x, name)
    if x.shape[-1] != x.shape[-2]:
        raise UsageError(f"[{call}] {name} of shape {x.shape}: the last two sizes must be equal.")
    return x


def alike(call: str, a: Tensor, b: Tensor) -> None:
    """Raises UsageError for two tensors of different formats or on different devices."""
    if a.dtype is not b.dtype:
        raise UsageError(f"[{call}] {a.dtype.name} and {b.dtype.name}: cast one: x.to({a.dtype}).")
    a._same_device(call, b)


def system(call: str, A: Tensor, B: Tensor, a: str = "A", b: str = "B") -> None:
    """Refuses what is no square matrices beside matrices of the same format. a, b: what they are called."""
    square(call, A, a)
    matrices(call, B, b)
    alike(call, A, B)


def batched(call: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the batch that their batches broadcast to."""
    shape = Tensor.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return expanded(a, shape), expanded(b, shape)


def expanded(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Matrices repeated over a batch."""
    shape = (*batch, *x.shape[-2:])
    return x if x.shape == shape else x.expand(shape)


def run(
    name: str,
    size: int,
    numbers: Sequence[int],
    sources: Sequence[Tensor],
    batch: tuple[int, ...],
    flops: int = 0,
) -> Tensor:
    """What a routine stores for each matrix of a batch: (..., size). Its first number is the batch, the rest are these.

    Gradients do not pass it.
    """
    count = prod(batch)
    first = sources[0]
    if not count or not size:
        return Tensor.zeros((*batch, size), dtype=first.dtype, device=first.device)
    routine = Routine(name, (count, size), (count, *numbers), flops * count)
    nodes = tuple([source.detach().node for source in sources])
    return first._like(Node(Op.ROUTINE, first.dtype, nodes, routine)).reshape((*batch, size))


def pieces(packed: Tensor, *shapes: Sequence[int]) -> list[Tensor]:
    """What lies one after the other in the last axis, each in its shape."""
    batch = packed.shape[:-1]
    found, start = [], 0
    for shape in shapes:
        size = prod(shape)
        found.append(packed._part(packed.ndim - 1, start, start + size).reshape((*batch, *shape)))
        start += size
    return found


# -- gradients ---------------------------------------------------------------------------------------------------------

Slope = Callable[..., Tensor]


class Written:
    """A function with slopes that are written with tensors.

    Each slope is `slope(value, g, *arguments)`, and gives the gradient of one argument, in order; None for one that has
    none. It may use the value and the arguments as tensors; what it computes can be differentiated again.
    """

    def __init__(self, name: str, *slopes: Slope | None):
        self.function = Function(name, *[None if slope is None else _rule(slope) for slope in slopes])  # type: ignore[arg-type]

    def of(self, value: Tensor, *arguments: Tensor) -> Tensor:
        """`value`, which this function has for these arguments."""
        return value._like(self.function.of(value.node, *[argument.node for argument in arguments]))


def _rule(slope: Slope) -> Callable[[Node, Node], Node]:
    def rule(node: Node, g: Node) -> Node:
        # the graph of a gradient knows no device: that of its leaves is where it runs
        value, grad, *arguments = [Tensor._of(each, "CPU") for each in (node, g, *node.src[1:])]
        return slope(value, grad, *arguments).node

    return rule


def identity(n: int, like: Tensor) -> Tensor:
    """The unit matrix, in the format and on the device of another tensor."""
    return Tensor.eye(n, dtype=like.dtype, device=like.device)


def checked_info(call: str, info: Tensor, check_errors: bool, why: str) -> None:
    """With check_errors: compute the info now. Raises UsageError where it is not 0."""
    if not check_errors:
        return
    values: Any = info.detach().numpy().reshape(-1)
    for place, value in enumerate(values):
        if value:
            where = f" of matrix {place} of the batch" if info.ndim else ""
            raise LinAlgError(f"[{call}] info {int(value)}{where}: {why.format(int(value))}.")


def dtype_of(dtype: DType | None, x: Tensor) -> Tensor:
    """The tensor in a format that was asked for."""
    return x if dtype is None else x.cast(dtype)
