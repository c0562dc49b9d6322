"""The command `python -m hcq llm`: a model writes in the terminal, talks there, or answers programs and a page.

In       a model's path, or the name of a size; a prompt, --chat or --serve
Out      text as it is written, and how many tokens a second; with --serve, an address
Changes  nothing that stays
Next     files.py (the model), session.py (tokens), talk.py (--chat), server.py (--serve), hcq/__main__.py (the program)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

from hcq.checks import printable
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.configuration import Configuration
from hcq.frontend.more.llm.files import Opened, open_model
from hcq.frontend.more.llm.model import Model
from hcq.frontend.more.llm.sampling import Sampler
from hcq.frontend.more.llm.session import Session

INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended
EPILOG = """three ways to use it:
  a prompt      the model goes on from it; text appears as it is written, Ctrl-C ends it
  --chat        a conversation in the terminal: a line from you, an answer from the model
  --serve       a server on this machine alone (127.0.0.1): a page to talk to at /, and what programs written for
                OpenAI's API ask for: /v1/models, /v1/chat/completions, /v1/completions, with and without streaming

examples:
  python -m hcq llm model.gguf "Once upon a time"
  python -m hcq llm folder-of-safetensors --temperature 0 --tokens 64 "def main"
  python -m hcq llm model.gguf < prompt.txt    the prompt comes from standard input
  python -m hcq llm model.gguf --chat
  python -m hcq llm model.gguf --serve --port 8080 --slots 4
  python -m hcq llm --random gpt2              random weights of that size, to see how fast it is; writes numbers

with --serve running:
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
       -d '{"messages": [{"role": "user", "content": "Hello!"}], "stream": true}'

