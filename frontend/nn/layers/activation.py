"""Activations as modules: functions of each element, or along one axis.

In       their options, then tensors
Out      the same shape, except where a docstring says otherwise
Changes  with `inplace`, the tensor that they are given, as in PyTorch
Next     ops/activation.py, ops/gates.py (what they compute)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.nn.functional_random import rrelu
from hcq.frontend.nn.layers.sizes import even
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType


class _Activation(Module):
    """A method of Tensor, with options that are attributes of the module."""

    method = ""
    options: tuple[str, ...] = ()  # in the order of the method's arguments
    shown: tuple[str, ...] | None = None  # by value alone, where PyTorch prints no names
    inplace = False
    shows_inplace = True

    def forward(self, x: Tensor) -> Tensor:
        """Of the same shape, unless the class says otherwise; see the method of Tensor."""
        y = getattr(x, self.method)(*[getattr(self, option) for option in self.options])
        return x._written(f"{self.method}_", y) if self.inplace else y  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        parts = [f"{option}={getattr(self, option)}" for option in self.options]
        if self.shown is not None:
            parts = [str(getattr(self, option)) for option in self.shown]
        return ", ".join([*parts, "inplace=True"] if self.inplace and self.shows_inplace else parts)


class _InPlace(_Activation):
    """One whose only option is PyTorch's `inplace`."""

    def __init__(self, inplace: bool = False):
        self.inplace = inplace


