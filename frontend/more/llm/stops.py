"""Stops: text as it comes, up to where one of some words begins.

In       pieces of text, one after another
Out      the text before the first such word; what may be the beginning of one is held back until that is known
Changes  itself
Next     server.py (who asks)
"""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """Looks for words in text that comes in pieces. is_hit: one was found, and no more text is given out.

    >>> stops = Stops(["END"])
    >>> [stops.feed(text) for text in ("an E", "ND, no", " EN", "D")]
    ['an ', '', '', '']
    """

    def __init__(self, words: Sequence[str]):
        self._words = [word for word in words if word]
        self._held = ""
        self.is_hit = False

    def feed(self, text: str) -> str:
        """What can be given out now."""
        if self.is_hit:
            return ""
        whole = self._held + text
        found = [at for word in self._words if (at := whole.find(word)) >= 0]
        if found:
            self.is_hit, self._held = True, ""
            return whole[: min(found)]
        count = max((_begun(whole, word) for word in self._words), default=0)
        self._held = whole[len(whole) - count :]
        return whole[: len(whole) - count]

    def rest(self) -> str:
        """What was held back, once no more text comes."""
        text, self._held = self._held, ""
        return text


def _begun(text: str, word: str) -> int:
    """How many characters at the end of a text may be the beginning of the word."""
    for count in range(min(len(text), len(word) - 1), 0, -1):
        if word.startswith(text[-count:]):
            return count
    return 0