docs/language-models.md says which models are known, and what the server answers and refuses.
"""


# options of a number: what it is, type, what holds without it
Numbers = dict[str, tuple[str, type, float | None]]
PLAIN: Numbers = {
    "tokens": ("how many at most", int, 128),
    "context": ("room for tokens; 0: 2048, or what the model knows", int, 0),
}
CHOICE: Numbers = {
    "temperature": ("0: always the likeliest", float, 0.8),
    "top-k": ("of so many; 0: of all", int, 40),
    "top-p": ("of this probability", float, 0.95),
    "min-p": ("of the likeliest's", float, 0.05),
    "repetition": ("penalty; 1: none", float, 1.0),
    "seed": ("the same seed writes the same text", int, None),
}
SERVED: Numbers = {
    "port": ("0: a free one", int, 8080),
    "slots": ("answers written at once", int, 4),
    "waiting": ("requests that wait beside", int, 16),
    "seconds": ("that an answer may take", float, 600.0),
}


def add_verb(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.epilog = EPILOG
    parser.set_defaults(act=run)
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a GGUF file, or a folder with config.json")
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="?", help="what it goes on from; default: standard input"
    )
    parser.add_argument(
        "--random", metavar="SIZE", choices=sorted(SIZES), help=f"random weights: {', '.join(SIZES)}"
    )
    parser.add_argument("--device", metavar="NAME", help="CPU, AMD, NV:1, ... (default: HCQ_DEVICE)")
    parser.add_argument("--chat", action="store_true", help="a conversation in the terminal")
    choice = parser.add_argument_group("which token is chosen")
    served = parser.add_argument_group("a server")
    served.add_argument("--serve", action="store_true", help="answer programs and a page on this machine")
    for group, numbers in ((parser, PLAIN), (choice, CHOICE), (served, SERVED)):
        for name, (says, kind, plain) in numbers.items():
            says += "" if plain is None else " (default: %(default)g)"
            group.add_argument(f"--{name}", metavar="N", type=kind, default=plain, help=says)


def run(options: argparse.Namespace) -> int:
    """Write, talk or serve. Returns the exit status."""
    _check(options)
    names = ("temperature", "top_k", "top_p", "min_p", "repetition", "seed")
    chosen = {name: getattr(options, name) for name in names}
    sampler = Sampler(**chosen)
    opened = _opened(options)
    if options.serve:
        return _serve(opened, options, chosen)
    session = Session(opened.model, options.context, options.device)
    if options.chat:
        from hcq.frontend.more.llm.talk import talk

        return talk(opened, session, sampler, options.tokens)
    return _write(opened, session, sampler, options)


def _check(options: argparse.Namespace) -> None:
    if (options.model is None) == (options.random is None):
        raise UsageError("[llm] give a model's path, or --random SIZE, one of them.")
    if options.serve and (options.chat or options.prompt is not None):
        raise UsageError("[llm] --serve answers who asks: it takes no prompt and no --chat.")
    if options.tokens < 1 or options.context < 0:
        raise UsageError(
            f"[llm] --tokens {options.tokens} --context {options.context}: give 1 or more, and 0 or more."
        )
    if not (1 <= options.slots <= 256 and 0 <= options.waiting <= 4096 and options.seconds > 0):
        raise UsageError(
            f"[llm] --slots {options.slots} --waiting {options.waiting} --seconds {options.seconds:g}: slots are from "
            "1 to 256, waiting from 0 to 4096, seconds above 0."
        )


def _write(opened: Opened, session: Session, sampler: Sampler, options: argparse.Namespace) -> int:
    if opened.tokenizer is None:
        if options.prompt is not None:
            raise UsageError(
                f"[llm] {opened.name} has no tokenizer, so it reads no text. Leave the prompt out: "
                "it goes on from token 0."
            )
        prompt, ends = [0], frozenset[int]()
    else:
        if options.prompt is None and sys.stdin.isatty():
            print("Write the text that it goes on from; Ctrl-D ends it.", file=sys.stderr)
        text = options.prompt if options.prompt is not None else sys.stdin.read()
        prompt, ends = opened.tokenizer.encode(text), opened.tokenizer.ends
        if not prompt:
            raise UsageError(
                "[llm] the prompt is empty, and the model has no token that begins texts. Write something."
            )
        print(text, end="", flush=True)
    clock = Clock(session.write(prompt, sampler, options.tokens, ends))
    drawn = printable if sys.stdout.isatty() else str  # a stranger's file says what letters a token has
    status = 0
    try:
        if opened.tokenizer is None:
            for token in clock:
                print(token, end=" ", flush=True)
        else:
            for piece in opened.tokenizer.stream(clock):
                print(drawn(piece), end="", flush=True)
    except KeyboardInterrupt:
        status = INTERRUPTED
    print()
    print(f"{printable(opened.name)}: {clock.said()}", file=sys.stderr)
    return status


def _serve(opened: Opened, options: argparse.Namespace, chosen: dict[str, Any]) -> int:
    from hcq.frontend.more.llm.batch import Batch
    from hcq.frontend.more.llm.dialogue import form_of
    from hcq.frontend.more.llm.engine import Engine
    from hcq.frontend.more.llm.questions import Reader
    from hcq.frontend.more.llm.server import Server, serve
    from hcq.frontend.more.llm.tokenizer import Numbers, Tokenizer

    vocabulary = opened.model.configuration.vocabulary
    tokenizer = opened.tokenizer or Tokenizer(Numbers(vocabulary), {}, None, ())
    form = form_of(tokenizer)
    batch = Batch(opened.model, options.slots, options.context, options.device)
    reader = Reader(opened.name, vocabulary, tokenizer, form, batch.room, chosen)
    server = Server(reader, options.port, options.seconds)
    server.engine = Engine(batch, options.waiting)
    print(f"{printable(opened.name)} is at {server.url}", flush=True)
    note = "" if opened.tokenizer else "; no tokenizer: bytes are read, numbers are written"
    print(
        f"{options.slots} answers at once, each of up to {batch.room} tokens with its prompt; conversations as "
        f"{form.name}{note}. Ctrl-C ends.",
        file=sys.stderr,
    )
    serve(server)
    return 0


def _opened(options: argparse.Namespace) -> Opened:
    if options.random:
        model = Model.random(SIZES[options.random], options.seed or 0, options.device)
        return Opened(model, None, f"{options.random} with random weights")
    return open_model(options.model, options.device)


class Clock:
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


# -- how fast they are can be seen without a file ----------------------------------------------------------------------


SIZES = {
    "llama-tiny": Configuration("llama", 512, 64, 2, 4, 2, 16, 128, 512, rotary_size=16),
    "gpt2": Configuration(
        "gpt2", 50257, 768, 12, 12, 12, 64, 3072, 1024, 1e-5, False, "gelu_tanh", True, rotary_base=0.0
    ),
    "llama-15m": Configuration("llama", 32000, 288, 6, 6, 6, 48, 768, 1024, rotary_size=48),
    "llama-160m": Configuration("llama", 32000, 768, 12, 12, 12, 64, 3072, 2048, rotary_size=64),
    "llama-1b": Configuration(
        "llama", 128256, 2048, 16, 32, 8, 64, 8192, 8192, rotary_base=500000.0, rotary_size=64
    ),
}
