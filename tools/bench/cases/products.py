"""Benchmark cases of products: float32, narrow formats and bytes, a vector times a matrix, attention.

In       see case.py
Out      cases; `PRODUCT_CASES` lists them
Next     training.py (the list of all), convolutions.py (sums of products over windows)
"""

from __future__ import annotations

from typing import Any, ClassVar

from hcq.tools.bench.cases.case import (
    Alike,
    Arrays,
    Case,
    Run,
    _hcq,
    _jax,
    _random,
    _tinygrad,
    _torch,
    hcq_wait,
)


class Sgemm(Alike):
    unit = "GFLOP/s"
    ceiling: ClassVar[str | None] = "fma"
    n: ClassVar[int]

    def __init__(self) -> None:
        self.amount = 2 * self.n**3 / 1e9

    def inputs(self) -> Arrays:
        return {"a": _random(self.n, self.n, seed=1), "b": _random(self.n, self.n, seed=2)}

    def work(self, *operands: Any) -> Any:
        a, b = operands
        return a @ b

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        a, b, out = inputs["a"], inputs["b"], numpy.empty((self.n, self.n), "float32")
        return lambda: numpy.matmul(a, b, out=out)


class Sgemm256(Sgemm):
    name, about, n = "sgemm-256", "float32 matrix product, 256 x 256", 256


class Sgemm512(Sgemm):
    name, about, n = "sgemm-512", "float32 matrix product, 512 x 512", 512


class Sgemm1024(Sgemm):
    name, about, n = "sgemm-1024", "float32 matrix product, 1024 x 1024", 1024


class Sgemm2048(Sgemm):
    name, about, n = "sgemm-2048", "float32 matrix product, 2048 x 2048", 2048


class Sgemm4096(Sgemm):
    name, about, n = "sgemm-4096", "float32 matrix product, 4096 x 4096", 4096
    without = ("tinygrad",)


class TransposedSgemm(Sgemm1024):
    name, about = "transposed-1024", "float32 matrix product whose left operand lies transposed, 1024 x 1024"

    def work(self, *operands: Any) -> Any:
        a, b = operands
        return a.T @ b

    def numpy(self, inputs: Arrays) -> Run:
        return super().numpy({"a": inputs["a"].T, "b": inputs["b"]})


class Bfloat16Product(Case):
    name, about, unit = "bfloat16-1024", "bfloat16 matrix product, 1024 x 1024", "GFLOP/s"
    tolerance = 1e-2
    n = 1024
    amount = 2 * n**3 / 1e9

    ceiling = "bf16"

    def inputs(self) -> Arrays:
        """float32 numbers that bfloat16 holds exactly."""
        import numpy

        inputs = {"a": _random(self.n, self.n, seed=1), "b": _random(self.n, self.n, seed=2)}
        return {k: (v.view("uint32") & numpy.uint32(0xFFFF0000)).view("float32") for k, v in inputs.items()}

    def expected(self, inputs: Arrays) -> Any:
        return inputs["a"].astype("float64") @ inputs["b"].astype("float64")

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import Tensor, dtypes, jit

        a, b = (Tensor(inputs[name]).cast(dtypes.bfloat16).realize() for name in "ab")
        recorded, wait = jit(lambda a, b: (a @ b).realize()), hcq_wait()

        def run() -> Any:
            result = recorded(a, b)
            wait()
            return result

        return run

    def torch(self, inputs: Arrays) -> Run:
        import torch

        a, b = (torch.from_numpy(inputs[name]).bfloat16() for name in "ab")
        return lambda: a @ b

    def jax(self, inputs: Arrays) -> Run:
        import jax

        return _jax(lambda a, b: a @ b, *(inputs[name].astype(jax.numpy.bfloat16) for name in "ab"))


class LargeBfloat16Product(Bfloat16Product):
    name, about = "bfloat16-2048", "bfloat16 matrix product, 2048 x 2048"
    n = 2048
    amount = 2 * n**3 / 1e9


