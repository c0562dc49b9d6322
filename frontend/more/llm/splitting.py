"""Splitting: words first, so that no token crosses from one to the next.

In       the name of a split, or the pattern in a tokenizer.json
Out      a function from text to its words, which together are the text
Changes  a table of letters and numbers, made when a text first has characters beyond ASCII
Next     pattern_syntax.py (patterns of strangers, as they are read), byte_pairs.py (words to tokens)
Source   the patterns of GPT-2, Llama 3 and Qwen 2, as tokenizer.json files of these models have them

Patterns that are known to be harmless are Python's, which does not know classes of Unicode characters: \\p{L} and
\\p{N} are written out. Any other one, which may be made to take for ever, is matched by `Pattern`.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.pattern_syntax import LOOK, MATCH, SPLIT, program_of

Split = Callable[[str], list[str]]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
# none of them goes back far without a match: in Python's own matching, which is faster, time grows with the text
HARMLESS = (GPT2, LLAMA3, QWEN2)
MAX_PATTERN = 4096
_ASCII = {"L": "A-Za-z", "N": "0-9"}


def splitter(pattern: str) -> Split:
    """A function that splits text by a pattern; what lies between its matches are words, too.

    Raises  UsageError for a pattern that is none, or has what is not known
    """
    matches = _harmless(pattern) if pattern in HARMLESS else Pattern(pattern).matches

    def split(text: str) -> list[str]:
        found, at = [], 0
        for begin, end in matches(text):
            if begin > at:
                found.append(text[at:begin])
            found.append(text[begin:end])
            at = end
        return [*found, text[at:]] if at < len(text) else found

    return split


def _harmless(pattern: str) -> Callable[[str], Iterator[tuple[int, int]]]:
    def matches(text: str) -> Iterator[tuple[int, int]]:
        return (match.span() for match in _compiled(pattern, text.isascii()).finditer(text))

    return matches


@cache
def _compiled(pattern: str, is_ascii: bool) -> re.Pattern[str]:
    return re.compile(_written_out(pattern, _ASCII if is_ascii else _classes()))


def _written_out(pattern: str, classes: dict[str, str]) -> str:
    """The pattern with classes of characters in place of \\p{...}, within brackets or outside of them."""
    found, at, in_class = [], 0, False
    while at < len(pattern):
        if pattern.startswith("\\p{", at):
            inside = classes[pattern[at + 3]]
            found.append(inside if in_class else f"[{inside}]")
            at += 5
            continue
        step = 2 if pattern[at] == "\\" else 1
        if step == 1 and pattern[at] in "[]":
            in_class = pattern[at] == "["
        found.append(pattern[at : at + step])
        at += step
    return "".join(found)


@cache
def _classes() -> dict[str, str]:
    """Ranges of all letters, and of all numbers."""
    found: dict[str, list[str]] = {"L": [], "N": []}
    start, kind = 0, ""
    for code in range(sys.maxunicode + 2):
        now = unicodedata.category(chr(code))[0] if code <= sys.maxunicode else ""
        if now != kind:
            if kind in found:
                found[kind].append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start, kind = code, now
    return {kind: "".join(ranges) for kind, ranges in found.items()}


def splitter_of_json(data: Any) -> Split:
    """The split that a tokenizer.json's "pre_tokenizer" says. Raises UsageError for steps that are not known."""
    steps = data.get("pretokenizers", [data]) if isinstance(data, dict) else []
    steps = steps if isinstance(steps, list) else [steps]
    patterns = []
    for step in steps:
        kind = step.get("type") if isinstance(step, dict) else None
        if kind == "ByteLevel" and not step.get("add_prefix_space"):
            patterns += [GPT2] if step.get("use_regex", True) else []
        elif kind == "Split" and step.get("behavior") == "Isolated" and not step.get("invert"):
            kept = step.get("pattern")
            pattern = kept.get("Regex") if isinstance(kept, dict) else None
            if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
                raise UsageError(
                    f"[llm] tokenizer.json splits texts by {shown(step.get('pattern'))}; a Regex is known."
                )
            patterns.append(pattern)
        else:
            raise UsageError(
                f"[llm] tokenizer.json splits texts by {shown(step)}; ByteLevel and Split are known."
            )
    if not patterns:
        return lambda text: [text]
    splits = [splitter(pattern) for pattern in patterns]

    def split(text: str) -> list[str]:
        words = [text]
        for one in splits:  # each splits what the one before has left
            words = [part for word in words for part in one(word)]
        return words

    return split


SPLITS: dict[str, Split] = {
    "gpt-2": splitter(GPT2),
    "phi-2": splitter(GPT2),
    "llama-bpe": splitter(LLAMA3),
    "qwen2": splitter(QWEN2),
}


# -- words of a text by the pattern of a stranger's file, in time that grows with the text alone -----------------------


class Pattern:
    """A pattern. steps: how many instructions have been run.

    Raises  UsageError for what is not known here

    >>> list(Pattern(r" ?\\p{L}+| ?\\p{N}{1,3}").matches("abc 1234"))
    [(0, 3), (3, 7), (7, 8)]
    """

    def __init__(self, pattern: str):
        self.program, self._begin = program_of(pattern)
        self.steps = 0

    def matches(self, text: str) -> Iterator[tuple[int, int]]:
        """Beginnings and ends of matches, one behind the other; none is empty."""
        failed: dict[int, int] = {}  # place -> a bit for each instruction that has failed there
        start = forgotten = 0
        while start < len(text):
            end = self._match(text, start, failed)
            if end >= 0:
                yield start, end
            start = max(end, start + 1)
            while forgotten < start:  # nobody goes back there
                failed.pop(forgotten, None)
                forgotten += 1

    def _match(self, text: str, start: int, failed: dict[int, int]) -> int:
        """Where a match from here ends; -1 for none."""
        program, size = self.program, len(text)
        waiting = [(self._begin, start, 0)]  # other ways: an instruction, a place, how long the way to it is
        way: list[tuple[int, int]] = []  # what was run on the way that is tried now
        while waiting:
            at, place, length = waiting.pop()
            del way[length:]
            while True:
                bit = 1 << at
                if failed.get(place, 0) & bit:
                    break
                failed[place] = failed.get(place, 0) | bit
                way.append((at, place))
                self.steps += 1
                step = program[at]
                if step.kind == MATCH:
                    for at, before in way:  # what led here has not failed
                        failed[before] &= ~(1 << at)
                    return place
                if step.kind == SPLIT:
                    waiting.append((step.other, place, len(way)))
                    at = step.next
                    continue
                found = place < size and step.characters.has(text[place])
                if step.kind == LOOK:
                    if found == step.is_negative:
                        break
                else:
                    if not found:
                        break
                    place += 1
                at = step.next
        return -1
