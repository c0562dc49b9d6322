"""Answers: what the model writes, in the form of OpenAI's API, whole or in parts.

In       a question, and the jobs that write its choices
Out      objects of JSON
Changes  nothing; a job is given up where a stop is found
Next     server.py (who sends them), engine.py (where tokens come from)
Source   OpenAI's API reference: the chat completion object, its chunks, the completion object
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.chances import Chance
from hcq.frontend.more.llm.engine import Asked
from hcq.frontend.more.llm.questions import Question, Reader
from hcq.frontend.more.llm.stops import Stops
from hcq.frontend.more.llm.tokenizer import Tokenizer

IMPOSSIBLE = -9999.0  # JSON has no infinity


class Answer:
    """An answer that is being written, with all of its choices. is_complete: they were written to their ends."""

    def __init__(
        self, question: Question, asked: Asked, reader: Reader, seconds: float, is_wanted: Callable[[], bool]
    ):
        self._question, self._asked, self._reader = question, asked, reader
        self._seconds, self._is_wanted = seconds, is_wanted
        self._id = f"{'chatcmpl' if question.is_chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._began = int(time.time())
        drops_space = question.is_chat and reader.tokenizer.has_leading_space
        self._choices = [Choice(reader.tokenizer, question.stops, drops_space) for _ in asked.jobs]

    @property
    def is_complete(self) -> bool:
        """Whether it was written to its end."""
        return all(choice.why for choice in self._choices)

    def pieces(self) -> Iterator[tuple[int, Piece]]:
        """Pieces of text as they are written, each with the number of its choice, up to a stop. Raises Failed."""
        for job, told in self._asked.tokens(self._seconds, self._is_wanted):
            choice = self._choices[job.which]
            if choice.why:
                continue  # what was written beyond a stop
            if told is None:
                yield job.which, choice.end("stop" if job.ending == "end" else "length")
            else:
                yield job.which, choice.feed(told.token, told.chance)
                if choice.why:
                    job.give_up()
            if self.is_complete:
                return

    def whole(self) -> dict[str, Any]:
        """All of it. Raises Failed."""
        texts = [""] * len(self._choices)
        tokens: list[list[Told]] = [[] for _ in self._choices]
        for which, piece in self.pieces():
            texts[which] += piece.text
            tokens[which] += piece.tokens
        choices = []
        for which, text in enumerate(texts):
            content: dict[str, Any] = {"text": text}
            if self._question.is_chat:
                content = {"message": {"role": "assistant", "content": text, "refusal": None}}
            choices.append(self._choice(which, content, tokens[which], self._choices[which].why))
        return self._part(choices) | {"usage": self._usage()}

    def parts(self) -> Iterator[dict[str, Any]]:
        """Piece by piece, the last of each choice with the reason why it ends. Raises Failed."""
        is_chat, begun = self._question.is_chat, set[int]()
        for which, piece in self.pieces():  # what cannot be answered at all fails here
            if is_chat and which not in begun:
                yield self._chunk(which, {"delta": {"role": "assistant", "content": ""}})
            begun.add(which)
            if piece.text or (piece.tokens and self._question.likeliest is not None):
                text = piece.text
                content = {"delta": {"content": text}} if is_chat else {"text": text}
                yield self._chunk(which, content, piece.tokens)
            if why := self._choices[which].why:
                yield self._chunk(which, {"delta": {}} if is_chat else {"text": ""}, (), why)
        if self.is_complete and self._question.wants_usage:
            yield self._part([], ".chunk") | {"usage": self._usage()}

    def _chunk(
        self, which: int, content: dict[str, Any], tokens: Sequence[Told] = (), why: str | None = None
    ) -> dict[str, Any]:
        more = {"usage": None} if self._question.wants_usage else {}
        return self._part([self._choice(which, content, tokens, why)], ".chunk") | more

    def _choice(
        self, which: int, content: dict[str, Any], tokens: Sequence[Told], why: str | None
    ) -> dict[str, Any]:
        chances = None
        if self._question.likeliest is not None and (tokens or not why):
            written = self._chances if self._question.is_chat else self._plain_chances
            chances = written(tokens)
        return {"index": which, **content, "logprobs": chances, "finish_reason": why}

    def _chances(self, tokens: Sequence[Told]) -> dict[str, Any]:
        """How likely tokens were, as conversations have it."""
        content = []
        for token, _, chance in tokens:
            assert chance is not None
            likeliest = [self._entry(*one) for one in chance.likeliest]
            content.append(self._entry(token, chance.logarithm) | {"top_logprobs": likeliest})
        return {"content": content, "refusal": None}

    def _entry(self, token: int, logarithm: float) -> dict[str, Any]:
        try:
            raw: bytes | None = self._reader.tokenizer.bytes_of(token)
        except UsageError:  # models may have more numbers than their tokenizers have tokens
            raw = None
        text = (raw or b"").decode("utf-8", "replace")
        bytes_ = None if raw is None else list(raw)
        return {"token": text, "logprob": max(logarithm, IMPOSSIBLE), "bytes": bytes_}

    def _plain_chances(self, tokens: Sequence[Told]) -> dict[str, Any]:
        """How likely tokens were, as texts that go on have it."""
        found: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for token, offset, chance in tokens:
            assert chance is not None
            entry = self._entry(token, chance.logarithm)
            found["tokens"].append(_named(entry))
            found["token_logprobs"].append(entry["logprob"])
            likeliest = [self._entry(*one) for one in chance.likeliest]
            found["top_logprobs"].append({_named(one): one["logprob"] for one in likeliest})
            found["text_offset"].append(offset)
        return found

    def _part(self, choices: list[dict[str, Any]], kind: str = "") -> dict[str, Any]:
        name = f"chat.completion{kind}" if self._question.is_chat else "text_completion"
        return {
            "id": self._id, "object": name, "created": self._began, "model": self._reader.model, "choices": choices,
        }  # fmt: skip

    def _usage(self) -> dict[str, int]:
        read, written = len(self._question.prompt), sum(choice.count for choice in self._choices)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _named(entry: dict[str, Any]) -> str:
    """A token's text; of a part of a character its bytes, so that two parts are two names."""
    raw = bytes(entry["bytes"] or b"")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def hashed(page: str, element: str) -> str:
    """The hashes of a page's own scripts or styles, as a Content-Security-Policy names them."""
    found = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in found]
    return " ".join(f"'sha256-{digest}'" for digest in digests)


