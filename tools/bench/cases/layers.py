"""The layers of the benchmark's networks in NumPy and JAX, by the names that PyTorch and hcq give theirs.

In       sizes, as PyTorch's layers take them
Out      `NUMPY`, which computes in float64 what a result should be; `jax_layers()`, whose networks XLA compiles
Next     networks.py (networks of these), inference.py

A layer here keeps no memory of what it did: it has arrays by name (`parts`) and computes. Under JAX the arrays are
replaced by traced ones before the network is called, see `with_parts`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

Parts = list[dict[str, Any]]  # of each layer, its arrays by name


class _Layer:
    """A layer with a weight and, where it has one, a bias; norms have what they saw in training, too."""

    parts: tuple[str, ...] = ("weight", "bias")  # what training moves
    training = True

    def __init__(self, *shape: int, bias: bool = True):
        import numpy

        self.weight: Any = numpy.ones(shape, "float32")
        self.bias: Any = numpy.zeros(shape[:1], "float32") if bias else None

    def __call__(self, x: Any) -> Any:
        raise NotImplementedError

    def eval(self) -> None:
        """From now on as in use, not as in training."""
        self.training = False


def parts_of(layers: Sequence[Any]) -> Parts:
    """The arrays of layers, by layer and name."""
    return [
        {name: getattr(layer, name) for name in layer.parts if getattr(layer, name) is not None}
        for layer in layers
    ]


def with_parts(layers: Sequence[Any], parts: Parts) -> None:
    """Give layers these arrays."""
    for layer, arrays in zip(layers, parts, strict=True):
        for name, array in arrays.items():
            setattr(layer, name, array)


class _Linear(_Layer):
    def __init__(self, into: int, out: int, bias: bool = True):
        super().__init__(out, into, bias=bias)

    def __call__(self, x: Any) -> Any:
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class _Norm(_Layer):
    """(x - mean) / sqrt(variance + eps) * weight + bias, over some axes."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]  # of weight and bias where they are applied

    def __call__(self, x: Any) -> Any:
        x = x - x.mean(self.axes, keepdims=True)
        x = x / ((x * x).mean(self.axes, keepdims=True) + 1e-5) ** 0.5
        return x * self.weight.reshape(self.shape) + self.bias.reshape(self.shape)


class _LayerNorm(_Norm):
    axes, shape = (-1,), (-1,)


class _BatchNorm2d(_Norm):
    axes, shape = (0, 2, 3), (-1, 1, 1)

    def __init__(self, channels: int):
        import numpy

        super().__init__(channels)
        self.running_mean, self.running_var = (
            numpy.zeros(channels, "float32"),
            numpy.ones(channels, "float32"),
        )

    def __call__(self, x: Any) -> Any:
        if self.training:
            return super().__call__(x)
        scale = self.weight / (self.running_var + 1e-5) ** 0.5
        return x * scale.reshape(self.shape) + (self.bias - self.running_mean * scale).reshape(self.shape)

    def eval(self) -> None:
        super().eval()
        self.parts = ("weight", "bias", "running_mean", "running_var")


class _Windowed(_Layer):
    """A convolution's sizes."""

    def __init__(
        self, into: int, out: int, window: int, stride: int = 1, padding: int = 0, bias: bool = True
    ):
        super().__init__(out, into, window, window, bias=bias)
        self.window, self.stride, self.padding = window, stride, padding

    def __call__(self, x: Any) -> Any:
        y = self.convolve(x)
        return y if self.bias is None else y + self.bias.reshape(-1, 1, 1)

    def convolve(self, x: Any) -> Any:
        """The convolution without its bias."""
        raise NotImplementedError


class _Pool:
    """The greatest of each window."""

    def __init__(self, window: int, stride: int | None = None, padding: int = 0):
        self.window, self.stride, self.padding = window, stride or window, padding

    def __call__(self, x: Any) -> Any:
        raise NotImplementedError


# -- NumPy -------------------------------------------------------------------------------------------------------------


class _NumpyConv2d(_Windowed):
    def convolve(self, x: Any) -> Any:
        import numpy

        windows = _windows(x, self.window, self.stride, self.padding, 0.0)
        return numpy.tensordot(self.weight, windows, ((1, 2, 3), (1, 4, 5))).swapaxes(0, 1)


