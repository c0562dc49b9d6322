"""Patterns: words of a text by the pattern of a stranger's file, in time that grows with the text alone.

In       a regular expression of a tokenizer.json, as Oniguruma and the tokenizers library write them
Out      `Pattern`: where its matches lie in a text; one sentence about what is not known here
Next     pattern_syntax.py (a pattern to its instructions), splitting.py (who asks)
Source   Cox 2007-2010, "Regular Expression Matching": backtracking that never does the same twice

A pattern such as (a+)+b takes time that doubles with each character, where matching goes back and tries the rest in
every other way. Here what failed once, an instruction at a place, is known to fail: each runs once at each place.
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.frontend.more.llm.pattern_syntax import LOOK, MATCH, SPLIT, program_of


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
