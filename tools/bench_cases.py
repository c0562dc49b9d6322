"""What is measured: each case once per library, the same work on the same numbers.

In       seeded NumPy inputs
Out      per library a `run()` that does the work once, to its end, and returns the result for the check
Next     bench_worker.py (the process that checks and times a case), bench.py (the table)

A case is a class: what one run amounts to (`amount`, in thousands of millions of the unit's numerator, or a count for
times), its inputs, the expected result in float64, and one method per library. A library without a method is not
compared. Libraries are imported inside the methods: a worker process loads one library only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

Arrays = dict[str, Any]
Run = Callable[[], Any]

LIBRARIES = ("hcq", "numpy", "torch", "torch-kept", "jax", "tinygrad")


class Case:
    """One line of the table."""

    name: ClassVar[str]
    about: ClassVar[str]
    unit: ClassVar[str]  # GFLOP/s, GB/s, steps/s: more is better; us, s: less is better
    tolerance: ClassVar[float] = 1e-4  # largest error allowed, against the largest expected value
    ceiling: ClassVar[str | None] = None  # the machine's limit that bounds this case: fma, read or copy
    changes_state: ClassVar[bool] = False  # True when a second run rightly gives another result (training)

    amount: float  # what one run amounts to: GFLOP, GB, steps; for us, s: how many operations share the time

    def inputs(self) -> Arrays:
        """The same numbers in every process."""
        raise KeyError(f"{self.name} has no inputs")

    def expected(self, inputs: Arrays) -> Any:
        """The right result, computed in float64 with NumPy."""
        raise KeyError(f"{self.name} has no expected result")

    @classmethod
    def method(cls, library: str) -> str | None:
        """The name of the method that prepares this case for a library, or None when there is nothing to compare."""
        name = library.partition("-")[0]  # torch-kept is torch in another environment
        return name if hasattr(cls, name) else None

    def maker(self, library: str) -> Callable[[Arrays], Run] | None:
        """That method."""
        name = self.method(library)
        found: Callable[[Arrays], Run] | None = getattr(self, name) if name else None
        return found


def _random(*shape: int, seed: int = 0) -> Any:
    import numpy

    return numpy.random.default_rng([seed, *shape]).standard_normal(shape, dtype=numpy.float32)


# -- how each library waits until the work is done ---------------------------------------------------------------------


def _hcq(function: Callable[..., Any], *arrays: Any) -> Run:
    """The function recorded by hcq's jit over tensors of these arrays."""
    from hcq import Tensor, jit

    tensors = [Tensor(array).realize() for array in arrays]
    recorded = jit(function)
    wait = hcq_wait()

    def run() -> Any:
        result = recorded(*tensors)
        wait()
        return result

    return run


def hcq_wait() -> Callable[[], Any]:
    """What waits for everything submitted to hcq's default device."""
    from hcq.frontend import device

    wait: Callable[[], Any] = device.get(device.default()).synchronize
    return wait


def _torch(function: Callable[..., Any], *arrays: Any) -> Run:
    import torch

    tensors = [torch.from_numpy(array) for array in arrays]

    def run() -> Any:
        with torch.inference_mode():
            return function(*tensors)

    return run


def _jax(function: Callable[..., Any], *arrays: Any) -> Run:
    """The function compiled by XLA, over arrays that are on its device."""
    import jax

    operands = [jax.device_put(array) for array in arrays]
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*operands))


def _tinygrad(function: Callable[..., Any], *arrays: Any) -> Run:
    """The function recorded by TinyJit over tensors of these arrays."""
    from tinygrad import Device, Tensor, TinyJit

    tensors = [Tensor(array).realize() for array in arrays]
    recorded = TinyJit(lambda *args: function(*args).realize())
    wait = Device[Device.DEFAULT].synchronize

    def run() -> Any:
        result = recorded(*tensors)
        wait()
        return result

    return run


# -- matrix product ----------------------------------------------------------------------------------------------------