# -- the text of an answer as its tokens come, up to a stop, with the tokens that each piece of it is made of ----------


class Told(NamedTuple):
    """A token. offset: characters of the answer before it; chance: None where nobody asks."""

    token: int
    offset: int
    chance: Chance | None


class Piece(NamedTuple):
    """Text that can be given out, and its tokens."""

    text: str
    tokens: list[Told]


class Choice:
    """One of the answers to a question. why: "stop" or "length" once it has ended; count: tokens so far."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str], drops_space: bool):
        self._decoder = tokenizer.decoder()
        self._stops = Stops(stops)
        self._drops_space = drops_space
        self._waiting: deque[Told] = deque()
        self._decoded = self._given = 0
        self.count = 0
        self.why: str | None = None

    def feed(self, token: int, chance: Chance | None = None) -> Piece:
        """One more token."""
        self.count += 1
        self._waiting.append(Told(token, self._decoded, chance))
        piece = self._piece(self._stops.feed(self._seen(self._decoder.feed(token))))
        if self._stops.is_hit:
            self.why = "stop"
        return piece

    def end(self, why: str) -> Piece:
        """No more tokens come."""
        text = self._stops.feed(self._seen(self._decoder.rest()))
        piece = self._piece(text + self._stops.rest(), is_last=not self._stops.is_hit)
        self.why = "stop" if self._stops.is_hit else why
        return piece

    def _seen(self, text: str) -> str:
        if text and self._drops_space:
            text, self._drops_space = text.removeprefix(" "), False
        self._decoded += len(text)
        return text

    def _piece(self, text: str, is_last: bool = False) -> Piece:
        self._given += len(text)
        tokens = []
        while self._waiting and (is_last or self._waiting[0].offset < self._given):
            tokens.append(self._waiting.popleft())
        return Piece(text, tokens)