class ReLU(_InPlace):
    """max(x, 0).

    >>> nn.ReLU()(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    method = "relu"


class ReLU6(_InPlace):
    """x held between 0 and 6.

    >>> nn.ReLU6()(Tensor([-1.0, 3.0, 8.0])).tolist()
    [0.0, 3.0, 6.0]
    """

    method = "relu6"


class SELU(_InPlace):
    """The exponential unit that keeps mean 0 and deviation 1.

    >>> print(nn.SELU()(Tensor([-1.0, 1.0])))
    tensor([-1.1113,  1.0507])
    """

    method = "selu"


class SiLU(_InPlace):
    """x * sigmoid(x).

    >>> print(nn.SiLU()(Tensor([-1.0, 1.0])))
    tensor([-0.2689,  0.7311])
    """

    method = "silu"


class Mish(_InPlace):
    """x * tanh(softplus(x)).

    >>> print(nn.Mish()(Tensor([-1.0, 1.0])))
    tensor([-0.3034,  0.8651])
    """

    method = "mish"


class Hardsigmoid(_InPlace):
    """x / 6 + 1 / 2, held between 0 and 1.

    >>> nn.Hardsigmoid()(Tensor([-4.0, 0.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """

    method = "hardsigmoid"
    shows_inplace = False


class Hardswish(_InPlace):
    """x * hardsigmoid(x).

    >>> nn.Hardswish()(Tensor([-4.0, -3.0, 4.0])).tolist()
    [-0.0, -0.0, 4.0]
    """

    method = "hardswish"
    shows_inplace = False


class Sigmoid(_Activation):
    """1 / (1 + exp(-x)).

    >>> nn.Sigmoid()(Tensor([-1000.0, 0.0])).tolist()
    [0.0, 0.5]
    """

    method = "sigmoid"


class LogSigmoid(_Activation):
    """log(sigmoid(x)).

    >>> nn.LogSigmoid()(Tensor([-1000.0])).tolist()
    [-1000.0]
    """

    method = "logsigmoid"


class Tanh(_Activation):
    """The hyperbolic tangent.

    >>> print(nn.Tanh()(Tensor([-100.0, 0.5])))
    tensor([-1.0000,  0.4621])
    """

    method = "tanh"


class Softsign(_Activation):
    """x / (1 + abs(x)).

    >>> nn.Softsign()(Tensor([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """

    method = "softsign"


class Tanhshrink(_Activation):
    """x - tanh(x).

    >>> print(nn.Tanhshrink()(Tensor([0.0, 2.0])))
    tensor([0.0000, 1.0360])
    """

    method = "tanhshrink"


class LeakyReLU(_Activation):
    """x above zero, negative_slope * x below.

    >>> nn.LeakyReLU(0.5)(Tensor([-4.0, 2.0])).tolist()
    [-2.0, 2.0]
    """

    method, options = "leaky_relu", ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        self.negative_slope, self.inplace = negative_slope, inplace


class ELU(_Activation):
    """x above zero, alpha * (exp(x) - 1) below.

    >>> print(nn.ELU()(Tensor([-1.0, 2.0])))
    tensor([-0.6321,  2.0000])
    """

    method, options = "elu", ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        self.alpha, self.inplace = alpha, inplace


class CELU(_Activation):
    """x above zero, alpha * (exp(x / alpha) - 1) below.

    >>> print(nn.CELU(alpha=2.0)(Tensor([-1.0, 2.0])))
    tensor([-0.7869,  2.0000])
    """

    method, options = "celu", ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        self.alpha, self.inplace = alpha, inplace


class GELU(_Activation):
    """x times the normal distribution's cumulative function; approximate="tanh" for the older formula.

    >>> print(nn.GELU()(Tensor([1.0])), nn.GELU("tanh")(Tensor([1.0])))
    tensor([0.8413]) tensor([0.8412])
    """

    method, options = "gelu", ("approximate",)

    def __init__(self, approximate: str = "none"):
        self.approximate = approximate

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Hardtanh(_Activation):
    """x held between min_val and max_val.

    >>> nn.Hardtanh(-2.0, 2.0)(Tensor([-3.0, 1.0])).tolist()
    [-2.0, 1.0]
    """

    method, options = "hardtanh", ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace


class Softplus(_Activation):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above threshold.

    >>> print(nn.Softplus()(Tensor([0.0, 30.0])))
    tensor([ 0.6931, 30.0000])
    """

    method, options = "softplus", ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        self.beta, self.threshold = beta, threshold


class Hardshrink(_Activation):
    """x where it is further from zero than lambd, else zero.

    >>> nn.Hardshrink()(Tensor([-1.0, 0.5, 2.0])).tolist()
    [-1.0, 0.0, 2.0]
    """

    method, options, shown = "hardshrink", ("lambd",), ("lambd",)

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd


class Softshrink(_Activation):
    """x moved towards zero by lambd.

    >>> nn.Softshrink(0.5)(Tensor([-1.0, 0.25, 2.0])).tolist()
    [-0.5, 0.0, 1.5]
    """

    method, options, shown = "softshrink", ("lambd",), ("lambd",)

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd


class Threshold(_Activation):
    """x where it is above threshold, else value.

    >>> nn.Threshold(2.0, -1.0)(Tensor([1.0, 2.0, 3.0])).tolist()
    [-1.0, -1.0, 3.0]
    """

    method, options = "threshold", ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        self.threshold, self.value, self.inplace = threshold, value, inplace


class GLU(_Activation):
    """The first half along dim, times the sigmoid of the second: dim is half as large.

    >>> nn.GLU()(Tensor([[1.0, 2.0, 0.0, 0.0]])).tolist()
    [[0.5, 1.0]]
    """

    method, options = "glu", ("dim",)

    def __init__(self, dim: int = -1):
        self.dim = dim


class Softmax(_Activation):
    """Positive numbers that sum to 1 along `dim`.

    >>> print(nn.Softmax(-1)(Tensor([[0.0, 1.0], [1000.0, 1000.0]])))
    tensor([[0.2689, 0.7311],
            [0.5000, 0.5000]])
    """

    method, options = "softmax", ("dim",)

    def __init__(self, dim: int = -1):
        self.dim = dim


class Softmin(Softmax):
    """Softmax of -x.

    >>> print(nn.Softmin(-1)(Tensor([0.0, 1.0])))
    tensor([0.7311, 0.2689])
    """

    method = "softmin"


class LogSoftmax(Softmax):
    """The logarithm of softmax.

    >>> print(nn.LogSoftmax(-1)(Tensor([0.0, 1000.0])))
    tensor([-1000.,     0.])
    """

    method = "log_softmax"


class Softmax2d(Module):
    """Softmax over the channels of (n, channels, h, w); n may be left out.

    >>> nn.Softmax2d()(Tensor.zeros(4, 1, 1)).flatten().tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x.softmax(-3)


class PReLU(Module):
    """x above zero, weight * x below; the weight is trained: one number, or one for each channel (axis 1).

    >>> nn.PReLU()(Tensor([2.0, -2.0])).tolist()
    [2.0, -0.5]
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.num_parameters, self.init = num_parameters, init
        self.weight = even((num_parameters,), init, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; see Tensor.prelu."""
        return x.prelu(self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """x above zero; below, x times a number drawn between lower and upper, in evaluation their mean.

    >>> nn.RReLU(0.25, 0.75).eval()(Tensor([-8.0, 8.0])).tolist()
    [-4.0, 8.0]
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False):
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, x: Tensor) -> Any:
        """The same shape."""
        return rrelu(x, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")
