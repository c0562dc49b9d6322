"""Train a residual network on colour images of the size of CIFAR-10's: ten kinds of texture, made here.

In       nothing but a seed: stripes, rings, checks and spots in random colours, places and noise; flags (--help)
Out      the loss as a curve, the accuracy on images that it has not seen, images per second
Changes  nothing but the cache of compiled kernels
Next     digits.py (a smaller network on real images), terminal.py (what draws)
Source   He, Zhang, Ren, Sun: "Deep Residual Learning for Image Recognition", CVPR 2016 (the network of section 4.2)

    python examples/textures.py
    python examples/textures.py --blocks 3 --width 16 --steps 2000
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works uninstalled

from hcq import Tensor, jit, nn
from hcq.torch import no_grad

if __package__ in (None, ""):
    from terminal import Progress, curve
else:
    from examples.terminal import Progress, curve

SIZE, KINDS = 32, 10


def textures(count: int, random: Any) -> tuple[Any, Any]:
    """Images (count, 3, 32, 32) and what is on them, (count,)."""
    labels = random.integers(0, KINDS, count)
    y, x = np.mgrid[:SIZE, :SIZE] / SIZE - 0.5
    shift = random.uniform(-0.3, 0.3, (2, count, 1, 1))
    x, y = x + shift[0], y + shift[1]
    often = random.uniform(3, 5, (count, 1, 1)) * 2 * np.pi
    wave, angle, radius = np.sin, np.arctan2(y, x), np.hypot(x, y)
    kinds = [
        wave(often * x),
        wave(often * y),
        wave(often * (x + y)),
        wave(often * (x - y)),
        wave(often * radius),
        wave(often * x) * wave(often * y),
        wave(5 * angle),
        wave(5 * angle + often * radius),
        np.maximum(wave(often * x), wave(often * y)),
        np.where(wave(often * x) * wave(often * y) > 0.3, 1.0, -1.0),
    ]
    pattern = np.choose(labels[:, None, None], kinds)
    colours = random.uniform(-1, 1, (2, count, 3, 1, 1))
    images = (
        colours[0] * pattern[:, None]
        + 0.5 * colours[1]
        + 0.3 * random.standard_normal((count, 3, SIZE, SIZE))
    )
    return images.astype(np.float32), labels


class Block(nn.Module):
    """Two convolutions beside a path that changes nothing, or only the size."""

    def __init__(self, before: int, width: int, step: int) -> None:
        self.conv1 = nn.Conv2d(before, width, 3, stride=step, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.beside = nn.Conv2d(before, width, 1, stride=step, bias=False) if step > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        found = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return (found + self.beside(x)).relu()


class Net(nn.Module):
    """Three groups of blocks, each of half the size and twice the channels: (n, 3, 32, 32) -> (n, 10)."""

    def __init__(self, width: int, blocks: int) -> None:
        self.first, self.norm = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        shapes = [
            (width << max(0, group - (number == 0)), width << group, 1 + (number == 0 < group))
            for group in range(3)
            for number in range(blocks)
        ]
        self.blocks = nn.Sequential(*[Block(*shape) for shape in shapes])
        self.last = nn.Linear(4 * width, KINDS)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(self.norm(self.first(x)).relu()).mean((2, 3)))


def train(options: argparse.Namespace) -> tuple[Net, list[float], float]:
    """The network, the loss of each step, and images per second behind the first few steps."""
    Tensor.manual_seed(options.seed)
    random = np.random.default_rng(options.seed)
    net = Net(options.width, options.blocks)
    optimizer = nn.optim.SGD(net.parameters(), lr=options.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)

    @jit
    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(images).cross_entropy(labels)
        loss.backward()
        optimizer.step()
        return loss.realize()

    losses, seconds, progress = [], 0.0, Progress("training", options.steps)
    for number in range(options.steps):
        images, labels = map(Tensor, textures(options.batch, random))
        optimizer.lr = options.lr * (1 - 0.95 * number / options.steps)
        began = time.perf_counter()
        losses.append(float(step(images, labels).item()))
        seconds += time.perf_counter() - began if number >= min(3, options.steps - 1) else 0.0
        progress.step(f"loss {losses[-1]:.3f}")
    progress.end(f"{options.steps} steps of {options.batch} images")
    return net, losses, options.batch * max(1, options.steps - 3) / seconds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Train a residual network on ten kinds of texture of 3 x 32 x 32; half a minute on two cores.",
        epilog="HCQ_DEVICE picks the device.",
    )
    parser.add_argument("--steps", type=int, default=150, help="of training (default 150)")
    parser.add_argument("--batch", type=int, default=64, help="images per step (default 64)")
    parser.add_argument("--width", type=int, default=8, help="channels of the first group (default 8)")
    parser.add_argument("--blocks", type=int, default=1, help="in each of the three groups (default 1)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate, which falls (default 0.05)")
    parser.add_argument("--seed", type=int, default=1, help="weights and images (default 1)")
    options = parser.parse_args(argv)
    if min(options.steps, options.batch, options.width, options.blocks) < 1:
        parser.error("--steps, --batch, --width and --blocks are 1 or more")
    net, losses, speed = train(options)
    print(curve(losses))
    net.eval()
    images, labels = textures(500, np.random.default_rng(options.seed + 1))
    with no_grad():
        right = float((net(Tensor(images)).argmax(1).numpy() == labels).mean())
    print(f"accuracy   {right:.3f} of 500 images that it has not seen (0.1 is chance)")
    print(f"training   {speed:,.0f} images a second, {sum(p.numel() for p in net.parameters()):,} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