class Sgemm(Case):
    unit = "GFLOP/s"
    ceiling = "fma"
    n: ClassVar[int]

    def __init__(self) -> None:
        self.amount = 2 * self.n**3 / 1e9

    def inputs(self) -> Arrays:
        return {"a": _random(self.n, self.n, seed=1), "b": _random(self.n, self.n, seed=2)}

    def expected(self, inputs: Arrays) -> Any:
        return inputs["a"].astype("float64") @ inputs["b"].astype("float64")

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(lambda a, b: (a @ b).realize(), inputs["a"], inputs["b"])

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        a, b, out = inputs["a"], inputs["b"], numpy.empty((self.n, self.n), "float32")
        return lambda: numpy.matmul(a, b, out=out)

    def torch(self, inputs: Arrays) -> Run:
        return _torch(lambda a, b: a @ b, inputs["a"], inputs["b"])

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(lambda a, b: a @ b, inputs["a"], inputs["b"])


class Sgemm512(Sgemm):
    name, about, n = "sgemm-512", "float32 matrix product, 512 x 512", 512


class Sgemm1024(Sgemm):
    name, about, n = "sgemm-1024", "float32 matrix product, 1024 x 1024", 1024


class Sgemm2048(Sgemm):
    name, about, n = "sgemm-2048", "float32 matrix product, 2048 x 2048", 2048


class TransposedSgemm(Sgemm1024):
    name, about = "transposed-1024", "float32 matrix product whose left operand lies transposed, 1024 x 1024"

    def expected(self, inputs: Arrays) -> Any:
        return inputs["a"].T.astype("float64") @ inputs["b"].astype("float64")

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(lambda a, b: (a.mT @ b).realize(), inputs["a"], inputs["b"])

    def numpy(self, inputs: Arrays) -> Run:
        import numpy

        a, b, out = inputs["a"].T, inputs["b"], numpy.empty((self.n, self.n), "float32")
        return lambda: numpy.matmul(a, b, out=out)

    def torch(self, inputs: Arrays) -> Run:
        return _torch(lambda a, b: a.T @ b, inputs["a"], inputs["b"])

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(lambda a, b: a.T @ b, inputs["a"], inputs["b"])


class Bfloat16Product(Case):
    name, about, unit = "bfloat16-1024", "bfloat16 matrix product, 1024 x 1024", "GFLOP/s"
    tolerance = 1e-2
    n = 1024
    amount = 2 * n**3 / 1e9

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


class Int8Product(Case):
    name, about, unit = "int8-1024", "int8 matrix product summed in int32, 1024 x 1024", "GOP/s"
    tolerance = 0.0
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


class VectorMatrix(Case):
    name, about, unit = "vector-matrix", "float32 vector times matrix, 4096 x 4096", "GB/s"
    ceiling = "read"
    n = 4096
    amount = 4 * n * n / 1e9

    def inputs(self) -> Arrays:
        return {"v": _random(self.n, seed=1), "m": _random(self.n, self.n, seed=2)}

    def expected(self, inputs: Arrays) -> Any:
        return inputs["v"].astype("float64") @ inputs["m"].astype("float64")

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(lambda v, m: (v @ m).realize(), inputs["v"], inputs["m"])

    def numpy(self, inputs: Arrays) -> Run:
        v, m = inputs["v"], inputs["m"]
        return lambda: v @ m

    def torch(self, inputs: Arrays) -> Run:
        return _torch(lambda v, m: v @ m, inputs["v"], inputs["m"])

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(lambda v, m: v @ m, inputs["v"], inputs["m"])


# -- memory bound ------------------------------------------------------------------------------------------------------


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

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(lambda x: (x * 2 + 1).relu().sum(), inputs["x"])


class _Sum(Case):
    unit = "GB/s"
    ceiling = "read"
    amount = 4 * 4096 * 4096 / 1e9
    axes: ClassVar[int | tuple[int, int]]

    def inputs(self) -> Arrays:
        return {"x": _random(4096, 4096)}

    def expected(self, inputs: Arrays) -> Any:
        return inputs["x"].astype("float64").sum(self.axes)

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(lambda x: x.sum(self.axes).realize(), inputs["x"])

    def numpy(self, inputs: Arrays) -> Run:
        return lambda: inputs["x"].sum(self.axes)

    def torch(self, inputs: Arrays) -> Run:
        return _torch(lambda x: x.sum(self.axes), inputs["x"])

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(lambda x: x.sum(self.axes), inputs["x"])


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

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(lambda x: x.softmax(-1), inputs["x"])


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

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(
            lambda q, k, v: q.scaled_dot_product_attention(k, v), *(inputs[name] for name in "qkv")
        )


