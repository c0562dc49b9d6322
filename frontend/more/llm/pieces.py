"""Pieces: tokens as pieces of text with scores, the best merge of two neighbours first.

In       tokens, scores and types, as SentencePiece's BPE models have them; a space is written U+2581
Out      the tokens of a text; what no piece is made of becomes tokens of its bytes
Next     merging.py (the merges), tokenizer.py (who uses it), byte_pairs.py (merges of bytes instead)
Source   Kudo and Richardson 2018; llama.cpp's keys tokenizer.ggml.scores and token_type
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.merging import merged

SPACE = "\u2581"
NORMAL, BYTE = 1, 6
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Pieces:
    """Tokens by scores of what two neighbours become."""

    def __init__(
        self,
        tokens: Sequence[str],
        scores: Sequence[float],
        types: Sequence[int],
        has_leading_space: bool = True,
        unknown: int | None = None,
    ):
        if len(scores) != len(tokens):
            raise UsageError(
                f"[llm] the tokenizer has {len(tokens)} tokens and {len(scores)} scores. It is damaged."
            )
        self._texts = tokens
        self._tokens = {text: token for token, text in enumerate(tokens) if types[token] != BYTE}
        self._scores = scores
        self._bytes = {
            int(match[1], 16): token
            for token, text in enumerate(tokens)
            if types[token] == BYTE and (match := _BYTE.fullmatch(text))
        }
        self._values = {token: byte for byte, token in self._bytes.items()}
        self._has_leading_space = has_leading_space
        self._unknown = unknown

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        if not text:
            return []
        text = (" " if self._has_leading_space else "") + text
        found: list[int] = []
        for part in merged(text.replace(" ", SPACE), self._cost):
            token = self._tokens.get(part)
            found += [token] if token is not None else self._of_bytes(part)
        return found

    def _cost(self, left: str, right: str) -> float | None:
        """A better score costs less."""
        token = self._tokens.get(left + right)
        return None if token is None else -self._scores[token]

    def _of_bytes(self, part: str) -> list[int]:
        found = [self._bytes.get(byte, self._unknown) for byte in part.encode("utf-8", "surrogatepass")]
        return [token for token in found if token is not None]

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for."""
        if not 0 <= token < len(self._texts):
            raise UsageError(f"[llm] token {token} of {len(self._texts)}: there is none.")
        byte = self._values.get(token)
        return self._texts[token].replace(SPACE, " ").encode() if byte is None else bytes([byte])
