"""Arguments of commands: words that follow a verb, numbers, addresses, buffers by name.

In       the words of a line
Out      Words, from which a command takes what it needs; numbers and addresses
Next     commands.py and looking.py (the commands)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hcq.debug.expression import Expression, of_lane
from hcq.errors import UsageError

if TYPE_CHECKING:
    from hcq.debug.session import Session

PLUS = re.compile(r"(.+?)\+(0x[0-9a-fA-F]+|\d+)")


class Words:
    """What follows a verb."""

    def __init__(self, verb: str, rest: list[str]) -> None:
        self.verb, self.rest = verb, [_unquoted(word) for word in rest]

    def take(self, what: str) -> str:
        """The next word. Raises UsageError, which says what is missing."""
        if not self.rest:
            raise UsageError(f"{self.verb} takes {what}. `help {self.verb}` has examples.")
        return self.rest.pop(0)

    def optional(self, otherwise: str) -> str:
        """The next word, if there is one."""
        return self.rest.pop(0) if self.rest else otherwise

    def all(self) -> list[str]:
        """All that are left."""
        found, self.rest = self.rest, []
        return found

    def after(self, word: str) -> str:
        """The word that follows this one, anywhere; both are taken. "": it is not there."""
        if word not in self.rest:
            return ""
        at = self.rest.index(word)
        if at + 1 == len(self.rest):
            raise UsageError(f"{self.verb}: something must follow {word!r}.")
        found = self.rest[at + 1]
        del self.rest[at : at + 2]
        return found

    def condition(self) -> Expression | None:
        """What follows `if`, to the end of the line."""
        if "if" not in self.rest:
            return None
        at = self.rest.index("if")
        text = " ".join(self.rest[at + 1 :])
        kernel: list[str] = []
        if (found := re.fullmatch(r"(.*) in (\S+)", text)) is not None:
            text, kernel = found[1], ["in", found[2]]
        self.rest[at:] = kernel
        if not text:
            raise UsageError(f"{self.verb}: a condition follows `if`, as v3 > 9 and lane == 5.")
        return Expression(text)

    def done(self) -> None:
        """Nothing may be left."""
        if self.rest:
            raise UsageError(
                f"{self.verb}: {' '.join(self.rest)!r} is too much. `help {self.verb}` has examples."
            )


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def number_of(text: str) -> int:
    """A number, as 12 or 0x1f. Raises UsageError."""
    try:
        value = int(text, 0)
    except ValueError:
        raise UsageError(f"{text!r} is no number. Say 12 or 0x1f.") from None
    if not 0 <= value < 1 << 64:
        raise UsageError(f"{text} is not between 0 and 2**64.")
    return value


def size_of(text: str) -> int:
    """A number of bytes. Raises UsageError."""
    size = number_of(text)
    if not size:
        raise UsageError("a range has at least one byte.")
    return size


def address_of(session: Session, text: str) -> int:
    """An address: a number, a buffer by its name, a register pair as v[2:3] or s[0:1], and perhaps an offset.

    Raises  UsageError
    """
    found = _address_of(session, text)
    if found >= 1 << 64:
        raise UsageError(f"{text} is beyond the last address, 2**64 - 1.")
    return found


def _address_of(session: Session, text: str) -> int:
    offset = 0
    if (found := PLUS.fullmatch(text)) is not None:
        text, offset = found[1], int(found[2], 0)
    if text[:1].isdigit():
        return number_of(text) + offset
    buffers = [(name, start) for start, _, name in session.names.buffers() if name]
    named = [start for name, start in buffers if name == text]
    if len(named) > 1:
        places = ", ".join(hex(start) for start in named[:4])
        raise UsageError(f"{len(named)} buffers are called {text!r}: say one by its address: {places}.")
    if named:
        return named[0] + offset
    moment = session.stop.moment
    if moment is not None:
        pair = re.fullmatch(r"([vsa])\[(\d+):(\d+)\]", text)
        names = [text] if pair is None else [f"{pair[1]}{pair[2]}", f"{pair[1]}{pair[3]}"]
        try:
            parts = [int(of_lane(moment.read(name, session.wave), session.lane)) for name in names]
        except UsageError:
            pass
        else:
            return sum(part << 32 * at for at, part in enumerate(parts)) + offset
    begun = [(name, start) for name, start in buffers if name.startswith(text)]
    if len(begun) == 1:
        return begun[0][1] + offset
    known = ", ".join(sorted({name for name, _ in begun or buffers})[:8]) or "none has a name"
    raise UsageError(f"{text!r} is no address, no buffer and no register. Buffers: {known}.")
