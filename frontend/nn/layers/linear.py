"""Linear layers: products with a matrix of parameters.

In       sizes, then tensors
Out      `Linear`, `Bilinear`, `Identity`
Next     convolution.py
"""

from __future__ import annotations

import math
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.nn import init
from hcq.frontend.nn.layers.sizes import drawn, positive
from hcq.frontend.nn.module import Module
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType


class Identity(Module):
    """The value itself, whatever it is made with.

    >>> nn.Identity(54, unused=True)(Tensor([1.0])).tolist()
    [1.0]
    """

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def forward(self, x: Any) -> Any:
        """x itself, whatever it is."""
        return x


class Linear(Module):
    """y = x @ weight.T + bias. (..., in_features) -> (..., out_features); weight is (out, in), bias (out,).

    Both start uniform within 1 / sqrt(in_features), as PyTorch's do. Raises UsageError for sizes below 1.

    >>> nn.Linear(3, 2)(Tensor.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        positive("Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        bound = 1.0 / math.sqrt(in_features)
        self.weight = drawn((out_features, in_features), bound, dtype, device)
        self.bias = drawn((out_features,), bound, dtype, device) if bias else None

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -1.0 / math.sqrt(self.in_features), 1.0 / math.sqrt(self.in_features))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return x.linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class Bilinear(Module):
    """y[k] = x1 @ weight[k] @ x2 + bias[k]. (..., in1) and (..., in2) -> (..., out); weight is (out, in1, in2).

    >>> nn.Bilinear(3, 4, 5)(Tensor.zeros(2, 3), Tensor.zeros(2, 4)).shape
    (2, 5)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        positive("Bilinear", in1_features=in1_features, in2_features=in2_features, out_features=out_features)
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        bound = 1.0 / math.sqrt(in1_features)
        self.weight = drawn((out_features, in1_features, in2_features), bound, dtype, device)
        self.bias = drawn((out_features,), bound, dtype, device) if bias else None

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """(..., in1_features), (..., in2_features) -> (..., out_features). Raises UsageError for other sizes."""
        if x1.shape[-1:] != (self.in1_features,) or x2.shape[:-1] + (self.in2_features,) != (
            *x1.shape[:-1],
            x2.shape[-1] if x2.ndim else -1,
        ):
            raise UsageError(
                f"[Bilinear] {x1.shape} and {x2.shape}: give (..., {self.in1_features}) and (..., {self.in2_features})."
            )
        product = (x1.unsqueeze(-2).unsqueeze(-2) @ self.weight).squeeze(-2)
        result = (product * x2.unsqueeze(-2)).sum(-1)
        return result if self.bias is None else result + self.bias

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
