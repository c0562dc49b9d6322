"""Tokenizer: text to the numbers that a model reads, and back.

In       text, or tokens
Out      `Tokenizer`: encode, decode, and text from tokens that come one at a time
Next     tokenizer_files.py (a file to a tokenizer), byte_pairs.py (merges of bytes)
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol


class Coder(Protocol):
    """What turns plain text into tokens, and a token into bytes."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text without special ones."""

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for."""


class Tokenizer:
    """Text to tokens and back.

    coder     of plain text
    special   text -> token, of those that stand for themselves, as <|endoftext|>; these are never made of plain text
              unless the text says so
    first     what a text begins with; None for nothing
    ends      tokens after which nothing follows
    template  the program of Jinja by which the file writes conversations, "" for none; dialogue.py knows its marks
    """

    def __init__(
        self,
        coder: Coder,
        special: Mapping[str, int],
        first: int | None,
        ends: Iterable[int],
        has_leading_space: bool = False,
        template: str = "",
    ):
        self.coder = coder
        self.template = template
        self.special = dict(special)
        self.first = first
        self.ends = frozenset(ends)
        self.has_leading_space = has_leading_space
        self._names = {token: text for text, token in special.items()}
        words = sorted(special, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, words))) if words else None

    def encode(self, text: str, begins: bool = True, takes_special: bool = True) -> list[int]:
        """The tokens of a text.

        begins         put the token first that a text begins with, if the model has one
        takes_special  words such as <|im_start|> in the text become the tokens they name; False for text of strangers
        """
        return self.encode_parts([(text, takes_special)], begins)

    def encode_parts(self, parts: Iterable[tuple[str, bool]], begins: bool = True) -> list[int]:
        """The tokens of a text in parts, of each of which it is said whether words such as <|im_start|> become tokens.

        What lies between two such tokens is one text, whatever parts it comes from.
        """
        found = [self.first] if begins and self.first is not None else []
        plain = ""
        for text, takes_special in parts:
            at = 0
            for match in self._special.finditer(text) if self._special is not None and takes_special else ():
                plain += text[at : match.start()]
                found += self.coder.encode(plain) if plain else []
                found.append(self.special[match[0]])
                plain, at = "", match.end()
            plain += text[at:]
        return found + (self.coder.encode(plain) if plain else [])

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for; a special one's name. Raises UsageError for a number that is no token."""
        name = self._names.get(token)
        return self.coder.bytes_of(token) if name is None else name.encode()

    def decode(self, tokens: Sequence[int], with_special: bool = False) -> str:
        """The text of tokens; special ones have none unless asked for."""
        kept = [token for token in tokens if with_special or token not in self._names]
        text = b"".join(map(self.bytes_of, kept)).decode("utf-8", "replace")
        return text[1:] if self.has_leading_space and text[:1] == " " else text

    def stream(self, tokens: Iterable[int]) -> Iterator[str]:
        """Text as tokens come: whole characters only, also where a character is several tokens."""
        decoder = self.decoder()
        for token in tokens:
            if text := decoder.feed(token):
                yield text
        if text := decoder.rest():
            yield text

    def decoder(self) -> Decoder:
        """What makes text of tokens that come one at a time."""
        return Decoder(self)

    def is_special(self, token: int) -> bool:
        """Whether it has no text of its own."""
        return token in self._names


class Decoder:
    """Whole characters of tokens, also where a character is several of them."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """The text that one more token completes; special ones have none."""
        tokenizer = self._tokenizer
        return "" if tokenizer.is_special(token) else self._decoder.decode(tokenizer.bytes_of(token))

    def rest(self) -> str:
        """What is left at the end: of bytes that are no character, a mark that says so."""
        return self._decoder.decode(b"", True)


class Numbers:
    """Tokens of a model that has no tokenizer, such as one with random weights: bytes are read, numbers are written."""

    def __init__(self, vocabulary: int):
        self._vocabulary = vocabulary

    def encode(self, text: str) -> list[int]:
        """The bytes of a text."""
        return [byte % self._vocabulary for byte in text.encode()]

    def bytes_of(self, token: int) -> bytes:
        """The token's number."""
        return f"{token} ".encode()
