"""Benchmark cases of lines: running sums, the place of an extreme, sorting, the greatest few.

In       a case of `ORDERING_CASES` and a library
Out      see case.py
Next     case.py (the other work), training.py (the list of all), docs/performance.md (what was measured)
"""

from __future__ import annotations

from typing import Any, ClassVar

from hcq.tools.bench.cases.case import Alike, Case


class _Line(Alike):
    """One function of one array."""

    unit = "us"
    amount = 1.0


class CumSum(_Line):
    name = "cumsum-16m"
    about = "running sum of 16M numbers"
    shapes = ((1 << 24,),)
    tolerance = 1e-3
    axis: ClassVar[int] = 0

    def work(self, x: Any) -> Any:
        return x.cumsum(self.axis)


class ArgMax(_Line):
    name = "argmax-16m"
    about = "the place of the greatest of 16M numbers"
    shapes = ((1 << 24,),)
    tolerance = 0.0
    axis: ClassVar[int | None] = None

    def work(self, x: Any) -> Any:
        return x.argmax(self.axis)


class Sort(_Line):
    name = "sort-1m"
    about = "1M numbers in stable order, with their places; NumPy and JAX sort the numbers alone"
    shapes = ((1 << 20,),)

    def work(self, x: Any) -> Any:
        return x.sort()[0]

    def in_numpy(self, x: Any) -> Any:
        import numpy

        return numpy.sort(x)

    def in_torch(self, x: Any) -> Any:
        return x.sort(stable=True)[0]

    def in_jax(self, x: Any) -> Any:
        return x.sort()


class TopK(_Line):
    name = "topk-1m"
    about = "the 64 greatest of 1M numbers, in order, with their places; NumPy partitions and sorts"
    shapes = ((1 << 20,),)

    def work(self, x: Any) -> Any:
        return x.topk(64)[0]

    def in_numpy(self, x: Any) -> Any:
        import numpy

        return numpy.sort(numpy.partition(x, x.size - 64)[-64:])[::-1]

    def in_jax(self, x: Any) -> Any:
        import jax

        return jax.lax.top_k(x, 64)[0]


ORDERING_CASES: tuple[type[Case], ...] = (
    CumSum,
    CumSum.like("cumsum-64k", "running sum of 64K numbers", shapes=((1 << 16,),)),
    CumSum.like("cumsum-rows", "running sums of the rows of 4096 x 4096", shapes=((4096, 4096),), axis=1),
    CumSum.like("cumsum-columns", "running sums of the columns of 4096 x 4096", shapes=((4096, 4096),)),
    ArgMax,
    ArgMax.like("argmax-1m", "the place of the greatest of 1M numbers", shapes=((1 << 20,),)),
    ArgMax.like(
        "argmax-rows", "the greatest's place in each row of 4096 x 1000", shapes=((4096, 1000),), axis=1
    ),
    Sort,
    Sort.like("sort-1k", Sort.about.replace("1M", "1K"), shapes=((1 << 10,),)),
    TopK,
    TopK.like("topk-1k", TopK.about.replace("1M", "1K"), shapes=((1 << 10,),)),
)
