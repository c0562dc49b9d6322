"""Benchmark cases of training: whole networks, and the layers that are hard to take backward.

In       a case of `NETWORK_CASES` and a library
Out      see case.py
Next     training.py (the list of all), inference.py (forward alone), convolutions.py (backward)

A network is one function of a library's `nn`, for names are alike. layers.py makes such an `nn` of NumPy, which
computes in float64 what the loss is before the first step, and of JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, ClassVar

from hcq.tools.bench.cases.case import Arrays, Case, Run, _hcq, _random, waited
from hcq.tools.bench.cases.convolutions import _Both
from hcq.tools.bench.cases.layers import NUMPY, Parts, jax_layers, parts_of, softmax, with_parts

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
        from hcq.frontend.grad.gradient import grad

        functional = SimpleNamespace(
            layer_norm=Tensor.layer_norm,
            max_pool2d=Tensor.max_pool2d,
            scaled_dot_product_attention=Tensor.scaled_dot_product_attention,
        )

        def backward(g: Any, *operands: Any) -> Any:
            gradients = grad([self.work(functional, *operands)], list(operands), [g])
            found = [each for each in gradients if each is not None]
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
        layers, forward = self.build(NUMPY)
        for layer, weight in zip(layers, weights_for(layers), strict=True):
            layer.weight = weight.astype("float64")
        return self.loss(NUMPY, forward(inputs["x"].astype("float64")), inputs["wanted"])

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import Tensor, jit, nn

        layers, forward = self.build(nn)
        fill_hcq(layers)
        optimizer = self.optimizer(nn, [p for layer in layers for p in layer.parameters()])
        x, wanted = (Tensor(inputs[name]).realize() for name in ("x", "wanted"))

        @jit
        def step(x: Any, wanted: Any) -> Any:
            optimizer.zero_grad()
            loss = self.loss(nn, forward(x), wanted)
            loss.backward()
            optimizer.step()
            return loss.realize()

        return waited(lambda: step(x, wanted))

    def torch(self, inputs: Arrays) -> Run:
        import torch
        from torch import nn

        layers, forward = self.build(nn)
        fill_torch(layers)
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

    def jax(self, inputs: Arrays) -> Run:
        """Loss, gradients and optimizer as one function, whose weights XLA writes over."""
        import jax

        nn = jax_layers()
        layers, forward = self.build(nn)
        for layer, weight in zip(layers, weights_for(layers), strict=True):
            layer.weight = weight
        x, wanted = (jax.device_put(inputs[name]) for name in ("x", "wanted"))
        parameters = jax.device_put(parts_of(layers))
        optimizer = self.optimizer(nn, parameters)
        state = optimizer.state

        def loss(parameters: Parts, x: Any, wanted: Any) -> Any:
            with_parts(layers, parameters)
            return self.loss(nn, forward(x), wanted)

        def step(parameters: Parts, state: Any, x: Any, wanted: Any) -> Any:
            value, slopes = jax.value_and_grad(loss)(parameters, x, wanted)
            return value, *optimizer.step(parameters, slopes, state)

        compiled = jax.jit(step, donate_argnums=(0, 1))

        def run() -> Any:
            nonlocal parameters, state
            value, parameters, state = jax.block_until_ready(compiled(parameters, state, x, wanted))
            return value

        return run


def fill_hcq(layers: Layers) -> None:
    """Give our layers the weights that every library starts from."""
    from hcq import Tensor

    for layer, weight in zip(layers, weights_for(layers), strict=True):
        layer.weight.assign(Tensor(weight)).realize()
        if layer.bias is not None:
            layer.bias.assign(Tensor.zeros(*layer.bias.shape)).realize()


def fill_torch(layers: Layers) -> None:
    """Give PyTorch's layers the weights that every library starts from."""
    import torch

    for layer, weight in zip(layers, weights_for(layers), strict=True):
        layer.weight.data.copy_(torch.from_numpy(weight))
        if layer.bias is not None:
            layer.bias.data.zero_()


def weights_for(layers: Layers) -> list[Any]:
    """The same start for every library; a norm's scale is one, a bias zero."""
    import numpy

    draw, found = numpy.random.default_rng(0), []
    for layer in layers:
        shape = tuple(layer.weight.shape)
        fan_in = int(numpy.prod(shape[1:]))
        weight = draw.standard_normal(shape, "float32") * numpy.float32((2 / fan_in) ** 0.5)
        found.append(weight if len(shape) > 1 else numpy.ones(shape, "float32"))
    return found


