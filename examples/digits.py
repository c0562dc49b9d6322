"""Train a small convolutional network on handwritten digits, then look at what was submitted to the device.

In       1,797 real images of 8x8 pixels (data/README.md says whose), flags (--help)
Out      the accuracy on images the network has not seen, the work that was submitted, and its last packets, decoded
Changes  writes a trace file, and compiled kernels into the cache
Next     raw_queue.py (the same device without tensors), docs/architecture.md (from a Tensor to a packet)

    python examples/digits.py
    python examples/digits.py --epochs 3 --no-jit --trace /tmp/digits.trace
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works uninstalled

from hcq import Device, Tensor, jit, nn
from hcq.tools import hcq_trace

DATA = Path(__file__).resolve().parent / "data" / "digits.csv.gz"
TEST_IMAGES = 360


class Net(nn.Module):
    """Two convolutions, one pooling, one linear layer: (n, 1, 8, 8) -> (n, 10)."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.linear = nn.Linear(64 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x).relu()
        x = self.conv2(x).relu().max_pool2d(2)
        return self.linear(x.flatten(1))


def load_digits() -> tuple[Any, Any, Any, Any]:
    """Training images and labels, test images and labels: always the same split."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng(0).permutation(len(table))]
    images, labels = table[:, :64].reshape(-1, 1, 8, 8) / 16.0, table[:, 64].astype(np.int64)
    return images[TEST_IMAGES:], labels[TEST_IMAGES:], images[:TEST_IMAGES], labels[:TEST_IMAGES]


def accuracy(net: Net, images: Tensor, labels: Tensor) -> float:
    """The share of images whose most likely digit is the right one."""
    return float((net(images).argmax(1) == labels).float().mean().item())


class Progress:
    """One line that is rewritten on a terminal; elsewhere, one line per epoch."""

    def __init__(self, steps: int):
        self.steps = steps
        self.done = 0
        self.is_terminal = sys.stdout.isatty()

    def step(self, epoch: int) -> None:
        self.done += 1
        if self.is_terminal:
            filled = 30 * self.done // self.steps
            print(f"\r[{'#' * filled}{'.' * (30 - filled)}] {100 * self.done // self.steps:3d} %", end="")
            print(f"  epoch {epoch:2d}", end="", flush=True)

    def epoch(self, epoch: int, loss: float, right: float) -> None:
        print(
            f"{chr(13) if self.is_terminal else ''}epoch {epoch:2d}  loss {loss:.4f}  test accuracy {right:.4f}",
            end="",
        )
        print(" " * 24 if self.is_terminal else "")


def train(options: argparse.Namespace) -> tuple[Net, float, list[float]]:
    """Train; returns the network, its test accuracy and the seconds of each step."""
    train_images, train_labels, *test = load_digits()
    test_images, test_labels = Tensor(test[0]), Tensor(test[1])
    Tensor.manual_seed(options.seed)
    net = Net()
    optimizer = nn.optim.Adam(net.parameters(), lr=options.lr)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(images).cross_entropy(labels)
        loss.backward()
        optimizer.step()
        return loss.realize()

    run = step if options.no_jit else jit(step)
    device = Device[Device.default]
    shuffle = np.random.default_rng(options.seed)
    steps = len(train_images) // options.batch
    progress, seconds, right = Progress(options.epochs * steps), [], 0.0
    for epoch in range(1, options.epochs + 1):
        order = shuffle.permutation(len(train_images))
        loss = Tensor(0.0)
        for start in range(0, steps * options.batch, options.batch):
            began = time.perf_counter()
            batch = order[start : start + options.batch]
            loss = run(Tensor(train_images[batch]), Tensor(train_labels[batch]))
            device.synchronize()
            seconds.append(time.perf_counter() - began)
            progress.step(epoch)
        right = accuracy(net, test_images, test_labels)
        progress.epoch(epoch, float(loss.item()), right)
    return net, right, seconds


def report(right: float, seconds: list[float], total: float, trace: str) -> None:
    """What came out, what was submitted, and how the end of it reads packet by packet."""
    device = Device[Device.default]
    device.synchronize()
    stats = device.stats()
    print()
    print(f"test accuracy   {right:.4f} of {TEST_IMAGES} images")
    print(f"training        {total:.2f} s, {len(seconds)} steps")
    median, first = 1e3 * statistics.median(seconds), seconds[0]
    print(f"a step          {median:.3f} ms (median); the first, with compiling, {first:.2f} s")
    print(f"device          {device.name}, {device.arch}")
    kernels, packets, doorbells = stats["dispatches"], stats["packets"], stats["submissions"]
    print(f"submitted       {kernels:,} kernels, {packets:,} packets, {doorbells:,} doorbells")
    print(f"trace           {trace}  (read it: python tools/hcq_trace.py show {trace})")
    print()
    print("the last packets:")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        hcq_trace.main(["show", trace, "--last", "3"])
    for line in text.getvalue().rstrip().splitlines()[-12:]:
        print(f"  {line}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Train a small convolutional network on 1,797 handwritten digits, in a few seconds.",
        epilog="HCQ_DEBUG=graph,schedule,ir,code,push shows every stage on the way; HCQ_DEVICE picks the device.",
    )
    parser.add_argument("--epochs", type=int, default=12, help="how often every image is seen (default 12)")
    parser.add_argument("--batch", type=int, default=64, help="images per step (default 64)")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate (default 0.002)")
    parser.add_argument("--seed", type=int, default=1, help="initial weights and order of images (default 1)")
    parser.add_argument(
        "--no-jit", action="store_true", help="build and schedule every step anew, record nothing"
    )
    parser.add_argument("--trace", metavar="FILE", help="where the trace goes (default: a temporary file)")
    options = parser.parse_args(argv)
    if options.epochs < 1 or not 1 <= options.batch <= 1797 - TEST_IMAGES:
        parser.error(f"--epochs is 1 or more, --batch is 1 to {1797 - TEST_IMAGES}")

    trace, comma, contents = os.environ.get("HCQ_TRACE", "").partition(",")  # hcq-trace record says where
    if options.trace or not trace:
        trace = options.trace or os.path.join(tempfile.gettempdir(), f"hcq-digits-{os.getpid()}.trace")
        Path(trace).unlink(missing_ok=True)
        os.environ["HCQ_TRACE"] = trace + comma + contents  # read when the device opens
    began = time.perf_counter()
    _, right, seconds = train(options)
    report(right, seconds, time.perf_counter() - began, trace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
