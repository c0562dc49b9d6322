"""Benchmark cases that memory bounds: chains, sums, softmax, layer norm, a transpose, rows by number.

In       see case.py
Out      cases; `STREAM_CASES` lists them
Next     training.py (the list of all), ../ceilings.py (what memory gives)
"""

from __future__ import annotations

from typing import Any, ClassVar

from hcq.tools.bench.cases.case import Alike, Arrays, Case, Run, _random

SQUARE = (4096, 4096)
GIGABYTES = 4 * 4096 * 4096 / 1e9  # of a square of floats


class Chain(Alike):
    name = "chain-16M"
    about = "sum(relu(x * 2 + 1)) over 16M floats; counts one read of x"
    unit = "GB/s"
    ceiling = "read"
    shapes = ((2**24,),)
    amount = 4 * 2**24 / 1e9

    def work(self, x: Any) -> Any:
        return (x * 2 + 1).relu().sum()

    def in_numpy(self, x: Any) -> Any:
        return (x * 2 + 1).clip(0).sum()

    def in_jax(self, x: Any) -> Any:
        return (x * 2 + 1).clip(0).sum()

    def numpy(self, inputs: Arrays) -> Run:
        """Step by step in memory that is kept."""
        import numpy

        (x,) = inputs.values()
        y = numpy.empty_like(x)

        def run() -> Any:
            numpy.multiply(x, 2, out=y)
            numpy.add(y, 1, out=y)
            numpy.maximum(y, 0, out=y)
            return y.sum()

        return run


class Sum(Alike):
    name = "sum-all"
    about = "sum of 4096 x 4096 floats"
    unit = "GB/s"
    ceiling = "read"
    shapes = (SQUARE,)
    amount = GIGABYTES
    axes: ClassVar[int | tuple[int, int]] = (0, 1)

    def work(self, x: Any) -> Any:
        return x.sum(self.axes)


class Softmax(Alike):
    name = "softmax-4096"
    about = "softmax over the last axis of 4096 x 4096; counts one read and one write"
    unit = "GB/s"
    ceiling = "copy"
    shapes = (SQUARE,)
    amount = 2 * GIGABYTES

    def work(self, x: Any) -> Any:
        return x.softmax(-1)

    def in_numpy(self, x: Any) -> Any:
        import numpy

        e = numpy.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def in_jax(self, x: Any) -> Any:
        import jax

        return jax.nn.softmax(x)

    def numpy(self, inputs: Arrays) -> Run:
        """In memory that is kept."""
        import numpy

        (x,) = inputs.values()
        y = numpy.empty_like(x)

        def run() -> Any:
            numpy.subtract(x, x.max(axis=-1, keepdims=True), out=y)
            numpy.exp(y, out=y)
            return numpy.divide(y, y.sum(axis=-1, keepdims=True), out=y)

        return run


class LayerNorm(Alike):
    name = "layer-norm-4096"
    about = "layer norm over the last axis of 4096 x 4096; counts one read and one write"
    unit = "GB/s"
    ceiling = "copy"
    shapes = (SQUARE, (4096,), (4096,))
    amount = 2 * GIGABYTES

    def work(self, x: Any, w: Any, b: Any) -> Any:
        return x.layer_norm((4096,), w, b)

    def in_numpy(self, x: Any, w: Any, b: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x / ((x * x).mean(-1, keepdims=True) + 1e-5) ** 0.5 * w + b

    def in_torch(self, x: Any, w: Any, b: Any) -> Any:
        import torch

        return torch.nn.functional.layer_norm(x, (4096,), w, b)

    def in_jax(self, x: Any, w: Any, b: Any) -> Any:
        return self.in_numpy(x, w, b)

    def in_tinygrad(self, x: Any, w: Any, b: Any) -> Any:
        return x.layernorm() * w + b


class Transpose(Alike):
    name = "transpose-4096"
    about = "4096 x 4096 floats written the other way round; counts one read and one write"
    unit = "GB/s"
    ceiling = "copy"
    shapes = (SQUARE,)
    amount = 2 * GIGABYTES

    def work(self, x: Any) -> Any:
        return x.T.contiguous()

    def in_numpy(self, x: Any) -> Any:
        return x.T.copy()

    def in_jax(self, x: Any) -> Any:
        """What a compiled function returns is contiguous."""
        return x.T

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        (x,) = inputs.values()
        y = numpy.empty_like(x)

        def run() -> Any:
            y[...] = x.T
            return y

        return run


class Add(Alike):
    name = "add-4096"
    about = "sum of two tensors of 4096 x 4096 floats; counts two reads and one write"
    unit = "GB/s"
    ceiling = "copy"
    shapes = (SQUARE, SQUARE)
    amount = 3 * GIGABYTES

    def work(self, x: Any, y: Any) -> Any:
        return x + y

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        x, y = inputs.values()
        out = numpy.empty_like(x)
        return lambda: numpy.add(x, y, out=out)


class Embedding(Alike):
    name = "embedding"
    about = "16384 rows of 512 floats taken from 32768; counts one read and one write"
    unit = "GB/s"
    ceiling = "copy"
    amount = 2 * 4 * 16384 * 512 / 1e9

    def inputs(self) -> Arrays:
        import numpy

        return {"w": _random(32768, 512), "i": numpy.random.default_rng(0).integers(0, 32768, 16384)}

    def expected(self, inputs: Arrays) -> Any:
        return self.work(*inputs.values())

    def work(self, w: Any, i: Any) -> Any:
        return w[i]

    def in_torch(self, w: Any, i: Any) -> Any:
        import torch

        return torch.nn.functional.embedding(i, w)

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        w, i, out = inputs["w"], inputs["i"], numpy.empty((16384, 512), "float32")
        return lambda: numpy.take(w, i, axis=0, out=out, mode="clip")


STREAM_CASES: tuple[type[Case], ...] = (
    Chain,
    Sum,
    Sum.like("sum-rows", "sums of the rows of 4096 x 4096 floats", axes=1),
    Sum.like("sum-columns", "sums of the columns of 4096 x 4096 floats", axes=0),
    *(Softmax, LayerNorm, Transpose, Add, Embedding),
)