# -- convolution -------------------------------------------------------------------------------------------------------


class Conv(Case):
    name = "conv3x3"
    about = "3x3 convolution, batch 8, 64 to 64 channels, 56 x 56, padding 1"
    unit = "GFLOP/s"
    ceiling = "fma"
    amount = 2 * 8 * 64 * 64 * 56 * 56 * 9 / 1e9

    def inputs(self) -> Arrays:
        return {"x": _random(8, 64, 56, 56), "w": _random(64, 64, 3, 3)}

    def expected(self, inputs: Arrays) -> Any:
        return _convolve(inputs["x"].astype("float64"), inputs["w"].astype("float64"))

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(lambda x, w: x.conv2d(w, padding=1).realize(), inputs["x"], inputs["w"])

    def numpy(self, inputs: Arrays) -> Run:
        return lambda: _convolve(inputs["x"], inputs["w"])

    def torch(self, inputs: Arrays) -> Run:
        import torch

        return _torch(lambda x, w: torch.nn.functional.conv2d(x, w, padding=1), inputs["x"], inputs["w"])

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(lambda x, w: x.conv2d(w, padding=1), inputs["x"], inputs["w"])


def _convolve(x: Any, w: Any) -> Any:
    """Convolution with padding 1 as one matrix product over unfolded windows, NumPy's best."""
    import numpy

    n, _, height, width = x.shape
    padded = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    unfolded = windows.transpose(1, 4, 5, 0, 2, 3).reshape(w[0].size, n * height * width)
    return (w.reshape(len(w), -1) @ unfolded).reshape(len(w), n, height, width).transpose(1, 0, 2, 3)


# -- overheads ---------------------------------------------------------------------------------------------------------


class TinyAdds(Case):
    name = "tiny-adds"
    about = "1000 dependent adds of 16 floats, each realized by itself; time of one"
    unit = "us"
    amount = 1000

    def inputs(self) -> Arrays:
        return {"x": _random(16)}

    def expected(self, inputs: Arrays) -> Any:
        return inputs["x"].astype("float64") + 1000

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import Tensor

        x, wait = Tensor(inputs["x"]).realize(), hcq_wait()

        def run() -> Any:
            y = x
            for _ in range(1000):
                y = (y + 1).realize()
            wait()
            return y

        return run

    def numpy(self, inputs: Arrays) -> Run:
        def run() -> Any:
            y = inputs["x"]
            for _ in range(1000):
                y = y + 1
            return y

        return run

    def torch(self, inputs: Arrays) -> Run:
        def run(x: Any) -> Any:
            for _ in range(1000):
                x = x + 1
            return x

        return _torch(run, inputs["x"])

    def tinygrad(self, inputs: Arrays) -> Run:
        from tinygrad import Device, Tensor

        x, wait = Tensor(inputs["x"]).realize(), Device[Device.DEFAULT].synchronize

        def run() -> Any:
            y = x
            for _ in range(1000):
                y = (y + 1).realize()
            wait()
            return y

        return run


class Replay(Case):
    name = "replay-100"
    about = (
        "a recorded graph of 100 dependent tiny kernels, replayed; time of one kernel (PyTorch, NumPy: eager)"
    )
    unit = "us"
    amount = 100

    def inputs(self) -> Arrays:
        return {"x": _random(16)}

    def expected(self, inputs: Arrays) -> Any:
        return inputs["x"].astype("float64") + 100

    def _chain(self, x: Any) -> Any:
        for _ in range(100):
            x = (x + 1).contiguous()
        return x

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(lambda x: self._chain(x).realize(), inputs["x"])

    def numpy(self, inputs: Arrays) -> Run:
        def run() -> Any:
            y = inputs["x"]
            for _ in range(100):
                y = y + 1
            return y

        return run

    def torch(self, inputs: Arrays) -> Run:
        return _torch(self._chain, inputs["x"])

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(self._chain, inputs["x"])


TENSOR_CASES: tuple[type[Case], ...] = (
    Sgemm512,
    Sgemm1024,
    Sgemm2048,
    TransposedSgemm,
    Bfloat16Product,
    Int8Product,
    VectorMatrix,
    Chain,
    SumAll,
    SumRows,
    SumColumns,
    Softmax,
    Attention,
    Conv,
    TinyAdds,
    Replay,
)
