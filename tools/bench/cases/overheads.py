"""Benchmark cases of tiny work, whose time is what the libraries themselves cost.

In       see case.py
Out      cases; `OVERHEAD_CASES` lists them
Next     training.py (the list of all), ../startup.py (what starting costs)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.tools.bench.cases.case import Alike, Arrays, Case, Run, _random, waited


class _Adds(Alike):
    """So many additions of 16 floats, each of which needs the one before."""

    unit = "us"

    def inputs(self) -> Arrays:
        return {"x": _random(16)}

    def expected(self, inputs: Arrays) -> Any:
        return inputs["x"].astype("float64") + self.amount

    def work(self, x: Any) -> Any:
        return self.repeated(lambda x: x + 1, x)

    def repeated(self, add: Callable[[Any], Any], x: Any) -> Any:
        """x, added to again and again."""
        for _ in range(int(self.amount)):
            x = add(x)
        return x


class TinyAdds(_Adds):
    name = "tiny-adds"
    about = "1000 dependent adds of 16 floats, each realized by itself; time of one"
    amount = 1000

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import Tensor

        x = Tensor(inputs["x"]).realize()
        return waited(lambda: self.repeated(lambda x: (x + 1).realize(), x))

    def jax(self, inputs: Arrays) -> Run:
        """Not compiled as one."""
        import jax

        x = jax.device_put(inputs["x"])
        return lambda: jax.block_until_ready(self.work(x))

    def tinygrad(self, inputs: Arrays) -> Run:
        from tinygrad import Device, Tensor

        x, wait = Tensor(inputs["x"]).realize(), Device[Device.DEFAULT].synchronize

        def run() -> Any:
            y = self.repeated(lambda x: (x + 1).realize(), x)
            wait()
            return y

        return run


class Replay(_Adds):
    name = "replay-100"
    about = (
        "a recorded graph of 100 dependent tiny kernels, replayed; time of one kernel (PyTorch, NumPy: eager)"
    )
    amount = 100
    without = ("jax",)

    def work(self, x: Any) -> Any:
        return self.repeated(lambda x: (x + 1).contiguous(), x)

    def in_numpy(self, x: Any) -> Any:
        return self.repeated(lambda x: x + 1, x)


OVERHEAD_CASES: tuple[type[Case], ...] = (TinyAdds, Replay)
