"""Benchmark cases of products: float32, narrow formats and bytes, a vector times a matrix, attention.

In       see case.py
Out      cases; `PRODUCT_CASES` lists them
Next     training.py (the list of all), convolutions.py (sums of products over windows)
"""

from __future__ import annotations

from typing import Any, ClassVar

from hcq.tools.bench.cases.case import Alike, Arrays, Case, Run, _random, waited


class _Product(Alike):
    """The product of two square matrices."""

    unit = "GFLOP/s"
    n: ClassVar[int] = 1024

    def __init__(self) -> None:
        self.amount = 2 * self.n**3 / 1e9

    def inputs(self) -> Arrays:
        return {"a": _random(self.n, self.n, seed=1), "b": _random(self.n, self.n, seed=2)}

    def work(self, a: Any, b: Any) -> Any:
        return a @ b


class Sgemm(_Product):
    ceiling = "fma"

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        a, b = inputs.values()
        out = numpy.empty((self.n, self.n), "float32")
        return lambda: numpy.matmul(a, b, out=out)


class TransposedSgemm(Sgemm):
    name, about = "transposed-1024", "float32 matrix product whose left operand lies transposed, 1024 x 1024"

    def work(self, a: Any, b: Any) -> Any:
        return a.T @ b

    def numpy(self, inputs: Arrays) -> Run:
        return super().numpy({"a": inputs["a"].T, "b": inputs["b"]})


class Bfloat16Product(_Product):
    name, about = "bfloat16-1024", "bfloat16 matrix product, 1024 x 1024"
    tolerance = 1e-2
    ceiling = "bf16"
    without = ("numpy", "tinygrad")

    def inputs(self) -> Arrays:
        """float32 numbers that bfloat16 holds exactly."""
        import numpy

        mask = numpy.uint32(0xFFFF0000)
        return {name: (v.view("uint32") & mask).view("float32") for name, v in super().inputs().items()}

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import Tensor, dtypes, jit

        a, b = (Tensor(array).cast(dtypes.bfloat16).realize() for array in inputs.values())
        recorded = jit(lambda a, b: (a @ b).realize())
        return waited(lambda: recorded(a, b))

    def torch(self, inputs: Arrays) -> Run:
        import torch

        a, b = (torch.from_numpy(array).bfloat16() for array in inputs.values())
        return lambda: a @ b

    def jax(self, inputs: Arrays) -> Run:
        import jax

        return super().jax({name: v.astype(jax.numpy.bfloat16) for name, v in inputs.items()})


class Float16Product(_Product):
    name, about = "float16-1024", "float16 matrix product, 1024 x 1024"
    tolerance = 1e-2
    without = ("numpy", "tinygrad")

    def inputs(self) -> Arrays:
        return {name: array.astype("float16") for name, array in super().inputs().items()}


class Int8Product(_Product):
    name, about, unit = "int8-1024", "int8 matrix product summed in int32, 1024 x 1024", "GOP/s"
    tolerance = 0.0
    ceiling = "int8"
    without = ("numpy", "tinygrad")

    def inputs(self) -> Arrays:
        import numpy

        rng = numpy.random.default_rng(1)
        return {name: rng.integers(-128, 128, (self.n, self.n), "int8") for name in "ab"}

    def work(self, a: Any, b: Any) -> Any:
        from hcq import dtypes

        return a.cast(dtypes.int32) @ b.cast(dtypes.int32)

    def in_numpy(self, a: Any, b: Any) -> Any:
        return a @ b

    def in_torch(self, a: Any, b: Any) -> Any:
        import torch

        return torch._int_mm(a, b)

    def in_jax(self, a: Any, b: Any) -> Any:
        import jax

        return jax.numpy.matmul(a, b, preferred_element_type=jax.numpy.int32)


class VectorMatrix(_Product):
    name, about, unit = "vector-matrix", "float32 vector times matrix, 4096 x 4096", "GB/s"
    ceiling = "read"
    n = 4096

    def __init__(self) -> None:
        self.amount = 4 * self.n**2 / 1e9

    def inputs(self) -> Arrays:
        return {"v": _random(self.n, seed=1), "m": _random(self.n, self.n, seed=2)}


class Attention(Alike):
    """Also a case of memory: a matrix of scores is 537 MB."""

    name = "attention-4096"
    about = "attention of 4096 queries and keys, 8 heads of 64; counts two products"
    unit = "GFLOP/s"
    ceiling = "fma"
    shapes = ((1, 8, 4096, 64),) * 3
    without = ("numpy",)
    amount = 4 * 8 * 4096 * 4096 * 64 / 1e9

    def work(self, q: Any, k: Any, v: Any) -> Any:
        return q.scaled_dot_product_attention(k, v)

    def in_numpy(self, q: Any, k: Any, v: Any) -> Any:
        """Head by head, for memory's sake."""
        import numpy

        heads = []
        for head in range(8):
            e = q[0, head] @ k[0, head].T / 8.0
            e = numpy.exp(e - e.max(axis=-1, keepdims=True))
            heads.append(e @ v[0, head] / e.sum(axis=-1, keepdims=True))
        return numpy.stack(heads)[None]

    def in_torch(self, q: Any, k: Any, v: Any) -> Any:
        import torch

        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def in_jax(self, q: Any, k: Any, v: Any) -> Any:
        import jax

        return jax.nn.softmax(q @ k.mT / 8.0) @ v


def _square(kind: type[_Product], name: str, n: int, **others: Any) -> type[Case]:
    about = "float32 matrix product" if kind is Sgemm else kind.about.partition(",")[0]
    return kind.like(f"{name}-{n}", f"{about}, {n} x {n}", n=n, **others)


PRODUCT_CASES: tuple[type[Case], ...] = (
    *(_square(Sgemm, "sgemm", n) for n in (256, 512, 1024, 2048)),
    _square(Sgemm, "sgemm", 4096, without=("tinygrad",)),
    TransposedSgemm,
    *(Bfloat16Product, _square(Bfloat16Product, "bfloat16", 2048), Float16Product),
    *(Int8Product, _square(Int8Product, "int8", 2048)),
    *(VectorMatrix, Attention),
)
