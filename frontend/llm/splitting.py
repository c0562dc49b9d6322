"""Splitting: words first, so that no token crosses from one to the next.

In       the name of a split, or the pattern in a tokenizer.json
Out      a function from text to its words, which together are the text
Changes  a table of letters and numbers, made when a text first has characters beyond ASCII
Next     byte_pairs.py (words to tokens)
Source   the patterns of GPT-2, Llama 3 and Qwen 2, as tokenizer.json files of these models have them

Python's patterns do not know classes of Unicode characters: \\p{L} and \\p{N} are written out.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

from hcq.checks import shown
from hcq.frontend.errors import UsageError

Split = Callable[[str], list[str]]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
MAX_PATTERN = 4096
_ASCII = {"L": "A-Za-z", "N": "0-9"}


def splitter(pattern: str) -> Split:
    """A function that splits text by a pattern; what lies between its matches are words, too."""
    for name in re.findall(r"\\[pP]\{?(\w*)", pattern):
        if name not in _ASCII or "\\P" in pattern:
            raise UsageError(
                f"[llm] texts are split by {shown(pattern)}: of Unicode classes \\p{{L}} and \\p{{N}} are known."
            )
    try:
        _compiled(pattern, True)
    except re.error as error:
        raise UsageError(
            f"[llm] texts are split by {shown(pattern)}, which is no pattern: {error}."
        ) from None

    def split(text: str) -> list[str]:
        found, at = [], 0
        for match in _compiled(pattern, text.isascii()).finditer(text):
            if match.start() > at:
                found.append(text[at : match.start()])
            if match[0]:
                found.append(match[0])
            at = max(at, match.end())
        return [*found, text[at:]] if at < len(text) else found

    return split


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
    if len(patterns) > 1:
        raise UsageError(f"[llm] tokenizer.json splits texts {len(patterns)} times; once is known.")
    return splitter(patterns[0]) if patterns else lambda text: [text]


SPLITS: dict[str, Split] = {
    "gpt-2": splitter(GPT2),
    "phi-2": splitter(GPT2),
    "llama-bpe": splitter(LLAMA3),
    "qwen2": splitter(QWEN2),
}
