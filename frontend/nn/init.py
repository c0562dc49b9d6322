"""Initial values: fill a parameter in place, under PyTorch's names.

In       a tensor and the rule for its numbers
Out      the same tensor, filled
Changes  the tensor's memory, at once; the random ones, the counter of random numbers, or that of `generator`
Next     layers/ (which rule each layer uses), ops/initial.py (how wide the numbers spread), constant.py
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.nn import constant as constants
from hcq.frontend.ops import initial
from hcq.frontend.ops.arguments import checked
from hcq.frontend.ops.initial import calculate_gain as calculate_gain
from hcq.frontend.ops.initial import kaiming_std, xavier_std
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def _fill(tensor: Tensor, values: Tensor) -> Tensor:
    tensor.assign(values.cast(tensor.dtype))
    tensor.realize()
    return tensor


@checked
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with uniform numbers in [a, b). Returns the tensor, as every function here does.

    generator   a hcq.Generator whose numbers are taken, here and in every function that draws

    >>> w = nn.init.uniform_(Tensor.zeros(1000), -0.5, 0.5)
    >>> -0.5 <= w.min().item(), w.max().item() < 0.5
    (True, True)
    """
    where = {"dtype": tensor.dtype, "device": tensor.device, "generator": generator}
    return _fill(tensor, tensor.uniform(tensor.shape, low=a, high=b, **where))


@checked
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with numbers of the normal distribution.

    >>> w = nn.init.normal_(Tensor.zeros(10000), std=0.02)
    >>> abs(w.std().item() - 0.02) < 0.001
    True
    """
    where = {"dtype": tensor.dtype, "device": tensor.device, "generator": generator}
    return _fill(tensor, tensor.normal(tensor.shape, mean=mean, std=std, **where))


@checked
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Fill with numbers of the normal distribution that lie in [a, b], whatever its mean: no others are drawn.

    Raises  UsageError for bounds that hold nothing, and for a deviation that is not above 0

    >>> w = nn.init.trunc_normal_(Tensor.zeros(1000), std=0.5, a=-0.5, b=1.0)
    >>> -0.5 <= w.min().item(), w.max().item() <= 1.0
    (True, True)
    """
    if not (std > 0.0 and a < b):
        raise UsageError(f"[trunc_normal_] std={std}, a={a}, b={b}: give a deviation above 0, and a below b.")
    low, high = (math.erf((edge - mean) / (std * math.sqrt(2.0))) for edge in (a, b))
    kind = dtypes.float64 if tensor.dtype is dtypes.float64 else dtypes.float32
    shares = tensor.uniform(
        tensor.shape, low=low, high=high, dtype=kind, device=tensor.device, generator=generator
    )
    return _fill(tensor, (shares.erfinv() * (std * math.sqrt(2.0)) + mean).clamp(a, b))


@checked
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number.

    >>> nn.init.constant_(Tensor.zeros(2), 7.0).tolist()
    [7.0, 7.0]
    """
    return _fill(tensor, constants.constant(tensor.shape, val, tensor.dtype, tensor.device))


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
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
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
    return uniform_(tensor, -bound, bound, generator)


@checked
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fill with normal numbers of the deviation of `kaiming_uniform_`.

    >>> w = nn.init.kaiming_normal_(Tensor.zeros(200, 50), nonlinearity="relu")
    >>> abs(w.std().item() - (2 / 50) ** 0.5) < 0.01
    True
    """
    return normal_(tensor, 0.0, kaiming_std(tensor.shape, a, mode, nonlinearity), generator)


@checked
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill a weight (out, in, ...) with uniform numbers that keep the size of signal and gradient alike.

    Source  Glorot and Bengio 2010

    >>> w = nn.init.xavier_uniform_(Tensor.zeros(30, 20))
    >>> w.abs().max().item() <= (6 / 50) ** 0.5
    True
    """
    bound = math.sqrt(3.0) * xavier_std(tensor.shape, gain)
    return uniform_(tensor, -bound, bound, generator)


@checked
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with normal numbers of the deviation of `xavier_uniform_`.

    >>> w = nn.init.xavier_normal_(Tensor.zeros(100, 100))
    >>> abs(w.std().item() - 0.1) < 0.01
    True
    """
    return normal_(tensor, 0.0, xavier_std(tensor.shape, gain), generator)


