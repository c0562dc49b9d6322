"""Choice: the text of an answer as its tokens come, up to a stop, with the tokens that each piece of it is made of.

In       tokens, one after another
Out      `Piece`: text that can be given out now, and the tokens that begin in it
Changes  itself
Next     answers.py (who asks), stops.py (where text ends), tokenizer.py (tokens to text)

A character may be several tokens, and text is held back while it may become a stop: a token is told with the text that
it begins in, and not at all where a stop comes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from hcq.frontend.more.llm.chances import Chance
from hcq.frontend.more.llm.stops import Stops
from hcq.frontend.more.llm.tokenizer import Tokenizer


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
