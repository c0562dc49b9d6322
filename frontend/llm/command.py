"""The command `python -m hcq llm`: a model writes in the terminal.

In       a model's path, or the name of an architecture; a prompt
Out      text as it is written, and how many tokens a second
Changes  nothing that stays
Next     files.py (the model), session.py (tokens), sampling.py (the switches), hcq/__main__.py (the program)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

from hcq.frontend.errors import UsageError
from hcq.frontend.llm.configuration import Configuration
from hcq.frontend.llm.files import Opened, open_model
from hcq.frontend.llm.model import Model
from hcq.frontend.llm.sampling import Sampler
from hcq.frontend.llm.session import Session

EPILOG = """examples:
  python -m hcq llm model.gguf "Once upon a time"
  python -m hcq llm folder-of-safetensors --temperature 0 --tokens 64 "def main"
  python -m hcq llm model.gguf                 reads the prompt from standard input
  python -m hcq llm --random gpt2              random weights of that size, to see how fast it is; writes numbers

docs/language-models.md says which models are known.
"""
# sizes of models that people know, for random weights
SIZES = {
    "gpt2": Configuration(
        "gpt2", 50257, 768, 12, 12, 12, 64, 3072, 1024, 1e-5, False, "gelu_tanh", True, rotary_base=0.0
    ),
    "llama-15m": Configuration("llama", 32000, 288, 6, 6, 6, 48, 768, 1024, rotary_size=48),
    "llama-160m": Configuration("llama", 32000, 768, 12, 12, 12, 64, 3072, 2048, rotary_size=64),
    "llama-1b": Configuration(
        "llama", 128256, 2048, 16, 32, 8, 64, 8192, 8192, rotary_base=500000.0, rotary_size=64
    ),
}


def add_verb(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a GGUF file, or a folder with config.json")
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="?", help="what it goes on from; default: standard input"
    )
    parser.add_argument(
        "--random", metavar="SIZE", choices=sorted(SIZES), help=f"random weights: {', '.join(SIZES)}"
    )
    parser.add_argument(
        "--tokens", metavar="N", type=int, default=128, help="how many at most (default: %(default)s)"
    )
    parser.add_argument("--context", metavar="N", type=int, default=0, help="room for tokens (default: 2048)")
    parser.add_argument("--device", metavar="NAME", help="CPU, AMD, NV:1, ... (default: HCQ_DEVICE)")
    parser.add_argument(
        "--temperature", type=float, default=0.8, help="0: always the likeliest (default: %(default)s)"
    )
    parser.add_argument("--top-k", type=int, default=40, help="of so many; 0: of all (default: %(default)s)")
    parser.add_argument(
        "--top-p", type=float, default=0.95, help="of this probability (default: %(default)s)"
    )
    parser.add_argument("--min-p", type=float, default=0.05, help="of the likeliest's (default: %(default)s)")
    parser.add_argument(
        "--repetition", type=float, default=1.0, help="penalty; 1: none (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, help="the same seed writes the same text")


def run(options: argparse.Namespace) -> int:
    """Write. Returns the exit status."""
    opened = _opened(options)
    names = ("temperature", "top_k", "top_p", "min_p", "repetition", "seed")
    sampler = Sampler(**{name: getattr(options, name) for name in names})
    session = Session(opened.model, options.context, options.device)
    if opened.tokenizer is None:
        prompt, ends = [0], frozenset[int]()
    else:
        text = options.prompt if options.prompt is not None else sys.stdin.read()
        prompt, ends = opened.tokenizer.encode(text), opened.tokenizer.ends
        print(text, end="", flush=True)
    clock = _Clock(session.write(prompt, sampler, options.tokens, ends))
    if opened.tokenizer is None:
        for token in clock:
            print(token, end=" ", flush=True)
    else:
        for piece in opened.tokenizer.stream(clock):
            print(piece, end="", flush=True)
    print()
    print(f"{opened.name}: {clock.said()}", file=sys.stderr)
    return 0


def _opened(options: argparse.Namespace) -> Opened:
    if options.random and options.model is None:
        model = Model.random(SIZES[options.random], options.seed or 0, options.device)
        return Opened(model, None, f"{options.random} with random weights")
    if options.random or options.model is None:
        raise UsageError("[llm] give a model's path, or --random SIZE, one of them.")
    return open_model(options.model, options.device)


class _Clock:
    """Tokens as they come, and when they came."""

    def __init__(self, tokens: Iterator[int]):
        self._tokens = tokens
        self._times = [time.perf_counter()]

    def __iter__(self) -> Iterator[Any]:
        for token in self._tokens:
            self._times.append(time.perf_counter())
            yield token

    def said(self) -> str:
        """How long it took; the first few tokens also compile and record, and are told apart."""
        count = len(self._times) - 1
        text = f"{count} tokens in {self._times[-1] - self._times[0]:.1f} s"
        if count > 4:
            rate = (count - 4) / (self._times[-1] - self._times[4])
            text += f", {rate:.1f} a second after the fourth"
        return text
