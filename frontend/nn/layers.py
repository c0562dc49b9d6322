"""Layers: the modules that most models are made of, with PyTorch's arguments and initial values.

In       sizes, then tensors
Out      `Linear`, `Conv2d`, `Embedding`, `Dropout`, pooling, and the activations as modules
Changes  nothing; a new layer's parameters are drawn at once
Next     norm.py (layers with running statistics), module.py (what a module is), init.py (where parameters start)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.nn.functional import dropout
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType
from hcq.ir.node import Shape


def _drawn(shape: Shape, bound: float, dtype: DType | None, device: str | None) -> Tensor:
    """A parameter that starts uniform in [-bound, bound)."""
    return Tensor.uniform(shape, low=-bound, high=bound, dtype=dtype, device=device, requires_grad=True)


def _pair(call: str, name: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or any(not isinstance(size, int) or size < least for size in pair):
        raise UsageError(f"[{call}] {name} {value!r}: give an int or two, {least} or more.")
    return pair[0], pair[1]


def _positive(call: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise UsageError(f"[{call}] {name} {size!r}: give an int, 1 or more.")


class Linear(Module):
    """y = x @ weight.T + bias. (..., in_features) -> (..., out_features); weight is (out, in), bias (out,).

    Both start uniform within 1 / sqrt(in_features), as PyTorch's do. Raises UsageError for sizes below 1.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        _positive("Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        bound = 1.0 / math.sqrt(in_features)
        self.weight = _drawn((out_features, in_features), bound, dtype, device)
        self.bias = _drawn((out_features,), bound, dtype, device) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return x.linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class Conv2d(Module):
    """A 2-D convolution. (n, in_channels, h, w) -> (n, out_channels, h', w'); weight is (out, in / groups, kh, kw).

    padding   zeros on both sides, or "same" (stride 1), or "valid"
    Raises    UsageError for sizes below 1, and for channels that do not divide into the groups
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        _positive("Conv2d", in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise UsageError(
                f"[Conv2d] {in_channels} in and {out_channels} out channels: both must divide into {groups} groups."
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = _pair("Conv2d", "kernel_size", kernel_size, 1)
        self.stride = _pair("Conv2d", "stride", stride, 1)
        self.dilation = _pair("Conv2d", "dilation", dilation, 1)
        self.padding = padding if isinstance(padding, str) else _pair("Conv2d", "padding", padding, 0)
        bound = 1.0 / math.sqrt(in_channels // groups * math.prod(self.kernel_size))
        self.weight = _drawn((out_channels, in_channels // groups, *self.kernel_size), bound, dtype, device)
        self.bias = _drawn((out_channels,), bound, dtype, device) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(n, in_channels, h, w) -> (n, out_channels, h', w'), sizes as in Tensor.conv2d; n may be left out."""
        return x.conv2d(self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding}, dilation={self.dilation}, groups={self.groups}, bias={self.bias is not None}"
        )


class Embedding(Module):
    """A table of vectors: integers (...) -> (..., embedding_dim). It starts with normal numbers.

    padding_idx   a row that starts as zeros and is not trained
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        _positive("Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise UsageError(
                    f"[Embedding] padding_idx {padding_idx}: the table has rows 0 to {num_embeddings - 1}."
                )
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.weight = Tensor.randn((num_embeddings, embedding_dim), dtype=dtype, device=device)
        if padding_idx is not None:
            rows = Tensor.arange(num_embeddings, device=self.weight.device).reshape(num_embeddings, 1)
            self.weight = (rows != padding_idx).where(self.weight, 0.0).contiguous().realize()
        self.weight.requires_grad_()

    def forward(self, index: Tensor) -> Tensor:
        """Integers (...) -> (..., embedding_dim). An index beyond the table reads zeros."""
        rows = index.embedding(self.weight)
        if self.padding_idx is None:
            return rows
        # the padding row is read, and never trained
        return (index != self.padding_idx).unsqueeze(-1).where(rows, rows.detach())

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Dropout(Module):
    """In training, each element becomes zero with probability p and the others grow by 1 / (1 - p).

    Source  Srivastava et al. 2014
    """

    def __init__(self, p: float = 0.5):
        if not 0.0 <= p <= 1.0:
            raise UsageError(f"[Dropout] p {p}: a probability is between 0 and 1.")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; in evaluation, x itself."""
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class MaxPool2d(Module):
    """The largest element of each window of the last two axes; stride is the kernel's size unless given."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
    ):
        self.kernel_size = _pair("MaxPool2d", "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else _pair("MaxPool2d", "stride", stride, 1)
        self.padding = _pair("MaxPool2d", "padding", padding, 0)
        self.dilation = _pair("MaxPool2d", "dilation", dilation, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(..., h, w) -> (..., h', w'), sizes as in Tensor.max_pool2d."""
        return x.max_pool2d(self.kernel_size, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The mean of each window of the last two axes; padding counts as zeros; stride is kernel_size unless given."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
    ):
        self.kernel_size = _pair("AvgPool2d", "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else _pair("AvgPool2d", "stride", stride, 1)
        self.padding = _pair("AvgPool2d", "padding", padding, 0)

    def forward(self, x: Tensor) -> Tensor:
        """(..., h, w) -> (..., h', w'), sizes as in Tensor.avg_pool2d."""
        return x.avg_pool2d(self.kernel_size, self.stride, self.padding)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class Flatten(Module):
    """The axes start_dim to end_dim (inclusive) become one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """(n, c, h, w) -> (n, c * h * w), unless other axes are given."""
        return x.flatten(self.start_dim, self.end_dim)


class Identity(Module):
    """The value itself."""

    def forward(self, x: Any) -> Any:
        """x itself, whatever it is."""
        return x


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; see Tensor.relu."""
        return x.relu()


class LeakyReLU(Module):
    """x above zero, negative_slope * x below."""

    def __init__(self, negative_slope: float = 0.01):
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; see Tensor.leaky_relu."""
        return x.leaky_relu(self.negative_slope)


class GELU(Module):
    """x times the normal distribution's cumulative function; approximate="tanh" for the older formula."""

    def __init__(self, approximate: str = "none"):
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; see Tensor.gelu."""
        return x.gelu(self.approximate)


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; see Tensor.silu."""
        return x.silu()


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; see Tensor.sigmoid."""
        return x.sigmoid()


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; see Tensor.tanh."""
        return x.tanh()


class Softmax(Module):
    """Positive numbers that sum to 1 along `dim`."""

    def __init__(self, dim: int = -1):
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """The same shape; see Tensor.softmax."""
        return x.softmax(self.dim)
