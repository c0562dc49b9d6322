"""An image from noise in the shape of Stable Diffusion: a UNet with attention, a decoder of latents; random weights.

In       nothing; flags (--help): the width and the size decide how long it takes
Out      how long a step takes, and an image as a file that every viewer opens (of random weights: a pattern)
Changes  the image's file; the cache of compiled kernels
Next     diffusion.py (the same idea, trained, in two dimensions), whisper.py, resnet.py
Source   Rombach et al.: "High-Resolution Image Synthesis with Latent Diffusion Models", CVPR 2022; the second
         command below has the sizes of version 1's UNet

    python examples/unet.py
    python examples/unet.py --width 320 --size 64 --text 768 --heads 8 --steps 4 --image picture.ppm
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works uninstalled

from hcq import Tensor, jit, nn
from hcq.frontend.nn import functional
from hcq.torch import no_grad

if __package__ in (None, ""):
    from terminal import Progress
else:
    from examples.terminal import Progress

WORDS, TIMES = 77, 1000


class Residual(nn.Module):
    """Two convolutions that the time has a say in, beside a path that changes only the channels."""

    def __init__(self, before: int, width: int, time: int) -> None:
        self.norm1, self.norm2 = nn.GroupNorm(8, before), nn.GroupNorm(8, width)
        self.conv1, self.conv2 = nn.Conv2d(before, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(time, width)
        self.beside = nn.Conv2d(before, width, 1) if before != width else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        found = self.conv1(self.norm1(x).silu()) + self.time(time.silu()).reshape(1, -1, 1, 1)
        return self.beside(x) + self.conv2(self.norm2(found).silu())


class Attention(nn.Module):
    """Places look at each other, or at the text."""

    def __init__(self, width: int, source: int, heads: int) -> None:
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(source, width, bias=False)
        self.value, self.leave = nn.Linear(source, width, bias=False), nn.Linear(width, width)

    def forward(self, x: Tensor, text: Tensor | None = None) -> Tensor:
        inside = self.norm(x)
        source = inside if text is None else text
        query, key, value = (
            part.reshape(1, part.shape[1], self.heads, -1).transpose(1, 2)
            for part in (self.query(inside), self.key(source), self.value(source))
        )
        found = functional.scaled_dot_product_attention(query, key, value)
        return x + self.leave(found.transpose(1, 2).reshape(x.shape))


class Transformer(nn.Module):
    """Attention among the places of an image, to the text, and a gated layer."""

    def __init__(self, width: int, text: int, heads: int) -> None:
        self.norm = nn.GroupNorm(8, width)
        self.own, self.other = Attention(width, width, heads), Attention(width, text, heads)
        self.norm2, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 8 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        places = self.norm(x).flatten(2).transpose(1, 2)
        places = self.other(self.own(places), text)
        value, gate = self.up(self.norm2(places)).chunk(2, dim=-1)
        places = places + self.down(value * gate.gelu())
        return x + places.transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """A latent (1, 4, n, n), a time and a text (1, 77, text) -> the noise in the latent."""

    def __init__(self, width: int, text: int, heads: int, levels: int) -> None:
        time = 4 * width
        self.width = width
        self.time1, self.time2 = nn.Linear(width, time), nn.Linear(time, time)
        self.first = nn.Conv2d(4, width, 3, padding=1)
        widths = [width << min(level, 2) for level in range(levels)]
        self.down, self.looks_down, self.smaller = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        self.up, self.looks_up, self.larger = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        before = width
        for level, now in enumerate(widths):
            self.down.append(Residual(before, now, time))
            self.looks_down.append(Transformer(now, text, heads))
            last = level == levels - 1
            self.smaller.append(nn.Identity() if last else nn.Conv2d(now, now, 3, stride=2, padding=1))
            before = now
        self.middle, self.look = Residual(before, before, time), Transformer(before, text, heads)
        for level, now in reversed(list(enumerate(widths))):
            self.up.append(Residual(before + now, now, time))
            self.looks_up.append(Transformer(now, text, heads))
            self.larger.append(nn.Conv2d(now, now, 3, padding=1) if level else nn.Identity())
            before = now
        self.norm, self.last = nn.GroupNorm(8, width), nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        rates = (Tensor.arange(self.width // 2).float() * (-math.log(10_000) / (self.width // 2))).exp()
        waves = time * rates
        time = self.time2(self.time1(Tensor.cat([waves.cos(), waves.sin()], dim=0)).silu())
        x = self.first(x)
        beside = []
        for block, look, smaller in zip(self.down, self.looks_down, self.smaller):
            x = look(block(x, time), text)
            beside.append(x)
            x = smaller(x)
        x = self.look(self.middle(x, time), text)
        for number, (block, look, larger) in enumerate(zip(self.up, self.looks_up, self.larger)):
            x = look(block(Tensor.cat([x, beside.pop()], dim=1), time), text)
            if number < len(self.up) - 1:
                x = larger(functional.interpolate(x, scale_factor=2, mode="nearest"))
        return self.last(self.norm(x).silu())


class Decoder(nn.Module):
    """A latent (1, 4, n, n) -> an image (1, 3, 8 n, 8 n) between 0 and 1."""

    def __init__(self, width: int) -> None:
        widths = [width, max(8, width // 2), max(8, width // 4), 8]
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.steps = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, widths[1:])])
        self.last = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for step in self.steps:
            x = step(functional.interpolate(x.silu(), scale_factor=2, mode="nearest"))
        return self.last(x.silu()).sigmoid()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Noise to an image in the shape of Stable Diffusion, with random weights.",
        epilog="HCQ_DEVICE picks the device.",
    )
    parser.add_argument(
        "--width", type=int, default=32, help="channels of the first level, by 8s (default 32)"
    )
    parser.add_argument(
        "--size", type=int, default=16, help="of the latent, an eighth of the image's (default 16)"
    )
    parser.add_argument("--text", type=int, default=64, help="numbers per word of the text (default 64)")
    parser.add_argument("--heads", type=int, default=4, help="of attention (default 4)")
    parser.add_argument(
        "--levels", type=int, default=3, help="of sizes, each the half of the one before (default 3)"
    )
    parser.add_argument("--steps", type=int, default=10, help="from noise to the image (default 10)")
    parser.add_argument(
        "--image", metavar="FILE.ppm", help="where the image goes (default: a temporary file)"
    )
    parser.add_argument("--seed", type=int, default=1, help="weights, text and noise (default 1)")
    options = parser.parse_args(argv)
    if min(options.width, options.size, options.text, options.heads, options.levels, options.steps) < 1:
        parser.error("--width, --size, --text, --heads, --levels and --steps are 1 or more")
    if options.width % 8 or options.width % options.heads or options.size % (1 << (options.levels - 1)):
        parser.error("--width is a multiple of 8 and of --heads, --size of 2 to the power of --levels - 1")
    Tensor.manual_seed(options.seed)
    net = UNet(options.width, options.text, options.heads, options.levels).eval()
    decoder = Decoder(options.width).eval()
    print(
        f"{sum(p.numel() for p in net.parameters()):,} parameters, {8 * options.size} x {8 * options.size} pixels"
    )
    text = Tensor.randn(1, WORDS, options.text).realize()
    left = np.cos((np.arange(TIMES + 1) / TIMES + 0.008) / 1.008 * math.pi / 2) ** 2

    @jit
    def step(x: Tensor, time: Tensor, now: Tensor, after: Tensor) -> Tensor:
        """One step of DDIM: what is left of the noise."""
        with no_grad():
            noise = net(x, time, text)
            clean = (x - noise * (1 - now).sqrt()) / now.sqrt()
            return (clean * after.sqrt() + noise * (1 - after).sqrt()).realize()

    x = Tensor.randn(1, 4, options.size, options.size).realize()
    times, progress = [], Progress("steps", options.steps)
    at = np.linspace(TIMES - 1, 0, options.steps + 1).astype(int)
    for now, after in zip(at, at[1:]):
        began = time.perf_counter()
        numbers = [Tensor([float(value)]) for value in (now, left[now], left[after])]
        x = step(x, *numbers)
        x.numpy()
        times.append(time.perf_counter() - began)
        progress.step(f"{1e3 * times[-1]:.0f} ms")
    progress.end(
        f"{options.steps} of {1e3 * min(times):.1f} ms; the first, with compiling, took {times[0]:.1f} s"
    )
    with no_grad():
        image = (decoder(x / x.std())[0].permute(1, 2, 0) * 255).numpy().astype(np.uint8)
    path = Path(options.image or Path(tempfile.gettempdir()) / "hcq-unet.ppm")
    path.write_bytes(b"P6 %d %d 255\n" % image.shape[1::-1] + image.tobytes())
    print(f"image      {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
