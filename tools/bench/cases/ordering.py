"""Benchmark cases of lines: running sums, the place of an extreme, sorting, the greatest few.

In       a case of `ORDERING_CASES` and a library
Out      see case.py
Changes  nothing
Next     case.py (the other work), training.py (the list of all), docs/performance.md (what was measured)
"""

from __future__ import annotations

from typing import Any, ClassVar

from hcq.tools.bench.cases.case import Alike, Arrays, Case, Run, _jax, _random, _torch


class _Line(Alike):
    """One function of one array."""

    shape: ClassVar[tuple[int, ...]]
    unit = "us"
    amount = 1.0

    def inputs(self) -> Arrays:
        return {"x": _random(*self.shape)}


class _Running(_Line):
    tolerance = 1e-3

    def work(self, x: Any) -> Any:
        return x.cumsum(0)


class CumSum(_Running):
    name = "cumsum-16m"
    about = "running sum of 16M numbers"
    shape = (1 << 24,)


class CumSumSmall(CumSum):
    name = "cumsum-64k"
    about = "running sum of 64K numbers"
    shape = (1 << 16,)


class CumSumRows(_Running):
    name = "cumsum-rows"
    about = "running sums of the rows of 4096 x 4096"
    shape = (4096, 4096)

    def work(self, x: Any) -> Any:
        return x.cumsum(1)


class CumSumColumns(_Running):
    name = "cumsum-columns"
    about = "running sums of the columns of 4096 x 4096"
    shape = (4096, 4096)


class ArgMax(_Line):
    name = "argmax-16m"
    about = "the place of the greatest of 16M numbers"
    shape = (1 << 24,)
    tolerance = 0.0

    def work(self, x: Any) -> Any:
        return x.argmax()


class ArgMaxSmall(ArgMax):
    name = "argmax-1m"
    about = "the place of the greatest of 1M numbers"
    shape = (1 << 20,)


class ArgMaxRows(_Line):
    name = "argmax-rows"
    about = "the place of the greatest in each row of 4096 x 1000"
    shape = (4096, 1000)
    tolerance = 0.0

    def work(self, x: Any) -> Any:
        return x.argmax(1)


class Sort(_Line):
    name = "sort-1m"
    about = "1M numbers in stable order, with their places; NumPy sorts the numbers alone"
    shape = (1 << 20,)

    def work(self, x: Any) -> Any:
        return x.sort()[0]

    def in_numpy(self, x: Any) -> Any:
        import numpy

        return numpy.sort(x)

    def torch(self, inputs: Arrays) -> Run:
        """Stable, as ours is."""
        return _torch(lambda x: x.sort(stable=True)[0], inputs["x"])

    def jax(self, inputs: Arrays) -> Run:
        """The numbers alone."""
        import jax

        return _jax(jax.numpy.sort, inputs["x"])


class SortSmall(Sort):
    name = "sort-1k"
    about = "1K numbers in stable order, with their places; NumPy sorts the numbers alone"
    shape = (1 << 10,)


class TopK(_Line):
    name = "topk-1m"
    about = "the 64 greatest of 1M numbers, in order, with their places; NumPy partitions and sorts"
    shape = (1 << 20,)

    def work(self, x: Any) -> Any:
        return x.topk(64)[0]

    def in_numpy(self, x: Any) -> Any:
        import numpy

        return numpy.sort(numpy.partition(x, x.size - 64)[-64:])[::-1]

    def jax(self, inputs: Arrays) -> Run:
        import jax

        return _jax(lambda x: jax.lax.top_k(x, 64)[0], inputs["x"])


class TopKSmall(TopK):
    name = "topk-1k"
    about = "the 64 greatest of 1K numbers, in order, with their places; NumPy partitions and sorts"
    shape = (1 << 10,)


ORDERING_CASES: tuple[type[Case], ...] = (
    *(CumSum, CumSumSmall, CumSumRows, CumSumColumns),
    *(ArgMax, ArgMaxSmall, ArgMaxRows),
    *(Sort, SortSmall, TopK, TopKSmall),
)
