"""Benchmark cases of training: whole networks, and the layers that are hard to take backward.

In       a case of `NETWORK_CASES` and a library
Out      see bench_cases.py
Changes  nothing
Next     bench_training.py (the list of all), bench_convolutions.py (convolutions backward)

A network is one function of a library's `nn`, for names are alike. For the check a few layers of NumPy are such an
`nn`, too, and compute in float64 what the loss is before the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

from hcq.tools.bench_cases import Arrays, Case, Run, _hcq, _random, hcq_wait
from hcq.tools.bench_convolutions import _Both

Layers = list[Any]
Built = tuple[Layers, Callable[[Any], Any]]  # layers with weights, in order, and what they make of an input


# -- a layer backward --------------------------------------------------------------------------------------------------


class _Backward(Case):
    """The gradients of `work`, whose result has the slope `g`."""

    operands: ClassVar[tuple[str, ...]]

    def work(self, functional: Any, *operands: Any) -> Any:
        """The value, by functions that the libraries name alike."""
        raise NotImplementedError

    def hcq(self, inputs: Arrays) -> Run:
        """The value again and its gradients, recorded by our jit."""
        from hcq import Tensor
        from hcq.frontend.gradient import grad

        functional = SimpleNamespace(
            layer_norm=Tensor.layer_norm,
            max_pool2d=Tensor.max_pool2d,
            scaled_dot_product_attention=Tensor.scaled_dot_product_attention,
        )

        def backward(g: Any, *operands: Any) -> Any:
            found = grad([self.work(functional, *operands)], list(operands), [g])
            Tensor.realize(*found)
            return found

        run = _hcq(backward, inputs["g"], *(inputs[name] for name in self.operands))
        return lambda: _Both(run())

    def torch(self, inputs: Arrays) -> Run:
        """The same by autograd."""
        import torch

        g = torch.from_numpy(inputs["g"])
        operands = [torch.from_numpy(inputs[name]).requires_grad_() for name in self.operands]

        def run() -> Any:
            return _Both(torch.autograd.grad(self.work(torch.nn.functional, *operands), operands, g))

        return run


class LayerNormBackward(_Backward):
    name = "layer-norm-back"
    about = "layer norm over rows of 4096 x 4096, forward and backward; counts two reads and a write"
    unit = "GB/s"
    ceiling = "copy"
    operands = ("x", "w", "b")
    amount = 3 * 4 * 4096 * 4096 / 1e9

    def work(self, functional: Any, *operands: Any) -> Any:
        x, w, b = operands
        return functional.layer_norm(x, (4096,), w, b)

    def inputs(self) -> Arrays:
        shape = (4096, 4096)
        return {"x": _random(*shape), "g": _random(*shape, seed=1), "w": _random(4096), "b": _random(4096)}

    def expected(self, inputs: Arrays) -> Any:
        import numpy

        x, g, w = (inputs[name].astype("float64") for name in "xgw")
        x = x - x.mean(1, keepdims=True)
        scale = 1 / numpy.sqrt((x * x).mean(1, keepdims=True) + 1e-5)
        x *= scale
        of_weight, of_bias = (g * x).sum(0), g.sum(0)
        g *= w
        g -= g.mean(1, keepdims=True) + x * (g * x).mean(1, keepdims=True)
        return numpy.concatenate([(g * scale).ravel(), of_weight, of_bias])


class MaxPoolBackward(_Backward):
    name = "max-pool-back"
    about = "3x3 maximum with stride 2 of 8 x 64 x 112 x 112, forward and backward; counts a read and a write"
    unit = "GB/s"
    ceiling = "copy"
    operands = ("x",)
    amount = 2 * 4 * 8 * 64 * 112 * 112 / 1e9

    def work(self, functional: Any, *operands: Any) -> Any:
        return functional.max_pool2d(operands[0], 3, 2, 1)

    def inputs(self) -> Arrays:
        return {"x": _random(8, 64, 112, 112), "g": _random(8, 64, 56, 56)}

    def expected(self, inputs: Arrays) -> Any:
        import numpy

        x, g = inputs["x"].reshape(512, 112, 112), inputs["g"].reshape(512, 56, 56)
        x = numpy.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-numpy.inf)
        windows = numpy.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2]
        place = windows.reshape(512, 56, 56, 9).argmax(-1)
        plane, row, column = numpy.indices(place.shape)
        slope = numpy.zeros(x.shape)
        numpy.add.at(slope, (plane, 2 * row + place // 3, 2 * column + place % 3), g)
        return slope[:, 1:-1, 1:-1].ravel()


class AttentionBackward(_Backward):
    name = "attention-back"
    about = "attention of 4096 queries and keys, 8 heads of 64, forward and backward; counts seven products"
    unit = "GFLOP/s"
    ceiling = "fma"
    operands = ("q", "k", "v")
    amount = 14 * 8 * 4096 * 4096 * 64 / 1e9

    def work(self, functional: Any, *operands: Any) -> Any:
        return functional.scaled_dot_product_attention(*operands)

    def inputs(self) -> Arrays:
        return {name: _random(1, 8, 4096, 64, seed=seed) for seed, name in enumerate("qkvg")}

    def expected(self, inputs: Arrays) -> Any:
        import numpy

        found = []
        for q, k, v, g in zip(*(inputs[name][0].astype("float64") for name in "qkvg"), strict=True):
            p = numpy.exp(q @ k.T / 8.0)
            p /= p.sum(axis=-1, keepdims=True)
            s = p * (g @ v.T - (g * (p @ v)).sum(axis=-1, keepdims=True)) / 8.0
            found.append([s @ k, s.T @ q, p.T @ g])
        return numpy.stack(found, axis=1).ravel()


# -- networks ----------------------------------------------------------------------------------------------------------


class _Training(Case):
    """One step of a network: loss, gradients, optimizer."""

    unit = "steps/s"
    amount = 1.0
    tolerance = 1e-3
    changes_state = True

    def build(self, nn: Any) -> Built:
        """The network, of layers of this `nn`."""
        raise NotImplementedError

    def loss(self, nn: Any, y: Any, wanted: Any) -> Any:
        """How far y is from what is wanted."""
        raise NotImplementedError

    def optimizer(self, nn: Any, parameters: list[Any], **options: Any) -> Any:
        """What moves the weights."""
        raise NotImplementedError

    def expected(self, inputs: Arrays) -> Any:
        layers, forward = self.build(_NumpyLayers)
        for layer, weight in zip(layers, _weights(layers), strict=True):
            layer.weight = weight.astype("float64")
        return self.loss(_NumpyLayers, forward(inputs["x"].astype("float64")), inputs["wanted"])

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import Tensor, jit, nn

        layers, forward = self.build(nn)
        for layer, weight in zip(layers, _weights(layers), strict=True):
            layer.weight.assign(Tensor(weight)).realize()
        optimizer = self.optimizer(nn, [p for layer in layers for p in layer.parameters()])
        x, wanted = (Tensor(inputs[name]).realize() for name in ("x", "wanted"))

        @jit
        def step(x: Any, wanted: Any) -> Any:
            optimizer.zero_grad()
            loss = self.loss(nn, forward(x), wanted)
            loss.backward()
            optimizer.step()
            return loss.realize()

        wait = hcq_wait()

        def run() -> Any:
            loss = step(x, wanted)
            wait()
            return loss

        return run

    def torch(self, inputs: Arrays) -> Run:
        import torch
        from torch import nn

        layers, forward = self.build(nn)
        for layer, weight in zip(layers, _weights(layers), strict=True):
            layer.weight.data.copy_(torch.from_numpy(weight))
        parameters = [p for layer in layers for p in layer.parameters()]
        optimizer = self.optimizer(torch, parameters, fused=True)
        x, wanted = torch.from_numpy(inputs["x"]), torch.from_numpy(inputs["wanted"])

        def run() -> Any:
            optimizer.zero_grad()
            loss = self.loss(nn, forward(x), wanted)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return run


def _weights(layers: Layers) -> list[Any]:
    """The same start for every library; a norm's scale is one."""
    import numpy

    draw, found = numpy.random.default_rng(0), []
    for layer in layers:
        shape = tuple(layer.weight.shape)
        fan_in = int(numpy.prod(shape[1:]))
        weight = draw.standard_normal(shape, "float32") * numpy.float32((2 / fan_in) ** 0.5)
        found.append(weight if len(shape) > 1 else numpy.ones(shape, "float32"))
    return found