@checked
def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with `gain` times a random matrix (size of axis 0, all others together) of orthogonal rows, or columns.

    Raises  UsageError for less than two axes
    Source  Saxe et al. 2013

    >>> w = nn.init.orthogonal_(Tensor.zeros(2, 3))
    >>> abs(w @ w.T - Tensor.eye(2)).max().item() < 1e-6
    True
    """
    if tensor.ndim < 2:
        raise UsageError(f"[orthogonal_] shape {tensor.shape}: give two axes or more.")
    if not tensor.numel():
        return tensor
    from hcq.frontend.more.linalg.orthogonal import qr  # heavy, and few models ask for it

    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    kind = dtypes.float64 if tensor.dtype is dtypes.float64 else dtypes.float32
    shape = (max(rows, columns), min(rows, columns))
    drawn = tensor.randn(shape, dtype=kind, device=tensor.device, generator=generator)
    q, r = qr(drawn)
    q = q * r.diagonal().sign()  # so that every rotation is as likely as the next
    return _fill(tensor, ((q if rows >= columns else q.T) * gain).reshape(tensor.shape))


@checked
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with ones on its diagonal and zeros beside it. Raises UsageError for other than two axes.

    >>> nn.init.eye_(Tensor.zeros(2, 3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if tensor.ndim != 2:
        raise UsageError(f"[eye_] shape {tensor.shape}: give a matrix.")
    rows, columns = tensor.shape
    return _fill(tensor, Tensor.eye(rows, columns, device=tensor.device))


@checked
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight (out, in, ...) so that each channel of a group goes through as it is.

    Raises  UsageError for other than one to three axes of space, and for channels that do not divide into groups

    >>> nn.init.dirac_(Tensor.zeros(2, 2, 3)).tolist()
    [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
    """
    if tensor.ndim not in (3, 4, 5):
        raise UsageError(f"[dirac_] shape {tensor.shape}: give the weight of a convolution, of 3 to 5 axes.")
    if groups < 1 or tensor.shape[0] % groups:
        raise UsageError(f"[dirac_] {tensor.shape[0]} channels do not divide into {groups} groups.")
    out, inner, *space = tensor.shape
    places = Tensor.arange(out, device=tensor.device) % (out // groups)
    found = places.reshape(out, 1) == Tensor.arange(inner, device=tensor.device)
    for size in space:
        middle = Tensor.arange(size, device=tensor.device) == size // 2
        found = found.unsqueeze(-1) & middle
    return _fill(tensor, found)


@checked
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix with normal numbers, of which a share in each column, rounded up, is zero.

    Raises  UsageError for other than two axes, and for a share that is not from 0 to 1
    Source  Martens 2010

    >>> nn.init.sparse_(Tensor.zeros(10, 3), 0.25).count_nonzero(0).tolist()
    [7, 7, 7]
    """
    if tensor.ndim != 2 or not 0.0 <= sparsity <= 1.0:
        raise UsageError(f"[sparse_] shape {tensor.shape}, sparsity={sparsity}: give a matrix and a share.")
    keys = tensor.rand(tensor.shape, device=tensor.device, generator=generator)
    is_kept = keys.argsort(0).argsort(0) >= math.ceil(sparsity * tensor.shape[0])
    normal_(tensor, 0.0, std, generator)
    return _fill(tensor, is_kept.where(tensor.detach(), 0.0))


# PyTorch's older names, without the underscore
_OLDER = (
    "uniform normal constant eye dirac xavier_uniform xavier_normal kaiming_uniform kaiming_normal orthogonal sparse"
).split()


def _older(name: str, *args: Any, **kwargs: Any) -> Tensor:
    warnings.warn(f"nn.init.{name} is now called nn.init.{name}_.", FutureWarning, stacklevel=2)
    found: Tensor = globals()[f"{name}_"](*args, **kwargs)
    return found


def __getattr__(name: str) -> Callable[..., Tensor]:
    if name in _OLDER:
        return partial(_older, name)
    raise AttributeError(f"[nn.init] it has no function {name!r}.")


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """PyTorch's private name, which libraries of models use."""
    return initial.fan_in_and_fan_out(tensor.shape)
