"""A diffusion model of points in the plane: noise becomes a spiral, in steps that a small network has learned.

In       points of a spiral, made here; flags (--help)
Out      the loss, and clouds of points: the data, noise, and what the network makes of noise
Changes  nothing but the cache of compiled kernels
Next     characters.py (text), terminal.py (what draws)
Source   Ho, Jain, Abbeel: "Denoising Diffusion Probabilistic Models", NeurIPS 2020

    python examples/diffusion.py
    python examples/diffusion.py --steps 4000 --points 4000
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works uninstalled

from hcq import Tensor, jit, nn
from hcq.torch import no_grad, tensor

if __package__ in (None, ""):
    from terminal import Progress, cloud, curve
else:
    from examples.terminal import Progress, cloud, curve

TIMES = 60  # steps from data to noise
REACH = 1.9


def spiral(count: int, random: Any) -> Any:
    """Points (count, 2) of a spiral of one and a half turns, with a little noise."""
    turn = np.sqrt(random.random(count)) * 3 * np.pi
    points = np.stack([turn * np.cos(turn), turn * np.sin(turn)], 1) / (1.8 * np.pi)
    return (points + 0.03 * random.standard_normal((count, 2))).astype(np.float32)


def distance(points: Any) -> float:
    """The mean distance of points to the spiral's middle line."""
    turn = np.linspace(0, 3 * np.pi, 600)
    line = np.stack([turn * np.cos(turn), turn * np.sin(turn)], 1) / (1.8 * np.pi)
    return float(np.sqrt(((points[:, None] - line) ** 2).sum(-1)).min(1).mean())


class Schedule:
    """How much of the data is left after each step: along a cosine, from all to nearly none."""

    def __init__(self) -> None:
        at = np.arange(TIMES + 1) / TIMES
        left = np.cos((at + 0.008) / 1.008 * math.pi / 2) ** 2
        self.beta = np.clip(1 - left[1:] / left[:-1], 0, 0.999)
        self.left = np.cumprod(1 - self.beta)


class Denoiser(nn.Module):
    """A point (n, 2) and a time (n,) -> the noise that is in the point (n, 2)."""

    def __init__(self, width: int) -> None:
        self.time = nn.Embedding(TIMES, width)
        self.place, self.inner = nn.Linear(2, width), nn.Linear(width, width)
        self.inner2, self.noise = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = (self.place(x) + self.time(time)).silu()
        x = x + self.inner(x).silu()
        return self.noise(x + self.inner2(x).silu())


def train(net: Denoiser, schedule: Schedule, options: argparse.Namespace, random: Any) -> list[float]:
    """The loss of each step: how far the noise that the network sees is from the noise that was added."""
    optimizer = nn.optim.Adam(net.parameters(), lr=options.lr)
    left = Tensor(schedule.left.astype(np.float32)).realize()

    @jit
    def step(points: Tensor) -> Tensor:
        count = points.shape[0]
        time = Tensor.randint(0, TIMES, (count,))
        noise = Tensor.randn(count, 2)
        kept = left[time].reshape(count, 1)
        seen = points * kept.sqrt() + noise * (1 - kept).sqrt()
        optimizer.zero_grad()
        loss = (net(seen, time) - noise).square().mean()
        loss.backward()
        optimizer.step()
        return loss.realize()

    losses, progress = [], Progress("training", options.steps)
    for _ in range(options.steps):
        losses.append(float(step(Tensor(spiral(options.batch, random))).item()))
        progress.step(f"loss {losses[-1]:.3f}")
    progress.end(f"{options.steps} steps of {options.batch} points")
    return losses


def sample(net: Denoiser, schedule: Schedule, count: int) -> Any:
    """Points from noise: one recording, submitted for each of the steps back."""

    @jit
    def back(x: Tensor, time: Tensor, numbers: Tensor) -> Tensor:
        with no_grad():
            noise = net(x, time.expand(count))
            cleaned = (x - noise * numbers[0]) * numbers[1]
            return (cleaned + Tensor.randn(count, 2) * numbers[2]).realize()

    x = Tensor.randn(count, 2)
    for time in reversed(range(TIMES)):
        beta, left = schedule.beta[time], schedule.left[time]
        before = schedule.left[time - 1] if time else 1.0
        spread = math.sqrt(beta * (1 - before) / (1 - left))
        numbers = [beta / math.sqrt(1 - left), 1 / math.sqrt(1 - beta), spread]
        x = back(x, tensor([time]), Tensor(numbers))
    return x.numpy()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Teach a small network to turn noise into a spiral; some seconds on two cores.",
        epilog="HCQ_DEVICE picks the device.",
    )
    parser.add_argument("--steps", type=int, default=3000, help="of training (default 3000)")
    parser.add_argument("--batch", type=int, default=512, help="points per step (default 512)")
    parser.add_argument("--width", type=int, default=128, help="of the network's layers (default 128)")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate (default 0.002)")
    parser.add_argument("--points", type=int, default=1500, help="to make of noise (default 1500)")
    parser.add_argument("--seed", type=int, default=1, help="weights, data and noise (default 1)")
    options = parser.parse_args(argv)
    if min(options.steps, options.batch, options.width, options.points) < 1:
        parser.error("--steps, --batch, --width and --points are 1 or more")
    random = np.random.default_rng(options.seed)
    Tensor.manual_seed(options.seed)
    net, schedule = Denoiser(options.width), Schedule()
    losses = train(net, schedule, options, random)
    print(curve(losses))
    made = sample(net, schedule, options.points)
    noise = random.standard_normal(made.shape)
    print(f"\nnoise, {distance(noise):.3f} from the spiral in the mean, becomes")
    print(cloud(made, REACH))
    print(
        f"which is {distance(made):.3f} from it; the data itself {distance(spiral(options.points, random)):.3f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