class _Mlp(_Training):
    """784 - 512 - 512 - 10, as for small pictures of digits."""

    batch, widths = 128, (784, 512, 512, 10)

    def inputs(self) -> Arrays:
        import numpy

        return {
            "x": _random(self.batch, self.widths[0]),
            "wanted": numpy.random.default_rng(0).integers(0, self.widths[-1], self.batch),
        }

    def build(self, nn: Any) -> Built:
        layers: Layers = [nn.Linear(into, out) for into, out in pairwise(self.widths)]
        relu = nn.ReLU()

        def forward(x: Any) -> Any:
            for layer in layers[:-1]:
                x = relu(layer(x))
            return layers[-1](x)

        return layers, forward

    def loss(self, nn: Any, y: Any, wanted: Any) -> Any:
        return nn.CrossEntropyLoss()(y, wanted)

    def numpy(self, inputs: Arrays) -> Run:
        """Forwards and backwards by hand."""
        import numpy

        layers, _ = self.build(NUMPY)
        for layer, weight in zip(layers, weights_for(layers), strict=True):
            layer.weight = weight
        move = self.numpy_optimizer(layers)
        x, wanted, places = inputs["x"], inputs["wanted"], numpy.arange(self.batch)

        def run() -> Any:
            seen = [x]  # what each layer was given
            for layer in layers[:-1]:
                seen.append(numpy.maximum(layer(seen[-1]), 0))
            slope = softmax(layers[-1](seen[-1]))
            loss = -numpy.log(slope[places, wanted]).mean()
            slope[places, wanted] -= 1
            slope /= self.batch
            slopes: list[Any] = []
            for layer, given in zip(reversed(layers), reversed(seen), strict=True):
                slopes[:0] = [slope.T @ given, slope.sum(0)]
                if given is not x:
                    slope = (slope @ layer.weight) * (given > 0)
            move(slopes)
            return loss

        return run

    def numpy_optimizer(self, layers: Layers) -> Callable[[list[Any]], None]:
        """What moves each layer's weight and bias down their slopes, in NumPy."""
        raise NotImplementedError


class MlpSgd(_Mlp):
    name = "mlp-sgd-step"
    about = "one training step of a 784-512-512-10 perceptron: batch 128, cross entropy, SGD"

    def optimizer(self, nn: Any, parameters: list[Any], **options: Any) -> Any:
        return nn.optim.SGD(parameters, lr=1e-3, **options)

    def numpy_optimizer(self, layers: Layers) -> Callable[[list[Any]], None]:
        parameters = [part for layer in layers for part in (layer.weight, layer.bias)]

        def move(slopes: list[Any]) -> None:
            for parameter, slope in zip(parameters, slopes, strict=True):
                slope *= 1e-3
                parameter -= slope

        return move


class MlpAdam(_Mlp):
    name = "mlp-adam-step"
    about = "one training step of a 784-512-512-10 perceptron: batch 128, cross entropy, Adam"

    def optimizer(self, nn: Any, parameters: list[Any], **options: Any) -> Any:
        return nn.optim.Adam(parameters, lr=1e-4, **options)

    def numpy_optimizer(self, layers: Layers) -> Callable[[list[Any]], None]:
        import numpy

        parameters = [part for layer in layers for part in (layer.weight, layer.bias)]
        firsts, seconds = ([numpy.zeros_like(part) for part in parameters] for _ in range(2))
        count = 0

        def move(slopes: list[Any]) -> None:
            nonlocal count
            count += 1
            rate, spread = 1e-4 / (1 - 0.9**count), (1 - 0.999**count) ** 0.5
            for parameter, slope, m, v in zip(parameters, slopes, firsts, seconds, strict=True):
                m *= 0.9
                m += 0.1 * slope
                v *= 0.999
                slope *= slope
                slope *= 0.001
                v += slope
                numpy.sqrt(v, out=slope)
                slope /= spread
                slope += 1e-8
                numpy.divide(m, slope, out=slope)
                slope *= rate
                parameter -= slope

        return move


class LeNet(_Training):
    name = "lenet-step"
    about = "one training step of LeNet: batch 128 of 1 x 28 x 28, two 5x5 convolutions, cross entropy, SGD"

    def inputs(self) -> Arrays:
        import numpy

        return {"x": _random(128, 1, 28, 28), "wanted": numpy.random.default_rng(0).integers(0, 10, 128)}

    def build(self, nn: Any) -> Built:
        layers: Layers = [
            nn.Conv2d(1, 6, 5, padding=2),
            nn.Conv2d(6, 16, 5),
            *(nn.Linear(into, out) for into, out in pairwise((400, 120, 84, 10))),
        ]
        relu, pool = nn.ReLU(), nn.MaxPool2d(2)

        def forward(x: Any) -> Any:
            for layer in layers[:2]:
                x = pool(relu(layer(x)))
            x = x.reshape(x.shape[0], -1)
            for layer in layers[2:4]:
                x = relu(layer(x))
            return layers[4](x)

        return layers, forward

    def loss(self, nn: Any, y: Any, wanted: Any) -> Any:
        return nn.CrossEntropyLoss()(y, wanted)

    def optimizer(self, nn: Any, parameters: list[Any], **options: Any) -> Any:
        return nn.optim.SGD(parameters, lr=1e-3, **options)


class ResNet18(_Training):
    name = "resnet18-step"
    about = "one training step of ResNet-18: batch 8 of 3 x 224 x 224, cross entropy, SGD with momentum"

    def inputs(self) -> Arrays:
        import numpy

        return {"x": _random(8, 3, 224, 224), "wanted": numpy.random.default_rng(0).integers(0, 1000, 8)}

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


NETWORK_CASES: tuple[type[Case], ...] = (
    *(LayerNormBackward, MaxPoolBackward, AttentionBackward),
    *(MlpSgd, MlpAdam, LeNet, Transformer, ResNet18),
)
