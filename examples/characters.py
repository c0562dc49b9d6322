"""Train a small transformer on Shakespeare, one character after the other, and let it go on writing.

In       the beginning of Coriolanus (data/README.md says whose copy), flags (--help)
Out      the loss on text that it has not seen, a curve of the loss, and new text
Changes  nothing but the cache of compiled kernels
Next     digits.py (images), terminal.py (what draws), docs/training.md

    python examples/characters.py
    python examples/characters.py --steps 2000 --layers 4 --width 192
"""

from __future__ import annotations

import argparse
import gzip
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works uninstalled

from hcq import Tensor, jit, nn
from hcq.frontend.nn import functional
from hcq.torch import no_grad, tensor

if __package__ in (None, ""):
    from terminal import Progress, curve
else:
    from examples.terminal import Progress, curve

DATA = Path(__file__).resolve().parent / "data" / "coriolanus.txt.gz"


class Block(nn.Module):
    """Causal attention, then two linear layers; each beside a residual path."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.leave = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attend(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.leave(found.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.up(self.norm2(x)).gelu())


class Writer(nn.Module):
    """Characters as numbers (batch, length) -> how likely each character comes next (batch, length, characters)."""

    def __init__(self, characters: int, length: int, width: int, layers: int, heads: int) -> None:
        self.embed, self.places = nn.Embedding(characters, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.places(Tensor.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def rate(step: int, options: argparse.Namespace) -> float:
    """The learning rate: up for a twentieth of the steps, then down along a cosine."""
    warm = max(1, options.steps // 20)
    if step < warm:
        return float(options.lr * (step + 1) / warm)
    return float(
        options.lr
        * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warm) / (options.steps - warm + 1))))
    )


def train(options: argparse.Namespace, text: Any, characters: int) -> tuple[Writer, list[float], float]:
    """The trained network, the loss of each step, and the loss on the text's last tenth, which is not trained on."""
    Tensor.manual_seed(options.seed)
    net = Writer(characters, options.length, options.width, options.layers, options.heads)
    optimizer = nn.optim.AdamW(net.parameters(), lr=options.lr)
    kept = text[: -len(text) // 10]
    random = np.random.default_rng(options.seed)

    def batch(source: Any) -> tuple[Tensor, Tensor]:
        starts = random.integers(0, len(source) - options.length - 1, options.batch)
        rows = source[starts[:, None] + np.arange(options.length + 1)]
        return Tensor(rows[:, :-1]), Tensor(rows[:, 1:])

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return net(x).reshape(-1, characters).cross_entropy(y.reshape(-1))

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss.realize()

    losses: list[float] = []
    progress = Progress("training", options.steps)
    for number in range(options.steps):
        optimizer.lr = rate(number, options)  # in the device's memory, so the recording sees it
        losses.append(float(step(*batch(kept)).item()))
        progress.step(f"loss {losses[-1]:.3f}")
    unseen = text[-len(text) // 10 :]
    with no_grad():
        checked = [float(loss_of(*batch(unseen)).item()) for _ in range(4)]
    progress.end(f"{options.steps} steps of {options.batch} x {options.length} characters")
    return net, losses, sum(checked) / len(checked)


def write(net: Writer, start: list[int], count: int, options: argparse.Namespace) -> list[int]:
    """`count` more characters, each drawn from what the network holds likely: one recording writes all of them."""

    @jit
    def following(window: Tensor, last: Tensor) -> Tensor:
        with no_grad():
            scores = net(window)[0].gather(0, last.reshape(1, 1).expand(1, net.head.weight.shape[0]))[0]
            noise = -(-(Tensor.rand(scores.shape[0]) + 1e-9).log()).log()  # the largest with this is a draw
            return (scores / options.temperature + noise).argmax(0)

    found = list(start)
    for _ in range(count):
        shown = found[-options.length :]
        window = np.zeros((1, options.length), np.int64)
        window[0, : len(shown)] = shown
        found.append(int(following(Tensor(window), tensor(len(shown) - 1)).item()))
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Train a small transformer on 71,000 characters of Shakespeare; half a minute on two cores.",
        epilog="HCQ_DEVICE picks the device.",
    )
    parser.add_argument("--steps", type=int, default=300, help="of training (default 300)")
    parser.add_argument("--batch", type=int, default=16, help="pieces of text per step (default 16)")
    parser.add_argument(
        "--length", type=int, default=64, help="characters that the network sees (default 64)"
    )
    parser.add_argument("--width", type=int, default=128, help="numbers per character inside (default 128)")
    parser.add_argument("--layers", type=int, default=2, help="blocks (default 2)")
    parser.add_argument(
        "--heads", type=int, default=4, help="of attention, a divisor of the width (default 4)"
    )
    parser.add_argument("--lr", type=float, default=3e-3, help="the highest learning rate (default 0.003)")
    parser.add_argument("--temperature", type=float, default=0.8, help="of what is written (default 0.8)")
    parser.add_argument("--write", type=int, default=300, help="characters to write (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="weights, batches and draws (default 1)")
    options = parser.parse_args(argv)
    if min(options.steps, options.batch, options.length, options.layers, options.heads) < 1:
        parser.error("--steps, --batch, --length, --layers and --heads are 1 or more")
    if options.width < 1 or options.width % options.heads or options.temperature <= 0 or options.write < 0:
        parser.error("--width is a multiple of --heads, --temperature more than 0, --write 0 or more")

    raw = gzip.decompress(DATA.read_bytes()).decode()
    known = sorted(set(raw))
    text = np.array([known.index(character) for character in raw])
    net, losses, unseen = train(options, text, len(known))
    print(curve(losses))
    print(
        f"loss on unseen text   {unseen:.3f} ({math.exp(unseen):.1f} of {len(known)} characters are likely next)"
    )
    began = time.perf_counter()
    start = "MENENIUS:\n"
    written = write(net, [known.index(character) for character in start], options.write, options)
    seconds = time.perf_counter() - began
    print(f"writing               {options.write / seconds:,.0f} characters a second")
    print()
    print("".join(known[number] for number in written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
