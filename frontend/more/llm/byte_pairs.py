"""Byte pairs: tokens as merges of bytes, the earliest merge first.

In       tokens and merges, in which every byte is a printable character; what splits text into words
Out      the tokens of a text
Changes  a store of words that were met
Next     splitting.py (words), merging.py (the merges), tokenizer.py (who uses it)
Source   Sennrich et al. 2016; GPT-2's table of bytes to characters
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.merging import merged

MAX_KEPT = 1 << 16  # words


@cache
def characters() -> tuple[str, ...]:
    """The character that stands for each byte: itself where it is printable, else the next from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    found, others = [], 256
    for byte in range(256):
        if byte in printable:
            found.append(chr(byte))
        else:
            found.append(chr(others))
            others += 1
    return tuple(found)


class BytePairs:
    """Tokens by merges."""

    def __init__(
        self, tokens: Sequence[str], merges: Iterable[tuple[str, str]], split: Callable[[str], Iterable[str]]
    ):
        self._texts = tokens
        self._tokens = {text: token for token, text in enumerate(tokens)}
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._split = split
        self._bytes = {character: byte for byte, character in enumerate(characters())}
        self._kept: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        found: list[int] = []
        for word in self._split(text):
            tokens = self._kept.get(word)
            if tokens is None:
                tokens = self._word(word)
                if len(self._kept) >= MAX_KEPT:
                    self._kept.clear()
                self._kept[word] = tokens
            found += tokens
        return found

    def _word(self, word: str) -> list[int]:
        table = characters()
        parts = [table[byte] for byte in word.encode("utf-8", "surrogatepass")]
        whole = "".join(parts)
        if whole in self._tokens:
            return [self._tokens[whole]]
        found = []
        for part in merged(parts, lambda left, right: self._ranks.get((left, right))):
            if part not in self._tokens:
                raise UsageError(
                    f"[llm] the tokenizer has no token for {shown(part)}, a part of {shown(word)}."
                )
            found.append(self._tokens[part])
        return found

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for."""
        if not 0 <= token < len(self._texts):
            raise UsageError(f"[llm] token {token} of {len(self._texts)}: there is none.")
        text = self._texts[token]
        try:
            return bytes([self._bytes[character] for character in text])
        except KeyError:
            return text.encode()  # a token that is no merge of bytes stands for its text
