"""Benchmark cases of networks in use: forward alone, with what the norms saw in training.

In       see case.py
Out      cases; `INFERENCE_CASES` lists them
Next     networks.py (the same network in training), language.py (a network of words), training.py
"""

from __future__ import annotations

from typing import Any, ClassVar

from hcq.tools.bench.cases.case import Arrays, Case, Run, _hcq, _jax, _random, _torch
from hcq.tools.bench.cases.layers import NUMPY, Parts, jax_layers, parts_of, with_parts
from hcq.tools.bench.cases.networks import ResNet18, fill_hcq, fill_torch, weights_for


class _ResNet18Forward(Case):
    unit = "images/s"
    tolerance = 1e-3
    batch: ClassVar[int]

    def __init__(self) -> None:
        self.amount = float(self.batch)
        self.build = ResNet18().build

    def inputs(self) -> Arrays:
        return {"x": _random(self.batch, 3, 224, 224)}

    def expected(self, inputs: Arrays) -> Any:
        layers, forward = self.build(NUMPY)
        for layer, weight in zip(layers, weights_for(layers), strict=True):
            layer.eval()
            layer.weight = weight.astype("float64")
        return forward(inputs["x"].astype("float64"))

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import nn, no_grad

        layers, forward = self.build(nn)
        fill_hcq(layers)
        for layer in layers:
            layer.eval()

        def work(x: Any) -> Any:
            with no_grad():
                return forward(x).realize()

        return _hcq(work, inputs["x"])

    def torch(self, inputs: Arrays) -> Run:
        from torch import nn

        layers, forward = self.build(nn)
        fill_torch(layers)
        for layer in layers:
            layer.eval()
        return _torch(forward, inputs["x"])

    def jax(self, inputs: Arrays) -> Run:
        """Every array of the network is an argument: XLA may not compute with weights when it compiles."""
        import jax

        layers, forward = self.build(jax_layers())
        for layer, weight in zip(layers, weights_for(layers), strict=True):
            layer.eval()
            layer.weight = weight
        parts = jax.device_put(parts_of(layers))

        def work(parts: Parts, x: Any) -> Any:
            with_parts(layers, parts)
            return forward(x)

        return _jax(work, parts, inputs["x"])


class ResNet18ForwardOne(_ResNet18Forward):
    name, batch = "resnet18-forward-1", 1
    about = "ResNet-18 forward, as in use: one picture of 3 x 224 x 224"


class ResNet18ForwardEight(_ResNet18Forward):
    name, batch = "resnet18-forward-8", 8
    about = "ResNet-18 forward, as in use: batch 8 of 3 x 224 x 224"


INFERENCE_CASES: tuple[type[Case], ...] = (ResNet18ForwardOne, ResNet18ForwardEight)
