"""The words of a PTX text, one after the other, and what a parser asks of the next ones.

In       PTX text
Out      Reader: looks ahead, takes words, numbers, names; PtxError with the line where something else stands
Changes  its place in the text
Next     parser.py (who derives from it), lexer.py (text to words)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hcq.emu.nv.shader import lexer
from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.nv.shader.syntax import Immediate

T = TypeVar("T")


class Reader:
    """Where a parser is in a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = lexer.words(text)
        self.at = 0

    @property
    def line(self) -> int:
        """Of the next word, or the last one."""
        return self.words[min(self.at, len(self.words) - 1)].line if self.words else 1

    def peek(self, ahead: int = 0) -> str:
        """The next word, or one behind it, or nothing at the end. Nothing is taken."""
        return self.words[self.at + ahead].text if self.at + ahead < len(self.words) else ""

    def next(self) -> str:
        """Take the next word. Raises PtxError at the end of the text."""
        if self.at >= len(self.words):
            raise self.error("the text ends in the middle of a statement")
        self.at += 1
        return self.words[self.at - 1].text

    def accept(self, text: str) -> bool:
        """Take the next word if it is this one. Returns whether it was."""
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take the next word, which has to be this one. Raises PtxError."""
        if not self.accept(text):
            raise self.error(f"expected {text!r}, found {self.peek()!r}")

    def name(self, what: str) -> str:
        """Take a name. what: of what, for the message."""
        word = self.next()
        if not (word[0].isalpha() or word[0] in "_$%"):
            raise self.error(f"expected the name of {what}, found {word!r}")
        return word

    def integer(self, what: str) -> int:
        """Take a whole number, with a minus sign perhaps. what: which, for the message."""
        negative = self.accept("-")
        word = self.next()
        value = self.number(word)
        if value is None or value.float_bytes:
            raise self.error(f"expected {what}, an integer, found {word!r}")
        return -value.value if negative else value.value

    def separated(self, one: Callable[[], T]) -> list[T]:
        """One or more, with commas between them."""
        found = [one()]
        while self.accept(","):
            found.append(one())
        return found

    def number(self, word: str) -> Immediate | None:
        """The value of a numeric word, or None when it is not one."""
        try:
            return lexer.number(word)
        except ValueError:
            raise self.error(f"{word[:40]!r} is no number of PTX") from None

    def error(self, why: str) -> PtxError:
        """What to raise for the word that was taken last, with its line."""
        return PtxError(self.words[min(self.at, len(self.words)) - 1].line if self.at else self.line, why)

    def skip_to(self, end: str, error: PtxError) -> None:
        """Behind the next such word. Raises the error where there is none."""
        while self.at < len(self.words):
            if self.next() == end:
                return
        raise error
