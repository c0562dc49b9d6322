"""Conformance, the diary: results by operator, and the file from which a run that was cut short goes on.

In       results, as they are found; a file of an earlier run, which may end in the middle of a line
Out      the results of both; the revisions that they were measured on
Changes  the file: a line of JSON that says what is measured, then one for each result
Next     run.py (who writes it), page.py (what is made of it)

What was late is computed again. A file that has something else than results, or results of other samples, dtypes or
devices, is refused: a table is of one measurement.
"""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from hcq.tools.conformance.judge import LATE, MISSING, PASSES, REFUSED, WRONG

ROOT = Path(__file__).resolve().parents[2]
STATUSES = (PASSES, WRONG, REFUSED, MISSING, LATE)


class DiaryError(Exception):
    """A file that a run cannot go on with; the text says why, and what to do."""


class Diary:
    """Results by operator, and a file that has each of them as soon as it is there.

    path      the file; None for none
    resumed   go on with what it has, instead of beginning it anew
    about     what is measured, such as the dtypes: a file about something else is refused
    revision  what is measured now; results of the file keep theirs
    Raises    DiaryError, when the file cannot be gone on with or written
    """

    def __init__(
        self,
        path: Path | None = None,
        resumed: bool = False,
        about: dict[str, Any] | None = None,
        revision: str = "",
    ):
        self.path = path
        self.about = about or {}
        self.results: dict[str, dict[str, Any]] = {}
        self.revisions: list[str] = []  # of the results, the oldest first
        self._revision = revision
        self._lock = threading.Lock()
        if path is None:
            return
        try:
            if resumed and path.exists():
                self._read(path)
            else:
                path.write_text("", "utf-8")
            self._write({"about": self.about, "revision": revision})
        except OSError as error:
            raise DiaryError(
                f"--json {path}: {error.strerror or error}. Name a file that can be written."
            ) from error

    def add(self, result: dict[str, Any]) -> None:
        """One more."""
        with self._lock:
            self.results[result["operator"]] = result
            self._note(self._revision)
            self._write(result)

    def _note(self, revision: str) -> None:
        if revision and revision not in self.revisions:
            self.revisions.append(revision)

    def _write(self, line: dict[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _read(self, path: Path) -> None:
        """What a file has, which may end in the middle of a line: that one is cut off."""
        whole, newline, rest = path.read_bytes().rpartition(b"\n")
        if rest:
            with path.open("r+b") as file:
                file.truncate(len(whole + newline))
        revision = ""
        for number, line in enumerate(whole.split(b"\n") if newline else (), start=1):
            row = _parsed(line)
            if _is_head(row):
                self._check_about(path, row["about"])
                revision = row["revision"]
            elif number == 1:
                raise DiaryError(
                    f"--resume: {path} does not begin with what was measured, so it is no file of results. "
                    "Leave --resume out to begin it anew."
                )
            elif not _is_result(row):
                raise DiaryError(
                    f"--resume: line {number} of {path} is no result of an operator. Remove that line, or leave "
                    "--resume out to begin anew."
                )
            elif row["status"] != LATE:
                self.results[row["operator"]] = row
                self._note(revision)
            else:
                self.results.pop(row["operator"], None)

    def _check_about(self, path: Path, about: dict[str, Any]) -> None:
        for key in sorted({*about, *self.about}):
            was, now = about.get(key), self.about.get(key)
            if was != now:
                raise DiaryError(
                    f"--resume: {path} was measured with {key} {_shown(was)}, and this run has {_shown(now)}. "
                    "Ask for the same, or name another file."
                )


def _parsed(line: bytes) -> Any:
    """A line's JSON; None for what is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_head(row: Any) -> bool:
    """Whether a line says what was measured."""
    return (
        isinstance(row, dict) and isinstance(row.get("about"), dict) and isinstance(row.get("revision"), str)
    )


def _is_result(row: Any) -> bool:
    """Whether a line is the result of an operator."""
    if not isinstance(row, dict) or not isinstance(row.get("operator"), str):
        return False
    counts, why = row.get("counts"), row.get("why")
    return (
        row.get("status") in STATUSES
        and isinstance(counts, dict)
        and all(key in STATUSES and type(count) is int and count >= 0 for key, count in counts.items())
        and isinstance(why, list)
        and all(isinstance(each, str) for each in why)
    )


def _shown(value: Any) -> str:
    """What was asked for, as on a command line."""
    if value is None:
        return "nothing"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def measured_revision(root: Path = ROOT) -> str:
    """The commit that is measured, with a word when the tree differs from it; "" outside of a checkout."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if not (root / ".git").exists() or not (commit := git("rev-parse", "--short=10", "HEAD")):
        return ""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return f"{commit} with changes" if changed else commit
