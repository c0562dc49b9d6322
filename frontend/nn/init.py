"""Initial values: fill a parameter in place, under PyTorch's names, and the parameters that layers start from.

In       a tensor and the rule for its numbers
Out      the same tensor, filled; `constant`, a parameter of its own memory
Changes  the tensor's memory, at once
Next     layers.py (which rule each layer uses), ../methods/initial.py (how wide the numbers spread)
"""

from __future__ import annotations

import math
from math import prod

from hcq.frontend import device as devices
from hcq.frontend.arguments import checked
from hcq.frontend.methods.initial import calculate_gain as calculate_gain
from hcq.frontend.methods.initial import kaiming_std, xavier_std
from hcq.frontend.sharding.storage import stored
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes, to_bits
from hcq.ir.node import Shape


@checked
def constant(shape: Shape, value: float, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """A tensor of one number in memory of its own, float32 unless given: two of them are never the same.

    >>> nn.init.constant((2,), 7.0).tolist()
    [7.0, 7.0]
    """
    where, kind = devices.canonical(device), dtype or dtypes.float32
    element = to_bits(value, kind).to_bytes(kind.itemsize, "little")
    storage = stored(where, kind, tuple(shape), element * prod(shape), "constant")
    return Tensor._of(storage.node(), where)


def _fill(tensor: Tensor, values: Tensor) -> Tensor:
    tensor.assign(values.cast(tensor.dtype))
    tensor.realize()
    return tensor


@checked
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fill with uniform numbers in [a, b). Returns the tensor, as every function here does.

    >>> w = nn.init.uniform_(Tensor.zeros(1000), -0.5, 0.5)
    >>> -0.5 <= w.min().item(), w.max().item() < 0.5
    (True, True)
    """
    return _fill(
        tensor, tensor.uniform(tensor.shape, low=a, high=b, dtype=tensor.dtype, device=tensor.device)
    )


@checked
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill with numbers of the normal distribution.

    >>> w = nn.init.normal_(Tensor.zeros(10000), std=0.02)
    >>> abs(w.std().item() - 0.02) < 0.001
    True
    """
    return _fill(
        tensor, tensor.normal(tensor.shape, mean=mean, std=std, dtype=tensor.dtype, device=tensor.device)
    )


@checked
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number.

    >>> nn.init.constant_(Tensor.zeros(2), 7.0).tolist()
    [7.0, 7.0]
    """
    return _fill(tensor, constant(tensor.shape, val, tensor.dtype, tensor.device))


@checked
def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros.

    >>> nn.init.zeros_(Tensor.ones(2)).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0.0)


@checked
def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones.

    >>> nn.init.ones_(Tensor.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1.0)


@checked
def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Fill a weight (out, in, ...) with uniform numbers that keep a signal's size through a rectifier.

    a              the rectifier's slope below zero
    mode           "fan_in" keeps the signal's size, "fan_out" the gradient's
    nonlinearity   one that `calculate_gain` knows
    Source         He et al. 2015

    >>> w = nn.init.kaiming_uniform_(Tensor.zeros(20, 50), nonlinearity="relu")
    >>> w.abs().max().item() <= (6 / 50) ** 0.5
    True
    """
    bound = math.sqrt(3.0) * kaiming_std(tensor.shape, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


@checked
def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Fill with normal numbers of the deviation of `kaiming_uniform_`.

    >>> w = nn.init.kaiming_normal_(Tensor.zeros(200, 50), nonlinearity="relu")
    >>> abs(w.std().item() - (2 / 50) ** 0.5) < 0.01
    True
    """
    return normal_(tensor, 0.0, kaiming_std(tensor.shape, a, mode, nonlinearity))


@checked
def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill a weight (out, in, ...) with uniform numbers that keep the size of signal and gradient alike.

    Source  Glorot and Bengio 2010

    >>> w = nn.init.xavier_uniform_(Tensor.zeros(30, 20))
    >>> w.abs().max().item() <= (6 / 50) ** 0.5
    True
    """
    bound = math.sqrt(3.0) * xavier_std(tensor.shape, gain)
    return uniform_(tensor, -bound, bound)


@checked
def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with normal numbers of the deviation of `xavier_uniform_`.

    >>> w = nn.init.xavier_normal_(Tensor.zeros(100, 100))
    >>> abs(w.std().item() - 0.1) < 0.01
    True
    """
    return normal_(tensor, 0.0, xavier_std(tensor.shape, gain))
