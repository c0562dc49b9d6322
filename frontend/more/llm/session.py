"""Session: one sequence that a model reads and writes, token by token.

In       a model; tokens
Out      logits of what follows; one token after another
Changes  the session's memory of keys and values, and how many tokens it has
Next     model.py (what is computed), sampling.py (which token is taken), ../jit/ (each length is recorded once)

Tokens to read go through in pieces of `PIECE`, the last one padded: what padding leaves behind the end is overwritten
before anything looks there. Tokens to write go one by one. So two recordings serve sequences of every length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.grad.gradient import no_grad
from hcq.frontend.jit import jit
from hcq.frontend.more.llm.memory import Memory, Piece, Step
from hcq.frontend.more.llm.model import Model
from hcq.frontend.more.llm.sampling import Sampler
from hcq.frontend.symbolic.variable import Variable
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

PIECE = 32


class Session:
    """A sequence. tokens: those that have been read or written, whose keys and values are in memory."""

    def __init__(self, model: Model, room: int = 0, device: str | None = None):
        c = model.configuration
        room = min(room or 2048, c.context)
        self.model = model
        self.room = room
        # pieces may end behind the last token
        memory = Memory(c, model.weights, -(-room // PIECE) * PIECE, device=device)
        self.memory = memory
        self.tokens: list[int] = []
        self._one = Variable("count", 1, memory.room)
        self._many = Variable("piece_end", PIECE, memory.room)
        self._last = Variable("last", 0, PIECE - 1)
        self._device = device
        self._write = recorded(model, memory, lambda count: Piece(memory, 1, count))
        self._read = recorded(model, memory, lambda count, last: Piece(memory, PIECE, count, last=last))

    def read(self, tokens: Sequence[int]) -> Tensor:
        """Read tokens after those that are there. Returns the logits of what follows, (vocabulary,).

        Raises  UsageError for no tokens, for numbers that are none, and where there is no room for them
        """
        checked_tokens(tokens, self.model.configuration.vocabulary)
        if len(self.tokens) + len(tokens) > self.room:
            raise UsageError(
                f"[llm] {len(self.tokens)} tokens and {len(tokens)} more: there is room for {self.room}. "
                "Begin a session with more room, or shorten the text."
            )
        logits = None
        rest = list(tokens)
        while rest:
            start, piece = len(self.tokens), PIECE
            if len(rest) == 1 or start + piece > self.memory.room:
                now = rest[:1]
                logits = self._write(self._tensor(now), self._one.bind(start + 1))
            else:
                now = rest[:piece]
                padded = self._tensor(now + [0] * (piece - len(now)))
                logits = self._read(padded, self._many.bind(start + piece), self._last.bind(len(now) - 1))
            self.tokens += now
            rest = rest[len(now) :]
        assert logits is not None
        return logits

    def cut(self, count: int = 0) -> None:
        """Forget the tokens behind the first so many."""
        del self.tokens[max(count, 0) :]

    def write(
        self, prompt: Sequence[int], sampler: Sampler, most: int, ends: frozenset[int]
    ) -> Iterator[int]:
        """Read a prompt, and write tokens after it, each as soon as it is chosen.

        most  how many at most; fewer where there is no more room
        ends  tokens after which nothing follows; they are not given out
        """
        logits, written = self.read(prompt), list[int]()
        for _ in range(most):
            token = sampler.choose(logits.as_memoryview().tolist(), self.tokens, written)
            if token in ends or len(self.tokens) >= self.room:
                return
            written.append(token)
            yield token
            logits = self.read([token])

    def _tensor(self, tokens: list[int]) -> Tensor:
        return Tensor(tokens, device=self._device, dtype=dtypes.int32).realize()


def recorded(model: Model, memory: Memory, where: Callable[..., Piece | Step]) -> Callable[..., Tensor]:
    """A recorded call: the logits, one behind the other, of what follows tokens.

    where  where they stand, of the call's other arguments
    """

    @jit
    def call(tokens: Tensor, *others: Any) -> Tensor:
        with no_grad():
            found = model.logits(tokens, where(*others)).reshape(-1)
            Tensor.realize(found, *memory.written())
        return found

    return call


def checked_tokens(tokens: Sequence[int], vocabulary: int) -> None:
    """Raises UsageError for no tokens, and for numbers that are none."""
    bad = [token for token in tokens if not 0 <= token < vocabulary]
    if not tokens or bad:
        what = f"token {bad[0]} of a vocabulary of {vocabulary}" if bad else "no tokens"
        raise UsageError(f"[llm] {what}: give at least one token, each from 0 to {vocabulary - 1}.")


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens at the beginning are the same."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
