"""Sound to tokens in the shape of Whisper: an encoder of spectrograms, a decoder of tokens; the weights are random.

In       a mono .wav file of 16 bits, or a chord that is made here; flags (--help)
Out      the tokens (of random weights: nonsense), how long each part takes, how many tokens a second
Changes  nothing but the cache of compiled kernels
Next     resnet.py, unet.py (other people's shapes), characters.py (a network that is trained)
Source   Radford et al.: "Robust Speech Recognition via Large-Scale Weak Supervision", 2022 (the sizes of "tiny")

    python examples/whisper.py
    python examples/whisper.py --layers 2 --width 128 --tokens 32 --sound speech.wav
"""

from __future__ import annotations

import argparse
import sys
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works uninstalled

from hcq import Tensor, jit, nn
from hcq.torch import no_grad, tensor

RATE, WINDOW, STEP, BANDS = 16_000, 400, 160, 80
WORDS = 51_865
START, END = 50_258, 50_257


def sound_of(path: str | None, seconds: int) -> Any:
    """Samples between -1 and 1, cut or filled up to so many seconds."""
    if path is None:
        at = np.arange(2 * RATE) / RATE
        samples = sum(np.sin(2 * np.pi * tone * at) for tone in (220, 277, 330)) / 3
    else:
        with wave.open(path) as file:
            if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, RATE):
                raise SystemExit(f"{path}: has to be mono, of 16 bits and {RATE} samples a second.")
            samples = np.frombuffer(file.readframes(seconds * RATE), "<i2") / 32768
    samples = samples[: seconds * RATE]
    return np.pad(samples, (0, seconds * RATE - len(samples))).astype(np.float32)


def filters() -> Any:
    """Triangles on the mel scale: (bands, frequencies)."""
    mel = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    at = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    up = (at - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - at) / (edges[2:] - edges[1:-1])[:, None]
    return (np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)


class Spectrogram:
    """Samples (n,) -> logarithms of the energy in each band (1, bands, n / 160), between -1 and 1 or so."""

    def __init__(self) -> None:
        at = np.arange(WINDOW)
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * at / WINDOW)
        turn = 2 * np.pi * np.outer(np.arange(WINDOW // 2 + 1), at) / WINDOW
        self.waves = Tensor(np.concatenate([np.cos(turn), np.sin(turn)]) * hann).float().realize()
        self.filters = Tensor(filters()).realize()

    def __call__(self, samples: Tensor) -> Tensor:
        count = samples.shape[0] // STEP
        pieces = samples.pad((WINDOW // 2, WINDOW // 2), mode="reflect").unfold(0, WINDOW, STEP)[:count]
        real, imaginary = (pieces @ self.waves.T).chunk(2, dim=1)
        energy = self.filters @ (real.square() + imaginary.square()).T
        found = energy.clamp(min=1e-10).log10()
        return ((found.maximum(found.max() - 8.0) + 4.0) / 4.0).unsqueeze(0)


class Whisper(nn.Module):
    """A spectrogram (1, bands, 2 n) and tokens (1, m) -> scores of the next word (1, m, words)."""

    def __init__(self, frames: int, width: int, layers: int, heads: int, room: int) -> None:
        self.conv1 = nn.Conv1d(BANDS, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        shape = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, heads, 4 * width, **shape), layers, nn.LayerNorm(width)
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(width, heads, 4 * width, **shape), layers, nn.LayerNorm(width)
        )
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(room, width)
        at = np.arange(frames)[:, None] * np.exp(-np.log(10_000) / (width // 2 - 1) * np.arange(width // 2))
        self.waves = Tensor(np.concatenate([np.sin(at), np.cos(at)], 1)).float().realize()
        self.later = Tensor(np.triu(np.full((room, room), -np.inf, np.float32), 1)).realize()

    def encode(self, spectrogram: Tensor) -> Tensor:
        x = self.conv2(self.conv1(spectrogram).gelu()).gelu().transpose(1, 2)
        return self.encoder(x + self.waves)

    def decode(self, tokens: Tensor, heard: Tensor) -> Tensor:
        count = tokens.shape[1]
        x = self.words(tokens) + self.places(Tensor.arange(count))
        return self.decoder(x, heard, tgt_mask=self.later[:count, :count]) @ self.words.weight.T


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Sound to tokens in the shape of Whisper (tiny), with random weights.",
        epilog="HCQ_DEVICE picks the device.",
    )
    parser.add_argument(
        "--sound", metavar="FILE.wav", help="mono, 16 bits, 16,000 samples a second (default: a chord)"
    )
    parser.add_argument("--seconds", type=int, default=30, help="of sound, cut or filled up (default 30)")
    parser.add_argument("--width", type=int, default=384, help="numbers per place inside (default 384)")
    parser.add_argument("--layers", type=int, default=4, help="of encoder and decoder each (default 4)")
    parser.add_argument(
        "--heads", type=int, default=6, help="of attention, a divisor of the width (default 6)"
    )
    parser.add_argument("--tokens", type=int, default=16, help="to write (default 16)")
    parser.add_argument("--seed", type=int, default=1, help="of the weights (default 1)")
    options = parser.parse_args(argv)
    if min(options.seconds, options.layers, options.heads, options.tokens) < 1:
        parser.error("--seconds, --layers, --heads and --tokens are 1 or more")
    if options.width < 4 or options.width % options.heads or options.width % 2:
        parser.error("--width is even, at least 4 and a multiple of --heads")
    Tensor.manual_seed(options.seed)
    room = options.tokens + 1
    net = Whisper(
        options.seconds * RATE // STEP // 2, options.width, options.layers, options.heads, room
    ).eval()
    listen = Spectrogram()
    print(f"{sum(p.numel() for p in net.parameters()):,} parameters, {options.seconds} s of sound")
    samples = Tensor(sound_of(options.sound, options.seconds)).realize()
    with no_grad():
        encode = jit(lambda samples: net.encode(listen(samples)))

        @jit
        def follow(tokens: Tensor, last: Tensor, heard: Tensor) -> Tensor:
            return net.decode(tokens, heard)[0][last].argmax(-1)

        times = []
        for _ in range(4):
            began = time.perf_counter()
            heard = encode(samples).realize()
            heard.numpy()
            times.append(time.perf_counter() - began)
        print(f"encoded in {1e3 * min(times):.0f} ms; the first time, with compiling, {times[0]:.1f} s")
        tokens, times = [START], []
        for _ in range(options.tokens):
            window = np.full((1, room), END)
            window[0, : len(tokens)] = tokens
            began = time.perf_counter()
            tokens.append(int(follow(Tensor(window), tensor(len(tokens) - 1), heard).item()))
            times.append(time.perf_counter() - began)
    print(f"decoded at {1 / min(times):,.0f} tokens a second: {tokens[1:]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
