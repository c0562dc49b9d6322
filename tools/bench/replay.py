"""What a replay costs the thread that submits it: the training step of the digits, recorded, and its graph alone.

In       nothing, or how many rounds (--rounds)
Out      a table in microseconds; how many kernels and submissions a step is
Next     frontend/jit/replay.py and hcq/graph.py (what is measured), docs/performance.md (figures of a run)

The device's own work is kept out of the time. In rounds called "held" the device waits for a signal while the host
submits two replays, and the second one is timed: the thread's own instructions, with warm caches. In rounds called
"idle" the device has done everything before: what is timed then begins with cold caches and wakes the device's threads.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from hcq import Tensor, jit
from hcq.frontend import nn
from hcq.frontend.core import device as devices

BATCH = 64


class Net(nn.Module):
    """The network of examples/digits.py."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.linear = nn.Linear(64 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(self.conv1(x).relu()).relu().max_pool2d(2)
        return self.linear(x.flatten(1))


def digits_step() -> tuple[Any, Tensor, Tensor]:
    """The recorded step of training, and a batch for it."""
    Tensor.manual_seed(0)
    net = Net()
    optimizer = nn.optim.Adam(net.parameters(), lr=1e-3)

    @jit
    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(images).cross_entropy(labels)
        loss.backward()
        optimizer.step()
        return loss.realize()

    random = np.random.default_rng(0)
    images = Tensor(random.random((BATCH, 1, 8, 8), dtype=np.float32)).realize()
    labels = Tensor(random.integers(0, 10, BATCH)).realize()
    while not step.kernels:
        step(images, labels)
    return step, images, labels


def held(device: Any, work: Callable[[], object], rounds: int) -> list[int]:
    """Nanoseconds of each round's second call while the device waits."""
    signal, found = device.signal("hold"), []
    for number in range(1, rounds + 1):
        device.synchronize()
        device.queue().wait(signal, number).submit()
        work()
        began = time.perf_counter_ns()
        work()
        found.append(time.perf_counter_ns() - began)
        signal.set(number)
    device.synchronize()
    return found


def idle(device: Any, work: Callable[[], object], rounds: int) -> list[int]:
    """Nanoseconds of each call when the device has nothing to do."""
    found = []
    for _ in range(rounds):
        device.synchronize()
        began = time.perf_counter_ns()
        work()
        found.append(time.perf_counter_ns() - began)
    device.synchronize()
    return found


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a replay costs the thread that submits it.")
    parser.add_argument("--rounds", type=int, default=200, help="how often each is timed (default: 200)")
    options = parser.parse_args(argv)
    step, images, labels = digits_step()
    device = devices.get(devices.default())
    graph = step._last.graph
    # large enough for each of them
    places = {key: device.alloc(1 << 20, "any") for key in graph.patch_points}
    for place, tensor in zip(places.values(), (images, labels)):
        place.write(bytes(tensor.node.arg.size_bytes))
    before = device.stats()["submissions"]
    step(images, labels)
    doorbells = device.stats()["submissions"] - before
    print(f"{device.name}, {device.arch}: {step.kernels} kernels, {doorbells} submission for a step")
    print(f"{'us of the submitting thread':34} {'least':>8} {'median':>8} {'a kernel':>9}")
    for name, work in (
        ("step(images, labels)", lambda: step(images, labels)),
        ("its graph's replay", lambda: graph.replay(places)),
    ):
        for kind, measure in (("held", held), ("idle", idle)):
            times = measure(device, work, options.rounds)
            least, median = min(times) / 1e3, statistics.median(times) / 1e3
            print(f"{name + ', ' + kind:34} {least:8.1f} {median:8.1f} {median / step.kernels:9.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