class _NumpyMaxPool2d(_Pool):
    def __call__(self, x: Any) -> Any:
        return _windows(x, self.window, self.stride, self.padding, float("-inf")).max((4, 5))


def _windows(x: Any, window: int, stride: int, padding: int, around: float) -> Any:
    """(n, c, h, w) -> (n, c, h', w', window, window)."""
    import numpy

    x = numpy.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=around)
    return numpy.lib.stride_tricks.sliding_window_view(x, (window, window), axis=(2, 3))[
        :, :, ::stride, ::stride
    ]


def softmax(x: Any) -> Any:
    """Over the last axis, in NumPy."""
    import numpy

    x = numpy.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def _cross_entropy(y: Any, wanted: Any) -> Any:
    import numpy

    return -numpy.log(softmax(y)[numpy.arange(len(y)), wanted]).mean()


NUMPY = SimpleNamespace(
    Linear=_Linear,
    Conv2d=_NumpyConv2d,
    MaxPool2d=_NumpyMaxPool2d,
    BatchNorm2d=_BatchNorm2d,
    LayerNorm=_LayerNorm,
    ReLU=lambda: lambda x: x.clip(0),
    Softmax=lambda axis: softmax,
    CrossEntropyLoss=lambda: _cross_entropy,
)


# -- JAX ---------------------------------------------------------------------------------------------------------------


class _JaxConv2d(_Windowed):
    def convolve(self, x: Any) -> Any:
        from jax import lax

        return lax.conv_general_dilated(x, self.weight, (self.stride,) * 2, ((self.padding,) * 2,) * 2)


class _JaxMaxPool2d(_Pool):
    def __call__(self, x: Any) -> Any:
        from jax import lax

        window, stride, padding = (self.window,) * 2, (self.stride,) * 2, ((self.padding,) * 2,) * 2
        outside = ((0, 0), (0, 0))
        return lax.reduce_window(
            x, -float("inf"), lax.max, (1, 1, *window), (1, 1, *stride), (*outside, *padding)
        )


class _Sgd:
    """The steps of SGD with momentum, on trees of arrays."""

    def __init__(self, parameters: Parts, lr: float, momentum: float = 0.0):
        import jax

        self.lr, self.momentum = lr, momentum
        self.state: Any = jax.tree.map(jax.numpy.zeros_like, parameters) if momentum else ()

    def step(self, parameters: Parts, slopes: Parts, state: Any) -> tuple[Parts, Any]:
        """Parameters and state after a step down these slopes."""
        import jax

        if self.momentum:
            state = slopes = jax.tree.map(lambda v, g: self.momentum * v + g, state, slopes)
        return jax.tree.map(lambda p, g: p - self.lr * g, parameters, slopes), state


class _Adam:
    """The steps of Adam, on trees of arrays."""

    def __init__(self, parameters: Parts, lr: float):
        import jax

        first, second = (jax.tree.map(jax.numpy.zeros_like, parameters) for _ in range(2))
        self.lr = lr
        self.state: Any = (jax.numpy.zeros(()), first, second)

    def step(self, parameters: Parts, slopes: Parts, state: Any) -> tuple[Parts, Any]:
        """Parameters and state after a step down these slopes."""
        import jax

        count, first, second = state
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slopes)
        rate, spread = self.lr / (1 - 0.9**count), 1 - 0.999**count

        def moved(p: Any, m: Any, v: Any) -> Any:
            return p - rate * m / (jax.numpy.sqrt(v / spread) + 1e-8)

        return jax.tree.map(moved, parameters, first, second), (count, first, second)


@functools.cache
def jax_layers() -> Any:
    """JAX's layers, losses and optimizers; JAX is imported now, for a process that uses another library has none."""
    import jax

    def cross_entropy(y: Any, wanted: Any) -> Any:
        return -jax.numpy.take_along_axis(jax.nn.log_softmax(y), wanted[:, None], 1).mean()

    return SimpleNamespace(
        Linear=_Linear,
        Conv2d=_JaxConv2d,
        MaxPool2d=_JaxMaxPool2d,
        BatchNorm2d=_BatchNorm2d,
        LayerNorm=_LayerNorm,
        ReLU=lambda: jax.nn.relu,
        Softmax=lambda axis: jax.nn.softmax,
        CrossEntropyLoss=lambda: cross_entropy,
        optim=SimpleNamespace(SGD=_Sgd, Adam=_Adam),
    )
