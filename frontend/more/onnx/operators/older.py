"""Older forms: operators as operator set 6 has them, which PyTorch and Caffe2 exported until 2018.

In       tensors
Out      tensors
Changes  table.py's table
Next     math.py, logic.py, product.py, norm.py, rnn.py (the same operators from version 7 on)
Source   ONNX's Changelog.md: version 7 brought NumPy's rules of broadcasting, and took is_test out of layers

Before 7 the shapes of two operands are equal, unless broadcast=1 says that the second one's shape is a run of axes of
the first one's: the last ones, or those from `axis` on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.operators import logic, math, norm, rnn
from hcq.frontend.more.onnx.operators.image import OF_10, resize
from hcq.frontend.more.onnx.operators.product import gemm
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor

# from which version on -> operators of two operands
TWO = {6: ("Add", "Sub", "Mul", "Div"), 1: ("Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")}


def beside(a: Tensor, b: Tensor, broadcast: int, axis: int | None) -> Tensor:
    """The second operand, with axes of one element where the first one has further ones."""
    if not broadcast:
        if a.shape != b.shape:
            raise UsageError(f"shapes {a.shape} and {b.shape} differ, and broadcast is 0")
        return b
    if b.numel() == 1:
        return b.reshape(*[1] * a.ndim)
    begin = a.ndim - b.ndim if axis is None else axis + a.ndim * (axis < 0)
    behind = a.ndim - begin - b.ndim
    fits = begin >= 0 and behind >= 0 and all(n in (m, 1) for m, n in zip(a.shape[begin:], b.shape))
    if not fits:
        where = "the last axes" if axis is None else f"axes from {axis} on"
        raise UsageError(f"shape {b.shape} does not stand beside {where} of {a.shape}")
    return b.reshape(*b.shape, *[1] * behind)


def _declare(op: str, since: int, act: Callable[[Tensor, Tensor], Any]) -> None:
    @operator(op, since=since)
    def two(a: Tensor, b: Tensor, *, broadcast: int = 0, axis: int | None = None) -> Any:
        return act(a, beside(a, b, broadcast, axis))


for _since, _names in TWO.items():
    for _op in _names:
        _declare(_op, _since, {**math.ARITHMETIC, **logic.LOGIC}[_op][1])


@operator("Gemm", since=6, attributes_of=gemm)
def gemm_of_6(a: Tensor, b: Tensor, c: Tensor, *, broadcast: int = 0, **attributes: Any) -> Any:
    """What is added has the product's shape, unless broadcast is 1."""
    product = gemm(a, b, **{**attributes, "beta": 1.0})
    return product + beside(product, c, broadcast, None) * attributes.get("beta", 1.0)


@operator("PRelu", since=6)
def prelu_of_6(x: Tensor, slope: Tensor) -> Any:
    """One slope, or one for each channel."""
    return (x < 0).where(x * (slope if slope.numel() == 1 else norm.per_channel(slope, x)), x)


@operator("BatchNormalization", since=6)
def batch_normalization_of_6(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    is_test: int = 0,
    spatial: int = 1,
) -> Any:
    """In training, which is what is_test=0 says, with the batch's own numbers, which are outputs, too."""
    if is_test:
        return norm.batch_normalization_of_7(x, scale, bias, mean, var, epsilon=epsilon, spatial=spatial)
    if not spatial:
        raise UsageError("training with spatial=0 is not computed: set is_test=1, or spatial=1")
    found, *running = norm.batch_normalization(
        x, scale, bias, mean, var, epsilon=epsilon, momentum=momentum, training_mode=1
    )
    axes = (0, *range(2, x.ndim))
    return found, *running, x.mean(axes), x.var(axes, correction=0)


@operator("Dropout", since=6)
def dropout_of_6(x: Tensor, *, ratio: float = 0.5, is_test: int = 0, call: Any) -> Any:
    """In training, which is what is_test=0 says, elements are zeroed at random. And which are kept."""
    found, kept = norm.dropout(x, ratio, not is_test, call=call)
    return found, kept.cast(x.dtype)


@operator("Upsample", since=1)
def upsample_by_two_numbers(
    x: Tensor, *, height_scale: float, width_scale: float, mode: str = "nearest", call: Any
) -> Any:
    """Of images, (batch, channels, height, width)."""
    scales, mode = [1.0, 1.0, height_scale, width_scale], "linear" if mode == "bilinear" else mode
    return resize(x, scales=scales, mode=mode, **OF_10, call=call)


def _declare_recurrent(op: str, since: int, layer: Callable[..., Any]) -> None:
    @operator(op, since=since, attributes_of=layer, cells=rnn.Cells)
    def recurrent(*inputs: Any, output_sequence: int = 0, **attributes: Any) -> Any:
        """output_sequence says whether the first output is there; which outputs a node names says that, too."""
        return layer(*inputs, **attributes)


for _op, _since, _layer in (("RNN", 1, rnn.rnn), ("GRU", 3, rnn.gru), ("LSTM", 1, rnn.lstm)):
    _declare_recurrent(_op, _since, _layer)
