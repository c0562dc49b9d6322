"""Benchmark cases that memory bounds: chains, sums, softmax, layer norm, a transpose, rows by number.

In       see case.py
Out      cases; `STREAM_CASES` lists them
Next     training.py (the list of all), bench/ceilings.py (what memory gives)
"""

from __future__ import annotations

from typing import Any, ClassVar

from hcq.tools.bench.cases.case import Alike, Arrays, Case, Run, _hcq, _jax, _random, _tinygrad, _torch


class Chain(Case):
    name = "chain-16M"
    about = "sum(relu(x * 2 + 1)) over 16M floats; counts one read of x"
    unit = "GB/s"
    ceiling = "read"
    amount = 4 * 2**24 / 1e9

    def inputs(self) -> Arrays:
        return {"x": _random(2**24)}

    def expected(self, inputs: Arrays) -> Any:
        import numpy

        return numpy.maximum(inputs["x"].astype("float64") * 2 + 1, 0).sum()

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(lambda x: (x * 2 + 1).relu().sum().realize(), inputs["x"])

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        x, y = inputs["x"], numpy.empty_like(inputs["x"])

        def run() -> Any:
            numpy.multiply(x, 2, out=y)
            numpy.add(y, 1, out=y)
            numpy.maximum(y, 0, out=y)
            return y.sum()

        return run

    def torch(self, inputs: Arrays) -> Run:
        return _torch(lambda x: (x * 2 + 1).relu().sum(), inputs["x"])

    def jax(self, inputs: Arrays) -> Run:
        return _jax(lambda x: (x * 2 + 1).clip(0).sum(), inputs["x"])

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(lambda x: (x * 2 + 1).relu().sum(), inputs["x"])


class _Sum(Alike):
    unit = "GB/s"
    ceiling = "read"
    amount = 4 * 4096 * 4096 / 1e9
    axes: ClassVar[int | tuple[int, int]]

    def inputs(self) -> Arrays:
        return {"x": _random(4096, 4096)}

    def work(self, *operands: Any) -> Any:
        return operands[0].sum(self.axes)


class SumAll(_Sum):
    name, about, axes = "sum-all", "sum of 4096 x 4096 floats", (0, 1)


class SumRows(_Sum):
    name, about, axes = "sum-rows", "sums of the rows of 4096 x 4096 floats", 1


class SumColumns(_Sum):
    name, about, axes = "sum-columns", "sums of the columns of 4096 x 4096 floats", 0


class Softmax(Case):
    name = "softmax-4096"
    about = "softmax over the last axis of 4096 x 4096; counts one read and one write"
    unit = "GB/s"
    ceiling = "copy"
    amount = 2 * 4 * 4096 * 4096 / 1e9

    def inputs(self) -> Arrays:
        return {"x": _random(4096, 4096)}

    def expected(self, inputs: Arrays) -> Any:
        import numpy

        x = inputs["x"].astype("float64")
        e = numpy.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(lambda x: x.softmax(-1).realize(), inputs["x"])

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        x, y = inputs["x"], numpy.empty_like(inputs["x"])

        def run() -> Any:
            numpy.subtract(x, x.max(axis=-1, keepdims=True), out=y)
            numpy.exp(y, out=y)
            return numpy.divide(y, y.sum(axis=-1, keepdims=True), out=y)

        return run

    def torch(self, inputs: Arrays) -> Run:
        return _torch(lambda x: x.softmax(-1), inputs["x"])

    def jax(self, inputs: Arrays) -> Run:
        import jax

        return _jax(jax.nn.softmax, inputs["x"])

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(lambda x: x.softmax(-1), inputs["x"])


class LayerNorm(Case):
    name = "layer-norm-4096"
    about = "layer norm over the last axis of 4096 x 4096; counts one read and one write"
    unit = "GB/s"
    ceiling = "copy"
    amount = 2 * 4 * 4096 * 4096 / 1e9

    def inputs(self) -> Arrays:
        return {"x": _random(4096, 4096), "w": _random(4096, seed=1), "b": _random(4096, seed=2)}

    def expected(self, inputs: Arrays) -> Any:
        return self._norm(*(inputs[name].astype("float64") for name in "xwb"))

    def _norm(self, x: Any, w: Any, b: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x / ((x * x).mean(-1, keepdims=True) + 1e-5) ** 0.5 * w + b

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(lambda x, w, b: x.layer_norm((4096,), w, b).realize(), *(inputs[name] for name in "xwb"))

    def numpy(self, inputs: Arrays) -> Run:
        return lambda: self._norm(*(inputs[name] for name in "xwb"))

    def torch(self, inputs: Arrays) -> Run:
        import torch

        norm = torch.nn.functional.layer_norm
        return _torch(lambda x, w, b: norm(x, (4096,), w, b), *(inputs[name] for name in "xwb"))

    def jax(self, inputs: Arrays) -> Run:
        return _jax(self._norm, *(inputs[name] for name in "xwb"))

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(lambda x, w, b: x.layernorm() * w + b, *(inputs[name] for name in "xwb"))


class Transpose(Alike):
    name = "transpose-4096"
    about = "4096 x 4096 floats written the other way round; counts one read and one write"
    unit = "GB/s"
    ceiling = "copy"
    amount = 2 * 4 * 4096 * 4096 / 1e9

    def inputs(self) -> Arrays:
        return {"x": _random(4096, 4096)}

    def work(self, *operands: Any) -> Any:
        return operands[0].T.contiguous()

    def in_numpy(self, *operands: Any) -> Any:
        return operands[0].T.copy()

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        x, y = inputs["x"], numpy.empty_like(inputs["x"])

        def run() -> Any:
            y[...] = x.T
            return y

        return run

    def jax(self, inputs: Arrays) -> Run:
        """What a compiled function returns is contiguous."""
        return _jax(lambda x: x.T, inputs["x"])


class Add(Alike):
    name = "add-4096"
    about = "sum of two tensors of 4096 x 4096 floats; counts two reads and one write"
    unit = "GB/s"
    ceiling = "copy"
    amount = 3 * 4 * 4096 * 4096 / 1e9

    def inputs(self) -> Arrays:
        return {name: _random(4096, 4096, seed=seed) for seed, name in enumerate("xy")}

    def work(self, *operands: Any) -> Any:
        x, y = operands
        return x + y

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        x, y, out = inputs["x"], inputs["y"], numpy.empty_like(inputs["x"])
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
        return inputs["w"][inputs["i"]]

    def work(self, *operands: Any) -> Any:
        w, i = operands
        return w[i]

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        w, i, out = inputs["w"], inputs["i"], numpy.empty((16384, 512), "float32")
        return lambda: numpy.take(w, i, axis=0, out=out, mode="clip")

    def torch(self, inputs: Arrays) -> Run:
        import torch

        return _torch(lambda w, i: torch.nn.functional.embedding(i, w), inputs["w"], inputs["i"])


STREAM_CASES: tuple[type[Case], ...] = (
    *(Chain, SumAll, SumRows, SumColumns),
    *(Softmax, LayerNorm, Transpose, Add, Embedding),
)
