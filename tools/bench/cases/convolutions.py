"""Benchmark cases of convolutions, forward, and backward to the gradients of input and weight.

In       see case.py
Out      cases; `CONVOLUTION_CASES` lists them
Next     training.py (the list of all), frontend/rewrites/gaps.py (what makes gradients fast)
"""

from __future__ import annotations

from typing import Any, ClassVar

from hcq.tools.bench.cases.case import Alike, Arrays, Case, Run, _hcq, _jax, _random


class Conv(Alike):
    name = "conv3x3"
    about = "3x3 convolution, batch 8, 64 to 64 channels, 56 x 56, padding 1"
    unit = "GFLOP/s"
    ceiling = "fma"
    shapes = ((8, 64, 56, 56), (64, 64, 3, 3))
    amount = 2 * 8 * 64 * 64 * 56 * 56 * 9 / 1e9

    def work(self, x: Any, w: Any) -> Any:
        return x.conv2d(w, padding=1)

    def in_numpy(self, x: Any, w: Any) -> Any:
        return _convolve(x, w)

    def in_torch(self, x: Any, w: Any) -> Any:
        import torch

        return torch.nn.functional.conv2d(x, w, padding=1)

    def in_jax(self, x: Any, w: Any) -> Any:
        import jax

        return jax.lax.conv(x, w, (1, 1), "SAME")


DeepConv = Conv.like(
    "conv3x3-256",
    "3x3 convolution, batch 8, 256 to 256 channels, 14 x 14, padding 1",
    shapes=((8, 256, 14, 14), (256, 256, 3, 3)),
    amount=2 * 8 * 256 * 256 * 14 * 14 * 9 / 1e9,
)


def _convolve(x: Any, w: Any) -> Any:
    """Convolution with padding 1 as one matrix product over unfolded windows, NumPy's best."""
    import numpy

    n, _, height, width = x.shape
    padded = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    unfolded = windows.transpose(1, 4, 5, 0, 2, 3).reshape(w[0].size, n * height * width)
    return (w.reshape(len(w), -1) @ unfolded).reshape(len(w), n, height, width).transpose(1, 0, 2, 3)


class _Both:
    """Two results of one run, as one array for the check."""

    def __init__(self, results: Any):
        self.results = results

    def numpy(self) -> Any:
        import numpy

        return numpy.concatenate([numpy.asarray(result).ravel() for result in self.results])


class ConvBackward(Case):
    unit = "GFLOP/s"
    ceiling = "fma"
    batch: ClassVar[int] = 8
    channels: ClassVar[tuple[int, int]]  # in, out
    size: ClassVar[int]
    window: ClassVar[int]
    stride: ClassVar[int]

    def __init__(self) -> None:
        self.padding = self.window // 2
        self.places = (self.size + 2 * self.padding - self.window) // self.stride + 1
        into, out = self.channels
        self.amount = 4 * self.batch * into * out * self.places**2 * self.window**2 / 1e9

    def inputs(self) -> Arrays:
        into, out = self.channels
        return {
            "x": _random(self.batch, into, self.size, self.size),
            "w": _random(out, into, self.window, self.window),
            "g": _random(self.batch, out, self.places, self.places),
        }

    def expected(self, inputs: Arrays) -> Any:
        """Place by place of the window: g times w is added to what x it was computed from, g times x to w."""
        import numpy

        x, w, g = (inputs[name].astype("float64") for name in "xwg")
        around = ((0, 0), (0, 0), (self.padding,) * 2, (self.padding,) * 2)
        x = numpy.pad(x, around)
        dx, dw = numpy.zeros_like(x), numpy.zeros_like(w)
        reach = self.stride * (self.places - 1) + 1
        for row in range(self.window):
            for column in range(self.window):
                rows = slice(row, row + reach, self.stride)
                columns = slice(column, column + reach, self.stride)
                dx[:, :, rows, columns] += numpy.tensordot(g, w[:, :, row, column], (1, 0)).transpose(
                    0, 3, 1, 2
                )
                dw[:, :, row, column] = numpy.tensordot(g, x[:, :, rows, columns], ((0, 2, 3), (0, 2, 3)))
        inside = slice(self.padding, self.padding + self.size)
        return numpy.concatenate([dx[:, :, inside, inside].ravel(), dw.ravel()])

    def hcq(self, inputs: Arrays) -> Run:
        """Both gradients, recorded by our jit."""
        from hcq import Tensor
        from hcq.frontend.grad.gradient import grad

        def backward(x: Any, w: Any, g: Any) -> Any:
            y = x.conv2d(w, stride=self.stride, padding=self.padding)
            found = [each for each in grad([y], [x, w], [g]) if each is not None]
            Tensor.realize(*found)
            return tuple(found)

        run = _hcq(backward, inputs["x"], inputs["w"], inputs["g"])
        return lambda: _Both(run())

    def torch(self, inputs: Arrays) -> Run:
        """Both gradients in one call, without autograd around it."""
        import torch

        x, w, g = (torch.from_numpy(inputs[name]) for name in "xwg")
        pair = [self.stride] * 2, [self.padding] * 2, [1, 1]
        both = [True, True, False]

        def run() -> Any:
            return _Both(
                torch.ops.aten.convolution_backward(g, x, w, None, *pair, False, [0, 0], 1, both)[:2]
            )

        return run

    def jax(self, inputs: Arrays) -> Run:
        """Both gradients of one vector-Jacobian product."""
        import jax

        around = [(self.padding, self.padding)] * 2

        def forward(x: Any, w: Any) -> Any:
            return jax.lax.conv_general_dilated(x, w, (self.stride, self.stride), around)

        run = _jax(lambda x, w, g: jax.vjp(forward, x, w)[1](g), *(inputs[name] for name in "xwg"))
        return lambda: _Both(run())


CONVOLUTION_CASES: tuple[type[Case], ...] = (
    Conv,
    DeepConv,
    ConvBackward.like(
        "conv7x7s2-back",
        "7x7 convolution with stride 2 backward, batch 8, 3 to 64 channels, 224 x 224",
        **dict(channels=(3, 64), size=224, window=7, stride=2),
    ),
    ConvBackward.like(
        "conv3x3s2-back",
        "3x3 convolution with stride 2 backward, batch 8, 64 to 128 channels, 56 x 56",
        **dict(channels=(64, 128), size=56, window=3, stride=2),
    ),
    ConvBackward.like(
        "conv3x3-back",
        "3x3 convolution backward, batch 8, 256 to 256 channels, 14 x 14",
        **dict(channels=(256, 256), size=14, window=3, stride=1),
    ),
)
