"""printf: the text of a message that a kernel has sent, as C's printf makes it.

In       64-bit words: what stream, a format, arguments
Out      the stream and the text
Next     hostcall.py (who collects messages), hcq/code/printf.py (formats)
Source   ROCm Device Libraries: ockl, services (a message's form)

Strings, the format among them, end with a zero and fill whole words; every other argument is one word.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hcq.code.printf import formatted

IS_STDERR = 1  # of the first word


class _Words:
    """The words of a message, from the first on; behind the last there are zeros."""

    def __init__(self, words: Sequence[int]) -> None:
        self.data = struct.pack(f"<{len(words)}Q", *words)
        self.at = 0

    def number(self, size_bytes: int = 8) -> int:
        """A word, whatever the size."""
        piece = self.data[self.at : self.at + 8]
        self.at += 8
        return int.from_bytes(piece, "little")

    def text(self) -> str:
        end = self.data.find(b"\0", self.at)
        end = len(self.data) if end < 0 else end
        found = self.data[self.at : end]
        self.at = (end // 8 + 1) * 8
        return found.decode("utf-8", "replace")


def text_of(words: Sequence[int]) -> tuple[bool, str]:
    """(whether it is for stderr, the text) of a whole message."""
    message = _Words(words)
    is_error = bool(message.number() & IS_STDERR)
    form = message.text()
    return is_error, formatted(form, message)