class ResNet18(_Training):
    name = "resnet18-step"
    about = "one training step of ResNet-18: batch 8 of 3 x 224 x 224, cross entropy, SGD with momentum"

    def inputs(self) -> Arrays:
        import numpy

        return {
            "x": _random(8, 3, 224, 224),
            "wanted": numpy.random.default_rng(0).integers(0, 1000, 8),
        }

    def build(self, nn: Any) -> Built:
        layers: Layers = []
        relu = nn.ReLU()

        def convolution(into: int, out: int, window: int, stride: int) -> Callable[[Any], Any]:
            conv = nn.Conv2d(into, out, window, stride=stride, padding=window // 2, bias=False)
            norm = nn.BatchNorm2d(out)
            layers.extend([conv, norm])
            return lambda x: norm(conv(x))

        first, pool = convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)
        blocks = []
        channels = 64
        for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
            one, two = convolution(channels, width, 3, stride), convolution(width, width, 3, 1)
            beside = convolution(channels, width, 1, stride) if stride > 1 else None
            blocks.append((one, two, beside))
            channels = width
        last = nn.Linear(512, 1000, bias=False)
        layers.append(last)

        def forward(x: Any) -> Any:
            x = pool(relu(first(x)))
            for one, two, beside in blocks:
                x = relu(two(relu(one(x))) + (x if beside is None else beside(x)))
            return last(x.mean((2, 3)))

        return layers, forward

    def loss(self, nn: Any, y: Any, wanted: Any) -> Any:
        return nn.CrossEntropyLoss()(y, wanted)

    def optimizer(self, nn: Any, parameters: list[Any], **options: Any) -> Any:
        library = nn.optim
        return library.SGD(parameters, lr=1e-3, momentum=0.9, **options)