class Float16Product(Sgemm1024):
    name, about = "float16-1024", "float16 matrix product, 1024 x 1024"
    tolerance = 1e-2
    without = ("numpy", "tinygrad")
    ceiling = None

    def inputs(self) -> Arrays:
        return {name: array.astype("float16") for name, array in super().inputs().items()}


class Int8Product(Case):
    name, about, unit = "int8-1024", "int8 matrix product summed in int32, 1024 x 1024", "GOP/s"
    tolerance = 0.0
    ceiling = "int8"
    n = 1024
    amount = 2 * n**3 / 1e9

    def inputs(self) -> Arrays:
        import numpy

        rng = numpy.random.default_rng(1)
        return {name: rng.integers(-128, 128, (self.n, self.n), "int8") for name in "ab"}

    def expected(self, inputs: Arrays) -> Any:
        return inputs["a"].astype("float64") @ inputs["b"].astype("float64")

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import dtypes

        wide = dtypes.int32
        return _hcq(lambda a, b: (a.cast(wide) @ b.cast(wide)).realize(), inputs["a"], inputs["b"])

    def torch(self, inputs: Arrays) -> Run:
        import torch

        return _torch(torch._int_mm, inputs["a"], inputs["b"])

    def jax(self, inputs: Arrays) -> Run:
        import jax

        wide = jax.numpy.int32
        return _jax(
            lambda a, b: jax.numpy.matmul(a, b, preferred_element_type=wide), inputs["a"], inputs["b"]
        )


class LargeInt8Product(Int8Product):
    name, about = "int8-2048", "int8 matrix product summed in int32, 2048 x 2048"
    n = 2048
    amount = 2 * n**3 / 1e9


class VectorMatrix(Sgemm):
    name, about, unit = "vector-matrix", "float32 vector times matrix, 4096 x 4096", "GB/s"
    ceiling = "read"
    n = 4096

    def __init__(self) -> None:
        self.amount = 4 * self.n**2 / 1e9

    def inputs(self) -> Arrays:
        return {"v": _random(self.n, seed=1), "m": _random(self.n, self.n, seed=2)}

    def numpy(self, inputs: Arrays) -> Run:
        return lambda: inputs["v"] @ inputs["m"]


class Attention(Case):
    """Also a case of memory: a matrix of scores is 537 MB."""

    name = "attention-4096"
    about = "attention of 4096 queries and keys, 8 heads of 64; counts two products"
    unit = "GFLOP/s"
    ceiling = "fma"
    amount = 4 * 8 * 4096 * 4096 * 64 / 1e9

    def inputs(self) -> Arrays:
        return {name: _random(1, 8, 4096, 64, seed=seed) for seed, name in enumerate("qkv")}

    def expected(self, inputs: Arrays) -> Any:
        import numpy

        q, k, v = (inputs[name][0].astype("float64") for name in "qkv")
        heads = []
        for head in range(8):
            e = q[head] @ k[head].T / 8.0
            e = numpy.exp(e - e.max(axis=-1, keepdims=True))
            heads.append(e @ v[head] / e.sum(axis=-1, keepdims=True))
        return numpy.stack(heads)[None]

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(
            lambda q, k, v: q.scaled_dot_product_attention(k, v).realize(), *(inputs[name] for name in "qkv")
        )

    def torch(self, inputs: Arrays) -> Run:
        import torch

        return _torch(torch.nn.functional.scaled_dot_product_attention, *(inputs[name] for name in "qkv"))

    def jax(self, inputs: Arrays) -> Run:
        import jax

        def attention(q: Any, k: Any, v: Any) -> Any:
            return jax.nn.softmax(q @ k.mT / 8.0) @ v

        return _jax(attention, *(inputs[name] for name in "qkv"))

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(
            lambda q, k, v: q.scaled_dot_product_attention(k, v), *(inputs[name] for name in "qkv")
        )


PRODUCT_CASES: tuple[type[Case], ...] = (
    *(Sgemm256, Sgemm512, Sgemm1024, Sgemm2048, Sgemm4096, TransposedSgemm),
    *(Bfloat16Product, LargeBfloat16Product, Float16Product, Int8Product, LargeInt8Product),
    *(VectorMatrix, Attention),
)
