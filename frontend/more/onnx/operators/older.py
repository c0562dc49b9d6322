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
from hcq.frontend.more.onnx.operators.image import upsample_by_attribute
from hcq.frontend.more.onnx.operators.product import gemm
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor

TWO: dict[str, tuple[int, Callable[[Tensor, Tensor], Any]]] = {
    "Add": (6, math.add), "Sub": (6, math.sub), "Mul": (6, math.mul), "Div": (6, math.div), "Pow": (1, math.power),
    "And": (1, logic.logical_and), "Or": (1, logic.logical_or), "Xor": (1, logic.logical_xor),
    "Equal": (1, logic.equal), "Greater": (1, logic.greater), "Less": (1, logic.less),
}  # fmt: skip


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


for _op, (_since, _act) in TWO.items():
    _declare(_op, _since, _act)


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
    scales = [1.0, 1.0, height_scale, width_scale]
    return upsample_by_attribute(x, scales=scales, mode="linear" if mode == "bilinear" else mode, call=call)


@operator("RNN", since=1, attributes_of=rnn.rnn)
def rnn_of_1(*inputs: Any, output_sequence: int = 0, **attributes: Any) -> Any:
    """output_sequence says whether the first output is there; which outputs a node names says that, too."""
    return rnn.rnn(*inputs, **attributes)


@operator("GRU", since=3, attributes_of=rnn.gru)
def gru_of_3(*inputs: Any, output_sequence: int = 0, **attributes: Any) -> Any:
    """As of version 7, with output_sequence."""
    return rnn.gru(*inputs, **attributes)


@operator("LSTM", since=1, attributes_of=rnn.lstm)
def lstm_of_1(*inputs: Any, output_sequence: int = 0, **attributes: Any) -> Any:
    """As of version 7, with output_sequence."""
    return rnn.lstm(*inputs, **attributes)
