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
    """A tensor of one number in memory of its own, float32 unless given: two of them are never the same."""
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
    """Fill with uniform numbers in [a, b). Returns the tensor, as every function here does."""
    return _fill(
        tensor, tensor.uniform(tensor.shape, low=a, high=b, dtype=tensor.dtype, device=tensor.device)
    )


@checked
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill with numbers of the normal distribution."""
    return _fill(
        tensor, tensor.normal(tensor.shape, mean=mean, std=std, dtype=tensor.dtype, device=tensor.device)
    )


@checked
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number."""
    return _fill(tensor, constant(tensor.shape, val, tensor.dtype, tensor.device))


@checked
def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0.0)


@checked
def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
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
    """
    bound = math.sqrt(3.0) * kaiming_std(tensor.shape, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


@checked
def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Fill with normal numbers of the deviation of `kaiming_uniform_`."""
    return normal_(tensor, 0.0, kaiming_std(tensor.shape, a, mode, nonlinearity))


@checked
def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill a weight (out, in, ...) with uniform numbers that keep the size of signal and gradient alike.

    Source  Glorot and Bengio 2010
    """
    bound = math.sqrt(3.0) * xavier_std(tensor.shape, gain)
    return uniform_(tensor, -bound, bound)


@checked
def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with normal numbers of the deviation of `xavier_uniform_`."""
    return normal_(tensor, 0.0, xavier_std(tensor.shape, gain))
