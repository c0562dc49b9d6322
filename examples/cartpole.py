"""Balance a pole on a cart: a network learns from nothing but how long the pole stays up.

In       the physics of the cart, made here; flags (--help)
Out      how many steps the pole stays up, as a curve over the episodes
Changes  nothing but the cache of compiled kernels
Next     characters.py, diffusion.py (other networks), terminal.py (what draws)
Source   Barto, Sutton, Anderson 1983 (the cart and its numbers); Williams 1992 (REINFORCE)

    python examples/cartpole.py
    python examples/cartpole.py --rounds 100 --carts 64
"""

from __future__ import annotations

import argparse
import sys
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

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MOST = 200  # steps of an episode
FURTHEST, STEEPEST = 2.4, np.radians(12)


class Carts:
    """Many carts at once: place, speed, angle, turn of each, (n, 4)."""

    def __init__(self, count: int, random: Any) -> None:
        self.state = random.uniform(-0.05, 0.05, (count, 4))
        self.is_up = np.ones(count, bool)

    def push(self, to_the_right: Any) -> Any:
        """One step of the physics; which poles were up before it."""
        was_up = self.is_up.copy()
        _, speed, angle, turn = self.state.T
        force = np.where(to_the_right, FORCE, -FORCE)
        sine, cosine = np.sin(angle), np.cos(angle)
        pushed = (force + POLE * HALF_LENGTH * turn**2 * sine) / (CART + POLE)
        swing = (GRAVITY * sine - cosine * pushed) / (
            HALF_LENGTH * (4 / 3 - POLE * cosine**2 / (CART + POLE))
        )
        gain = pushed - POLE * HALF_LENGTH * swing * cosine / (CART + POLE)
        self.state = self.state + SECONDS * np.stack([speed, gain, turn, swing], 1)
        self.is_up &= (np.abs(self.state[:, 0]) < FURTHEST) & (np.abs(self.state[:, 2]) < STEEPEST)
        return was_up


class Policy(nn.Module):
    """The state of a cart (n, 4) -> scores of a push to the left and to the right (n, 2)."""

    def __init__(self, width: int) -> None:
        self.inner, self.scores = nn.Linear(4, width), nn.Linear(width, 2)
        self.scale = Tensor(
            [1.0, 1.0, 8.0, 1.0]
        )  # a made tensor is no part of a recording, so it is made here

    def forward(self, state: Tensor) -> Tensor:
        return self.scores(self.inner(state * self.scale).tanh())


def returns(alive: Any) -> Any:
    """How long each pole still stays up from each step on, discounted; (steps, carts)."""
    found = np.zeros(alive.shape, np.float32)
    total = np.zeros(alive.shape[1], np.float32)
    for step in reversed(range(len(alive))):
        total = alive[step] * (1 + 0.98 * total)
        found[step] = total
    return found


def learn(options: argparse.Namespace) -> list[float]:
    """The mean length of the episodes of every round."""
    Tensor.manual_seed(options.seed)
    random = np.random.default_rng(options.seed)
    policy = Policy(options.width)
    optimizer = nn.optim.Adam(policy.parameters(), lr=options.lr)

    @jit
    def chances(state: Tensor) -> Tensor:
        with no_grad():
            return policy(state).softmax(1)[:, 1]

    @jit
    def improve(states: Tensor, pushes: Tensor, gains: Tensor) -> Tensor:
        optimizer.zero_grad()
        likely = policy(states).log_softmax(1).gather(1, pushes.reshape(-1, 1)).reshape(-1)
        loss = -(likely * gains).sum() / gains.abs().sum().clamp(min=1.0)
        loss.backward()
        optimizer.step()
        return loss.realize()

    lengths: list[float] = []
    progress = Progress("learning", options.rounds)
    for _ in range(options.rounds):
        carts = Carts(options.carts, random)
        states = np.zeros((MOST, options.carts, 4), np.float32)
        pushes = np.zeros((MOST, options.carts), np.int64)
        alive = np.zeros((MOST, options.carts), np.float32)
        for step in range(MOST):
            states[step] = carts.state
            right = chances(Tensor(states[step])).numpy()
            pushes[step] = random.random(options.carts) < right
            alive[step] = carts.push(pushes[step])
            if not carts.is_up.any():
                break
        gains = returns(alive)
        mean = gains.sum() / alive.sum()
        deviation = np.sqrt(((gains - mean) ** 2 * alive).sum() / alive.sum()) + 1e-6
        gains = (gains - mean) / deviation * alive
        improve(Tensor(states.reshape(-1, 4)), Tensor(pushes.reshape(-1)), Tensor(gains.reshape(-1)))
        lengths.append(float(alive.sum(0).mean()))
        progress.step(f"{lengths[-1]:.0f} steps up")
    progress.end(f"{options.rounds} rounds of {options.carts} carts")
    return lengths


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Learn to balance a pole on a cart for 200 steps, from how long it stays up; some seconds.",
        epilog="HCQ_DEVICE picks the device.",
    )
    parser.add_argument(
        "--rounds", type=int, default=60, help="of episodes, each with an update (default 60)"
    )
    parser.add_argument("--carts", type=int, default=32, help="episodes at the same time (default 32)")
    parser.add_argument("--width", type=int, default=32, help="of the network's inner layer (default 32)")
    parser.add_argument("--lr", type=float, default=2e-2, help="learning rate (default 0.02)")
    parser.add_argument("--seed", type=int, default=1, help="weights, pushes and starts (default 1)")
    options = parser.parse_args(argv)
    if min(options.rounds, options.carts, options.width) < 1:
        parser.error("--rounds, --carts and --width are 1 or more")
    lengths = learn(options)
    print(curve(lengths))
    last = lengths[-max(1, len(lengths) // 10) :]
    print(
        f"the pole stays up for {sum(last) / len(last):.0f} of {MOST} steps in the end, {lengths[0]:.0f} at first"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
