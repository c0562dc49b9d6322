"""Ignored findings: a file of what HCQ_SANITIZE is to say nothing about (HCQ_SANITIZE_IGNORE).

In       a text file: on each line a rule, then globs for the kernel, the instruction or line, and the buffer
Out      whether a finding is ignored; the lines that ignored nothing
Changes  counts of what each line has ignored
Next     kernel_findings.py (who asks), docs/sanitizers.md (the format, for people)
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from hcq.errors import UsageError
from hcq.rules import examine

FIELDS = "a rule, then globs for the kernel, the instruction or line, and the buffer"


@dataclass
class Line:
    """One line of the file. Globs that are left out fit everything. times: how many findings it has ignored."""

    number: int
    rule: str
    kernel: str = "*"
    place: str = "*"
    buffer: str = "*"
    times: int = 0

    def fits(self, rule: str, kernel: str, places: Sequence[str], buffer: str) -> bool:
        """Whether a finding is ignored by it. places: of every site: its instruction and its lines, in words."""
        return (
            fnmatchcase(rule, self.rule)
            and fnmatchcase(kernel, self.kernel)
            and (self.place == "*" or any(fnmatchcase(place, self.place) for place in places))
            and fnmatchcase(buffer, self.buffer)
        )

    def __str__(self) -> str:
        words = [self.rule, self.kernel, self.place, self.buffer]
        while words[-1] == "*":
            words.pop()
        return " ".join(shlex.quote(word) if " " in word else word for word in words)


class Ignored:
    """The lines of one file; without a file nothing is ignored."""

    def __init__(self, path: Path | None = None, lines: Sequence[Line] = ()) -> None:
        self.path, self.lines = path, list(lines)
        self._lock = threading.Lock()

    @classmethod
    def read(cls, path: Path | None) -> Ignored:
        """The file of a process's switches, read once. Raises UsageError that names the line which makes no sense."""
        with _lock:
            if path not in _read:
                _read[path] = cls(path, () if path is None else _parse(path))
            return _read[path]

    def takes(self, rule: str, kernel: str, places: Sequence[str], buffer: str) -> bool:
        """Whether this finding is ignored; if so, it counts for the first line that fits."""
        for line in self.lines:
            if line.fits(rule, kernel, places, buffer):
                with self._lock:
                    line.times += 1
                return True
        return False

    @property
    def count(self) -> int:
        """How many findings were ignored."""
        return sum(line.times for line in self.lines)

    def unused(self) -> list[str]:
        """The lines that ignored nothing, as FILE:NUMBER and the line."""
        return [f"{self.path}:{line.number}: {line}" for line in self.lines if not line.times]


def _parse(path: Path) -> list[Line]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"HCQ_SANITIZE_IGNORE={path}: cannot be read: {why}. Name a text file, or unset it."
        ) from None
    rules = list(examine.all_rules())
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        here = f"{path}:{number}"
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            raise UsageError(f"{here}: a quotation mark has no partner in {line.strip()!r}.") from None
        if not words:
            continue
        if len(words) > 4:
            raise UsageError(
                f"{here}: {len(words)} words, and a line takes up to 4: {FIELDS}. "
                "Put quotation marks around a word with blanks, and # before a comment."
            )
        if not any(fnmatchcase(rule, words[0]) for rule in rules):
            raise UsageError(
                f"{here}: there is no rule {words[0]!r}. A line takes {FIELDS}; see docs/rules/."
            )
        rule, kernel, place, buffer = [*words, *["*"] * 3][:4]
        found.append(Line(number, rule, kernel, place, buffer))
    return found


_read: dict[Path | None, Ignored] = {}
_lock = threading.Lock()
