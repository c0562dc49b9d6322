"""Syntax of patterns: a regular expression to instructions that are run one after another.

In       text: characters, classes, \\p{...}, groups, alternatives, repetition, a look at the next character
Out      `program_of`: instructions; one sentence about what is not known here, or what is no pattern
Next     splitting.py (who runs them)
Source   the syntax of Oniguruma, as far as tokenizers use it; general categories of Unicode
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError

TAKE, LOOK, SPLIT, MATCH = range(4)
MAX_STEPS = 2048  # a program's instructions
MAX_DEPTH = 32  # groups within groups
_CATEGORIES = re.compile(r"L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfson]?")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_KINDS: dict[str, Callable[[str], bool]] = {
    "s": lambda c: c.isspace() and not "\x1c" <= c <= "\x1f",
    "d": lambda c: unicodedata.category(c) == "Nd",
    "w": lambda c: unicodedata.category(c)[0] in "LMN" or unicodedata.category(c) == "Pc",
}


@dataclass(slots=True)
class Characters:
    """A set of characters: those of which any test is true, or, negated, the others."""

    tests: list[Callable[[str], bool]]
    is_negated: bool = False
    ignores_case: bool = False
    _known: dict[str, bool] = field(default_factory=dict)

    def has(self, character: str) -> bool:
        """Whether it is one of them."""
        found = self._known.get(character)
        if found is None:
            alike = {character}
            if self.ignores_case:
                alike |= {c for c in (character.lower(), character.upper()) if len(c) == 1}
            found = any(test(c) for test in self.tests for c in alike) != self.is_negated
            self._known[character] = found
        return found


@dataclass(slots=True)
class Instruction:
    """TAKE a character or LOOK at one, SPLIT into two ways, `next` first and then `other`, or MATCH."""

    kind: int
    characters: Characters = field(default_factory=lambda: Characters([]))
    is_negative: bool = False
    next: int = 0
    other: int = 0


# a part of a pattern: given where to go on, it writes its instructions and says where they begin
Write = Callable[[list[Instruction], int], int]


@dataclass(frozen=True, slots=True)
class _Part:
    write: Write
    is_empty: bool  # whether it can match nothing
    characters: Characters | None = None  # where it is one character


def program_of(pattern: str) -> tuple[list[Instruction], int]:
    """The instructions, and which of them is the first. Raises UsageError."""
    parser = _Parser(pattern)
    part = parser.alternatives(0, False)
    if parser.at < len(pattern):
        raise parser.wrong("a ) that closes nothing")
    if part.is_empty:
        raise parser.wrong("a match of no character")
    program = [Instruction(MATCH)]
    begin = part.write(program, 0)
    return program, begin


class _Parser:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str):
        self.pattern = pattern
        self.at = 0

    def wrong(self, what: str) -> UsageError:
        """The error that something is not known."""
        return UsageError(
            f"[llm] texts are split by {shown(self.pattern)}, with {what}, at {self.at}: that is not known here."
        )

    def _next(self, text: str) -> bool:
        """Whether this comes next; it is passed then."""
        if not self.pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def alternatives(self, depth: int, ignores_case: bool) -> _Part:
        """Up to a closing bracket, or the end."""
        if depth > MAX_DEPTH:
            raise self.wrong(f"more than {MAX_DEPTH} groups within groups")
        ways = [self._sequence(depth, ignores_case)]
        while self._next("|"):
            ways.append(self._sequence(depth, ignores_case))

        def write(program: list[Instruction], after: int) -> int:
            begin = ways[-1].write(program, after)
            for way in reversed(ways[:-1]):
                begin = _add(program, Instruction(SPLIT, next=way.write(program, after), other=begin))
            return begin

        return ways[0] if len(ways) == 1 else _Part(write, any(way.is_empty for way in ways))

    def _sequence(self, depth: int, ignores_case: bool) -> _Part:
        parts = list[_Part]()
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            if self._next("(?i)"):
                ignores_case = True
                continue
            parts.append(self._repeated(self._one(depth, ignores_case)))

        def write(program: list[Instruction], after: int) -> int:
            for part in reversed(parts):
                after = part.write(program, after)
            return after

        return parts[0] if len(parts) == 1 else _Part(write, all(part.is_empty for part in parts))

    def _repeated(self, part: _Part) -> _Part:
        """The part, with the repetition behind it."""
        found = re.compile(r"([*+?])|\{(\d{1,3})(,(\d{0,3}))?\}").match(self.pattern, self.at)
        if found is None:
            return part
        self.at = found.end()
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(found[1], (0, None))
        if not found[1]:
            least = int(found[2])
            most = least if not found[3] else int(found[4]) if found[4] else None
        is_lazy, is_final = self._next("?"), self._next("+")
        if (most is not None and most < least) or (is_lazy and is_final):
            raise self.wrong("a repetition that cannot be")
        if part.is_empty and most != 1:
            raise self.wrong("a repetition of what may be empty")
        if is_final and (part.characters is None or not found[1]):
            raise self.wrong("a possessive repetition of more than a character")
        if self.at < len(self.pattern) and self.pattern[self.at] in "*+?":
            raise self.wrong("a repetition of a repetition")

        def write(program: list[Instruction], after: int) -> int:
            leave = after
            if is_final:  # it takes all there are: none is left behind it
                assert part.characters is not None
                leave = _add(program, Instruction(LOOK, part.characters, True, after))
            begin = after
            if most is None:
                begin = _add(program, Instruction(SPLIT))
                _ways(program, begin, part.write(program, begin), leave, is_lazy)
            for _ in range((most or least) - least):
                once = part.write(program, begin)
                begin = _ways(program, _add(program, Instruction(SPLIT)), once, leave, is_lazy)
            for _ in range(least):
                begin = part.write(program, begin)
            return begin

        return _Part(write, least == 0 or part.is_empty)

    def _one(self, depth: int, ignores_case: bool) -> _Part:
        """A group, or a character."""
        for mark, is_negative in (("(?!", True), ("(?=", False)):
            if self._next(mark):
                inner = self.alternatives(depth + 1, ignores_case)
                if inner.characters is None or not self._next(")"):
                    raise self.wrong("a look at more than the next character")
                return _Part(_look(inner.characters, is_negative), True)
        if self._next("("):
            if self._next("?i:"):
                ignores_case = True
            elif not self._next("?:") and self._next("?"):
                raise self.wrong("a group of this kind")
            inner = self.alternatives(depth + 1, ignores_case)
            if not self._next(")"):
                raise self.wrong("a group without its end")
            return inner
        characters = self._characters()
        characters.ignores_case = ignores_case
        return _Part(
            lambda program, after: _add(program, Instruction(TAKE, characters, next=after)), False, characters
        )

    def _characters(self) -> Characters:
        """A class, or a character."""
        if self._next("."):
            return Characters([lambda c: c == "\n"], True)
        if not self._next("["):
            if self.pattern[self.at] in "^$*+?{":
                raise self.wrong(f"{self.pattern[self.at]} here")
            return Characters([self._member()[0]])
        is_negated, tests = self._next("^"), list[Callable[[str], bool]]()
        while not self._next("]"):
            if self.at >= len(self.pattern):
                raise self.wrong("a class without its end")
            if self.pattern[self.at] == "[" or self.pattern.startswith("&&", self.at):
                raise self.wrong("a class within a class")
            test, low = self._member()
            if low and self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at):
                self.at += 1
                high = self._member()[1]
                if not low <= high:
                    raise self.wrong("a range that ends before it begins")
                tests.append(_between(low, high))
            else:
                tests.append(test)
        return Characters(tests, is_negated)

    def _member(self) -> tuple[Callable[[str], bool], str]:
        """A test, and the character that it is of; "" for several."""
        pattern = self.pattern
        if self.at >= len(pattern):
            raise self.wrong("an end where a character has to be")
        if not self._next("\\"):
            self.at += 1
            return _between(pattern[self.at - 1], pattern[self.at - 1]), pattern[self.at - 1]
        for syntax in (r"x([0-9a-fA-F]{2})", r"u([0-9a-fA-F]{4})", r"x\{([0-9a-fA-F]{1,5})\}"):
            if code := re.compile(syntax).match(pattern, self.at):
                self.at = code.end()
                character = chr(int(code[1], 16))
                return _between(character, character), character
        if named := re.compile(r"([pP])\{(\^?)(\w{1,2})\}").match(pattern, self.at):
            if not _CATEGORIES.fullmatch(named[3]):
                raise self.wrong(f"the category {shown(named[3])}")
            self.at = named.end()
            return _of_category(named[3], (named[1] == "P") != bool(named[2])), ""
        letter = pattern[self.at : self.at + 1]
        self.at += 1
        if letter.lower() in _KINDS and letter:
            test, is_negated = _KINDS[letter.lower()], letter.isupper()
            return (lambda c: test(c) != is_negated), ""
        if letter not in _ESCAPED and (not letter or letter.isalnum()):
            raise self.wrong(f"\\{letter}")
        character = _ESCAPED.get(letter, letter)
        return _between(character, character), character


def _look(characters: Characters, is_negative: bool) -> Write:
    return lambda program, after: _add(program, Instruction(LOOK, characters, is_negative, after))


def _between(low: str, high: str) -> Callable[[str], bool]:
    return lambda c: low <= c <= high


def _of_category(name: str, is_negated: bool) -> Callable[[str], bool]:
    return lambda c: unicodedata.category(c).startswith(name) != is_negated


def _add(program: list[Instruction], instruction: Instruction) -> int:
    """Its number."""
    if len(program) >= MAX_STEPS:
        raise UsageError(
            f"[llm] texts are split by a pattern of more than {MAX_STEPS} steps. It is no tokenizer's."
        )
    program.append(instruction)
    return len(program) - 1


def _ways(program: list[Instruction], place: int, body: int, leave: int, is_lazy: bool) -> int:
    """A split that was given a place: once more, or on; the first is tried first."""
    first, second = (leave, body) if is_lazy else (body, leave)
    program[place].next, program[place].other = first, second
    return place