class Transformer(_Training):
    name = "transformer-step"
    about = "one training step of a transformer: 4 layers of 256, 4 heads, batch 8 of 128, square error, Adam"
    batch, length, width, heads, depth = 8, 128, 256, 4, 4

    def inputs(self) -> Arrays:
        shape = (self.batch, self.length, self.width)
        return {"x": _random(*shape), "wanted": _random(*shape, seed=1)}

    def build(self, nn: Any) -> Built:
        layers: Layers = []
        relu, softmax = nn.ReLU(), nn.Softmax(-1)
        split = (self.batch, self.length, self.heads, self.width // self.heads)

        def linear(into: int, out: int) -> Any:
            layers.append(nn.Linear(into, out, bias=False))
            return layers[-1]

        def norm() -> Any:
            layers.append(nn.LayerNorm(self.width))
            return layers[-1]

        d = self.width
        parts = [
            (norm(), *(linear(d, d) for _ in range(4)), norm(), linear(d, 4 * d), linear(4 * d, d))
            for _ in range(self.depth)
        ]

        def forward(x: Any) -> Any:
            for before, query, key, value, out, after, wider, back in parts:
                y = before(x)
                q, k, v = (side(y).reshape(split).swapaxes(1, 2) for side in (query, key, value))
                scores = softmax(q @ k.swapaxes(2, 3) * (1 / split[-1] ** 0.5))
                x = x + out((scores @ v).swapaxes(1, 2).reshape(x.shape))
                x = x + back(relu(wider(after(x))))
            return x

        return layers, forward

    def loss(self, nn: Any, y: Any, wanted: Any) -> Any:
        return ((y - wanted) ** 2).mean()

    def optimizer(self, nn: Any, parameters: list[Any], **options: Any) -> Any:
        return nn.optim.Adam(parameters, lr=1e-4, **options)


# -- layers in NumPy ---------------------------------------------------------------------------------------------------


class _NumpyLayer:
    """A layer without memory of what it did: `weight` and `forward`."""

    def __init__(self, *shape: int):
        import numpy

        self.weight = numpy.ones(shape)

    def __call__(self, x: Any) -> Any:
        raise NotImplementedError


class _Linear(_NumpyLayer):
    def __init__(self, into: int, out: int, bias: bool):
        super().__init__(out, into)

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.T


class _Conv2d(_NumpyLayer):
    def __init__(self, into: int, out: int, window: int, stride: int, padding: int, bias: bool):
        super().__init__(out, into, window, window)
        self.window, self.stride, self.padding = window, stride, padding

    def __call__(self, x: Any) -> Any:
        import numpy

        windows = _windows(x, self.window, self.stride, self.padding, 0.0)
        return numpy.tensordot(self.weight, windows, ((1, 2, 3), (1, 4, 5))).swapaxes(0, 1)


class _MaxPool2d:
    def __init__(self, window: int, stride: int, padding: int):
        self.window, self.stride, self.padding = window, stride, padding

    def __call__(self, x: Any) -> Any:
        return _windows(x, self.window, self.stride, self.padding, float("-inf")).max((4, 5))


class _BatchNorm2d(_NumpyLayer):
    axes: tuple[int, ...] = (0, 2, 3)

    def __call__(self, x: Any) -> Any:
        """With scale one and shift zero, as both norms start."""
        import numpy

        x = x - x.mean(self.axes, keepdims=True)
        return x / numpy.sqrt((x * x).mean(self.axes, keepdims=True) + 1e-5)


class _LayerNorm(_BatchNorm2d):
    axes = (-1,)


def _windows(x: Any, window: int, stride: int, padding: int, around: float) -> Any:
    """(n, c, h, w) -> (n, c, h', w', window, window)."""
    import numpy

    x = numpy.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=around)
    return numpy.lib.stride_tricks.sliding_window_view(x, (window, window), axis=(2, 3))[
        :, :, ::stride, ::stride
    ]


def _softmax(x: Any) -> Any:
    import numpy

    x = numpy.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def _cross_entropy(y: Any, wanted: Any) -> Any:
    import numpy

    return -numpy.log(_softmax(y)[numpy.arange(len(y)), wanted]).mean()


_NumpyLayers = SimpleNamespace(
    Linear=_Linear,
    Conv2d=_Conv2d,
    MaxPool2d=_MaxPool2d,
    BatchNorm2d=_BatchNorm2d,
    LayerNorm=_LayerNorm,
    ReLU=lambda: lambda x: x.clip(0),
    Softmax=lambda axis: _softmax,
    CrossEntropyLoss=lambda: _cross_entropy,
)

NETWORK_CASES: tuple[type[Case], ...] = (
    *(LayerNormBackward, MaxPoolBackward, AttentionBackward),
    *(Transformer, ResNet18),
)
