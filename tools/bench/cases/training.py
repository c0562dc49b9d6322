"""The demo's training step in every library, from the same weights: its time, and what its first call costs.

In       as a program, argv: a library; else see case.py
Out      as a program: {"first": seconds} of the first call in this fresh process, imports and weights not counted
Next     examples/digits.py (the demo), bench/startup.py (who runs this as a program)
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from hcq.tools.bench.cases.case import Arrays, Case, Run, waited
from hcq.tools.bench.cases.convolutions import CONVOLUTION_CASES, _convolve
from hcq.tools.bench.cases.inference import INFERENCE_CASES
from hcq.tools.bench.cases.language import LANGUAGE_CASES
from hcq.tools.bench.cases.networks import NETWORK_CASES
from hcq.tools.bench.cases.ordering import ORDERING_CASES
from hcq.tools.bench.cases.overheads import OVERHEAD_CASES
from hcq.tools.bench.cases.products import PRODUCT_CASES
from hcq.tools.bench.cases.quantised import QUANTISED_CASES
from hcq.tools.bench.cases.streams import STREAM_CASES

BATCH = 64
LEARNING_RATE = 2e-3


class DigitsStep(Case):
    name = "digits-step"
    about = f"one training step of the demo's network: batch {BATCH}, two 3x3 convolutions, Adam"
    unit = "steps/s"
    amount = 1
    changes_state = True

    def inputs(self) -> Arrays:
        import numpy

        draw = numpy.random.default_rng(0)

        def weights(*shape: int) -> Any:
            fan_in = numpy.prod(shape[1:])
            return (draw.standard_normal(shape) / fan_in**0.5).astype("float32")

        return {
            "x": draw.standard_normal((BATCH, 1, 8, 8), dtype="float32"),
            "y": draw.integers(0, 10, BATCH),
            "w1": weights(32, 1, 3, 3),
            "b1": numpy.zeros(32, "float32"),
            "w2": weights(64, 32, 3, 3),
            "b2": numpy.zeros(64, "float32"),
            "w3": weights(10, 64 * 16),
            "b3": numpy.zeros(10, "float32"),
        }

    def expected(self, inputs: Arrays) -> Any:
        """The loss before the first update."""
        import numpy

        v = {name: array.astype("float64") for name, array in inputs.items()}
        h = numpy.maximum(_convolve(v["x"], v["w1"]) + v["b1"].reshape(1, -1, 1, 1), 0)
        h = numpy.maximum(_convolve(h, v["w2"]) + v["b2"].reshape(1, -1, 1, 1), 0)
        h = h.reshape(BATCH, 64, 4, 2, 4, 2).max(axis=(3, 5)).reshape(BATCH, -1)
        logits = h @ v["w3"].T + v["b3"]
        logits -= logits.max(axis=1, keepdims=True)
        log_likelihood = logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))
        return -log_likelihood[numpy.arange(BATCH), inputs["y"]].mean()

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import Tensor, jit, nn

        x, y = Tensor(inputs["x"]).realize(), Tensor(inputs["y"]).realize()
        p = {name: Tensor(inputs[name], requires_grad=True) for name in inputs if name not in ("x", "y")}
        optimizer = nn.optim.Adam(list(p.values()), lr=LEARNING_RATE)

        @jit
        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            h = x.conv2d(p["w1"], p["b1"], padding=1).relu()
            h = h.conv2d(p["w2"], p["b2"], padding=1).relu().max_pool2d(2)
            loss = h.flatten(1).linear(p["w3"], p["b3"]).cross_entropy(y)
            loss.backward()
            optimizer.step()
            return loss.realize()

        return waited(lambda: step(x, y))

    def torch(self, inputs: Arrays) -> Run:
        import torch
        import torch.nn.functional as F

        x, y = torch.from_numpy(inputs["x"]), torch.from_numpy(inputs["y"])
        p = {
            name: torch.from_numpy(inputs[name]).clone().requires_grad_()
            for name in inputs
            if name not in ("x", "y")
        }
        optimizer = torch.optim.Adam(list(p.values()), lr=LEARNING_RATE, fused=True)

        def run() -> Any:
            optimizer.zero_grad()
            h = F.conv2d(x, p["w1"], p["b1"], padding=1).relu()
            h = F.max_pool2d(F.conv2d(h, p["w2"], p["b2"], padding=1).relu(), 2)
            loss = F.cross_entropy(F.linear(h.flatten(1), p["w3"], p["b3"]), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return run

    def tinygrad(self, inputs: Arrays) -> Run:
        from tinygrad import Context, Device, Tensor, TinyJit, nn

        x, y = Tensor(inputs["x"]).realize(), Tensor(inputs["y"]).realize()
        p = {name: Tensor(inputs[name]).realize() for name in inputs if name not in ("x", "y")}
        optimizer = nn.optim.Adam(list(p.values()), lr=LEARNING_RATE)

        @TinyJit
        def step(x: Any, y: Any) -> Any:
            with Context(TRAINING=1):
                optimizer.zero_grad()
                h = x.conv2d(p["w1"], p["b1"], padding=1).relu()
                h = h.conv2d(p["w2"], p["b2"], padding=1).relu().max_pool2d((2, 2))
                loss = h.flatten(1).linear(p["w3"].transpose(), p["b3"]).sparse_categorical_crossentropy(y)
                return loss.backward().realize(*optimizer.schedule_step())

        wait = Device[Device.DEFAULT].synchronize

        def run() -> Any:
            loss = step(x, y)
            wait()
            return loss

        return run


_EVERY: tuple[type[Case], ...] = (
    *(*PRODUCT_CASES, *STREAM_CASES, *CONVOLUTION_CASES, *ORDERING_CASES),
    *(*OVERHEAD_CASES, *NETWORK_CASES, *INFERENCE_CASES, *LANGUAGE_CASES, *QUANTISED_CASES, DigitsStep),
)
ALL_CASES: dict[str, type[Case]] = {case.name: case for case in _EVERY}


def main(argv: list[str]) -> int:
    """Time the first call and later ones of one library; JSON on stdout. Returns the exit status."""
    case = DigitsStep()
    make = case.maker(argv[0])
    assert make is not None
    run = make(case.inputs())
    before = time.perf_counter()
    run()
    print(json.dumps({"first": time.perf_counter() - before}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
