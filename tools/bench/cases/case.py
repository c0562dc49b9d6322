"""What a case is: the same work on the same numbers, once per library.

In       seeded NumPy inputs
Out      per library a `run()` that does the work once, to its end, and returns the result for the check
Next     bench/worker.py (the process that checks and times a case), bench/compare.py (the table)

A case is a class: what one run amounts to (`amount`, in thousands of millions of the unit's numerator, or a count for
times), its inputs, the expected result in float64, and one method per library. A library without a method is not
compared. Libraries are imported inside the methods: a worker process loads one library only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

Arrays = dict[str, Any]
Run = Callable[[], Any]

LIBRARIES = ("hcq", "numpy", "torch", "torch-kept", "jax", "tinygrad", "llama_cpp")
# under which name a library is installed, where it has another
DISTRIBUTIONS = {"llama_cpp": "llama-cpp-python"}


class Case:
    """One line of the table."""

    name: ClassVar[str]
    about: ClassVar[str]
    unit: ClassVar[str]  # us and s: less is better; a rate, as GFLOP/s, GB/s, tokens/s: more is
    tolerance: ClassVar[float] = 1e-4  # largest error allowed, against the largest expected value
    ceiling: ClassVar[str | None] = (
        None  # the machine's limit that bounds this case: fma, bf16, int8, read or copy
    )
    changes_state: ClassVar[bool] = False  # True when a second run rightly gives another result (training)
    without: ClassVar[tuple[str, ...]] = ()  # libraries that would take minutes for one run

    amount: float  # what one run amounts to: GFLOP, GB, steps; for us, s: how many operations share the time

    def inputs(self) -> Arrays:
        """The same numbers in every process."""
        raise KeyError(f"{self.name} has no inputs")

    def expected(self, inputs: Arrays) -> Any:
        """The right result, computed in float64 with NumPy."""
        raise KeyError(f"{self.name} has no expected result")

    @classmethod
    def like(cls, name: str, about: str, **others: Any) -> type[Case]:
        """A case of the same work: another name, and whatever else differs, such as a size."""
        made: type[Case] = type(name, (cls,), {"name": name, "about": about, **others})
        return made

    @classmethod
    def method(cls, library: str) -> str | None:
        """The name of the method that prepares this case for a library, or None when there is nothing to compare."""
        name = library.partition("-")[0]  # torch-kept is torch in another environment
        return name if hasattr(cls, name) and name not in cls.without else None

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
    return waited(lambda: recorded(*tensors))


def waited(work: Run) -> Run:
    """Work of hcq up to its end."""
    wait = hcq_wait()

    def run() -> Any:
        result = work()
        wait()
        return result

    return run


def hcq_wait() -> Callable[[], Any]:
    """What waits for everything submitted to hcq's default device."""
    from hcq.frontend.core import device

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


# -- work that libraries spell alike -----------------------------------------------------------------------------------


class Alike(Case):
    """One expression of arrays: `work`, and what differs in single libraries in `in_numpy`, `in_torch`, ..."""

    shapes: ClassVar[tuple[tuple[int, ...], ...]]  # of the operands

    def inputs(self) -> Arrays:
        return {f"{number}": _random(*shape, seed=number) for number, shape in enumerate(self.shapes)}

    def work(self, *operands: Any) -> Any:
        """The tensor to compute, of a library's tensors."""
        raise NotImplementedError

    def in_numpy(self, *operands: Any) -> Any:
        """The same of NumPy's arrays."""
        return self.work(*operands)

    def in_torch(self, *operands: Any) -> Any:
        """The same of PyTorch's tensors."""
        return self.work(*operands)

    def in_jax(self, *operands: Any) -> Any:
        """The same of JAX's arrays."""
        return self.work(*operands)

    def in_tinygrad(self, *operands: Any) -> Any:
        """The same of tinygrad's tensors."""
        return self.work(*operands)

    def expected(self, inputs: Arrays) -> Any:
        return self.in_numpy(*(array.astype("float64") for array in inputs.values()))

    def hcq(self, inputs: Arrays) -> Run:
        return _hcq(lambda *operands: self.work(*operands).realize(), *inputs.values())

    def numpy(self, inputs: Arrays) -> Run:
        return lambda: self.in_numpy(*inputs.values())

    def torch(self, inputs: Arrays) -> Run:
        return _torch(self.in_torch, *inputs.values())

    def jax(self, inputs: Arrays) -> Run:
        return _jax(self.in_jax, *inputs.values())

    def tinygrad(self, inputs: Arrays) -> Run:
        return _tinygrad(self.in_tinygrad, *inputs.values())
