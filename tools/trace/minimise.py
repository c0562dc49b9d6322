"""Minimise: the fewest submissions of a trace that still go wrong in the same way.

In       a file's bytes and a Check: a function that says whether a smaller file still fails
Out      the bytes of the smaller file
Changes  nothing; a check may run commands
Next     replay.py and lint.py (what can go wrong), edit.py (to look at what is left)

Delta debugging: halves of the submissions are left out, then quarters, and so on, as long as the failure stays.
Afterwards what only the dropped submissions needed (buffers, code, contents) goes too, if the failure stays without it.
Source: Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input (2002)
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hcq
from hcq.errors import HcqError, UsageError
from hcq.trace.file import Record, Trace
from hcq.trace.records import MAGIC, Kind

Check = Callable[[bytes], bool]
CHECK_TIMEOUT_S = 120
# what submissions need: kinds of records, and how finely it is worth trying to leave them out
_SERVANTS: tuple[tuple[tuple[Kind, ...], int], ...] = (
    ((Kind.TIMES, Kind.STAMPS, Kind.PORT), 4),
    ((Kind.CODE, Kind.UNLOAD), 64),
    ((Kind.DATA, Kind.RESULT), 64),
    ((Kind.SIGNAL,), 16),
    ((Kind.ALLOC, Kind.FREE, Kind.NAME, Kind.BLOCK, Kind.PATCH), 16),
    ((Kind.STRING,), 4),
)


@dataclass(frozen=True)
class Result:
    """The smaller file, and how much smaller."""

    content: bytes
    submissions: int
    of_submissions: int
    records: int
    of_records: int
    tries: int


def minimise(trace: Trace, fails: Check, max_tries: int = 2000) -> Result:
    """Drop what the failure does not need.

    fails      whether a file still shows it
    max_tries  how often `fails` may be asked
    Raises     UsageError when the whole trace does not fail, or an empty one does
    """
    search = _Search(trace.records, fails, max_tries)
    try:
        return _minimise(trace, search)
    except _CannotRun as error:
        raise UsageError(str(error)) from None


def _minimise(trace: Trace, search: _Search) -> Result:
    if not search.is_failing(set()):
        raise UsageError(
            f"minimise {trace.path or 'trace'}: the whole trace does not show this failure; nothing to keep."
        )
    if search.is_failing({record.index for record in trace.records}):
        raise UsageError(
            f"minimise {trace.path or 'trace'}: an empty trace shows this failure, too, so the check shows nothing. "
            "See whether it runs at all."
        )
    submissions = [submission.record for submission in trace.submissions]
    dropped = search.shrink(submissions, set())
    kept = len(submissions) - len(dropped)
    for kinds, max_parts in _SERVANTS:
        dropped |= search.shrink(
            [one.index for one in trace.records if one.kind in kinds], dropped, max_parts
        )
    content = search.content(dropped)
    left = len(trace.records) - len(dropped)
    return Result(content, kept, len(submissions), left, len(trace.records), search.tries)


class _Search:
    def __init__(self, records: Sequence[Record], fails: Check, max_tries: int) -> None:
        self.records = records
        self.fails = fails
        self.max_tries = max_tries
        self.tries = 0

    def content(self, dropped: set[int]) -> bytes:
        return MAGIC + b"".join(record.raw for record in self.records if record.index not in dropped)

    def is_failing(self, dropped: set[int]) -> bool:
        """Whether the failure is still there; a file that makes no sense any more does not count as failing."""
        if self.tries >= self.max_tries:
            return False
        self.tries += 1
        try:
            content = self.content(dropped)
            Trace.parse(content)
            return self.fails(content)
        except HcqError:
            return False

    def shrink(self, items: Sequence[int], before: set[int], max_parts: int = 1 << 30) -> set[int]:
        """Which of the items can be dropped, together with `before`; tried in `max_parts` parts at the finest."""
        kept = list(items)
        dropped: set[int] = set()
        parts = 1
        while kept:
            size = -(-len(kept) // parts)
            for start in range(0, len(kept), size):
                some = set(kept[start : start + size])
                if self.is_failing(before | dropped | some):
                    dropped |= some
                    kept = [item for item in kept if item not in some]
                    parts = max(parts - 1, 1)
                    break
            else:
                if size == 1 or parts >= max_parts or self.tries >= self.max_tries:
                    break
                parts = min(2 * parts, len(kept))
        return dropped


def summary(result: Result) -> str:
    """The result in one line."""
    return (
        f"{result.submissions} of {result.of_submissions} submissions and {result.records} of {result.of_records} "
        f"records still show it ({result.tries} tries)"
    )


# ------------------------------------------------------------ checks


def check_rule(rule: str) -> Check:
    """The failure is that lint finds a breach of this rule."""
    from hcq.tools.trace import lint

    lint.check_rule_name(rule)
    return lambda content: any(one.rule == rule for one in lint.findings(Trace.parse(content)))


def check_mismatch(trace: Trace) -> Check:
    """The failure is the first thing that goes wrong in a replay: the same bytes of the same read.

    Replays run in a process of their own, because half a program may well crash.
    """
    whole = _replay(MAGIC + b"".join(record.raw for record in trace.records))
    if whole["same"]:
        raise UsageError(
            f"minimise {trace.path or 'trace'}: replaying it gives the recorded results; no failure to keep."
        )

    def fails(content: bytes) -> bool:
        outcome = _replay(content)
        if whole["mismatches"]:
            return any(_key(one) == _key(whole["mismatches"][0]) for one in outcome["mismatches"])
        return bool(outcome["failure"]) and _kind(outcome["failure"]) == _kind(whole["failure"])

    return fails


def _key(mismatch: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(mismatch[name] for name in ("time_ns", "device", "offset", "hash"))


def _replay(content: bytes) -> dict[str, Any]:
    """What replay says of a file; a crash is a failure, too."""
    environment = {name: value for name, value in os.environ.items() if name != "HCQ_TRACE"}
    environment["PYTHONPATH"] = str(Path(hcq.__file__).parent.parent)
    with tempfile.TemporaryDirectory(prefix="hcq-trace-") as folder:
        path = Path(folder) / "part.hcqtrace"
        path.write_bytes(content)
        run = [
            sys.executable,
            "-m",
            "hcq.tools.hcq_trace",
            "replay",
            "--json",
            "--timeout-ms",
            "2000",
            str(path),
        ]
        try:
            done = subprocess.run(run, env=environment, capture_output=True, timeout=CHECK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return {"same": False, "mismatches": [], "failure": "it does not end"}
    if done.returncode in (0, 1):
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    why = "it crashes" if done.returncode < 0 else done.stderr.decode("utf-8", "replace").strip()
    return {"same": False, "mismatches": [], "failure": why}


def _kind(failure: str) -> str:
    """The sentence without its numbers, which are addresses and counts."""
    return "".join("0" if c.isdigit() else c for c in failure.partition(":")[0])


def check_command(command: str) -> Check:
    """The failure is that a command does not exit with 0. {} in it is the file; without one it is appended."""
    words = shlex.split(command)
    if not words:
        raise UsageError("minimise --check: give a command, such as --check 'hcq-trace replay {}'.")

    def fails(content: bytes) -> bool:
        with tempfile.TemporaryDirectory(prefix="hcq-trace-") as folder:
            path = Path(folder) / "part.hcqtrace"
            path.write_bytes(content)
            has_place = any("{}" in word for word in words)
            run = [word.replace("{}", str(path)) for word in words] + ([] if has_place else [str(path)])
            environment = {name: value for name, value in os.environ.items() if name != "HCQ_TRACE"}
            try:
                done = subprocess.run(run, env=environment, capture_output=True, timeout=CHECK_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return True
            except OSError as error:
                raise _CannotRun(
                    f"minimise --check: {words[0]} cannot be started ({error.strerror})."
                ) from None
            return done.returncode != 0

    return fails


class _CannotRun(Exception):
    """A check that cannot be made at all: it must end the search, and HcqErrors do not."""
