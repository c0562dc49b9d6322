"""Benchmark cases of tiny work, whose time is what the libraries themselves cost.

In       see case.py
Out      cases; `OVERHEAD_CASES` lists them
Next     training.py (the list of all), bench/startup.py (what starting costs)
"""

from __future__ import annotations

from typing import Any

from hcq.tools.bench.cases.case import Arrays, Case, Run, _hcq, _random, _tinygrad, _torch, hcq_wait


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

    def jax(self, inputs: Arrays) -> Run:
        import jax

        x = jax.device_put(inputs["x"])

        def run() -> Any:
            y = x
            for _ in range(1000):
                y = y + 1
            return jax.block_until_ready(y)

        return run

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


OVERHEAD_CASES: tuple[type[Case], ...] = (TinyAdds, Replay)
