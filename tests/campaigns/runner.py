"""Running a campaign: workers, what their silence means, and the tally.

In       a Campaign, a seed, how many cases or for how long
Out      a Tally: right, refused, wrong, crashes, hangs, leaks, and a line for each failure that repeats it
Changes  starts worker processes, and kills one that hangs
Next     worker.py (what runs there), __main__.py (prints the tallies)
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns.campaign import Campaign, Case

ROOT = Path(__file__).resolve().parent.parent.parent
MAX_FAILURES = 20  # of one campaign: then it ends
ALL_CASES = 1 << 60
EXPLAIN_S = 300
START_S = 120  # a worker imports everything first, on a machine that may be busy
# what a process may still grow by from the second third of a campaign to its last
SLACK = {"bytes": 24 << 20, "maps": 64, "descriptors": 2, "threads": 1}
MIN_SAMPLES = 12


@dataclass
class Tally:
    """What came out of a campaign."""

    campaign: Campaign
    right: int = 0
    refused: int = 0
    wrong: int = 0
    crashes: int = 0
    hangs: int = 0
    leaks: int = 0
    seconds: float = 0
    failures: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.right + self.refused + self.wrong + self.crashes + self.hangs

    def row(self, command: str) -> str:
        """A line of the table in docs/reliability.md."""
        counts = [self.cases, self.right, self.refused, self.wrong, self.crashes, self.hangs, self.leaks]
        return f"| {self.campaign.name} | {self.campaign.injects} | " + (
            " | ".join([f"{count:,}" for count in counts]) + f" | `{command}` |"
        )


HEADER = (
    "| campaign | what is injected | cases | right | refused | wrong | crashes | hangs | leaks | command |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---|"
)


def run(
    campaign: Campaign,
    seed: int,
    *,
    first: int = 0,
    count: int | None = None,
    seconds: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Tally:
    """Run `count` cases, or as many as `seconds` allow; one of the two is given.

    tell   is called with a line at every failure
    """
    tally = Tally(campaign)
    start = time.monotonic()
    ends = None if seconds is None else start + seconds
    last = first + (ALL_CASES if count is None else count)
    at = first
    while at < last and len(tally.failures) < MAX_FAILURES and (ends is None or time.monotonic() < ends):
        worker = _Worker(campaign, seed, at, last - at)
        told = len(tally.failures)
        at = worker.follow(tally, ends) + 1
        for failure in tally.failures[told:]:
            tell(failure)
    tally.seconds = time.monotonic() - start
    return tally


class _Worker:
    """One worker process and what it has said."""

    def __init__(self, campaign: Campaign, seed: int, first: int, count: int) -> None:
        self.campaign = campaign
        self.seed = seed
        self.at = first
        reads, writes = os.pipe()
        self.reads = reads
        self.errors = tempfile.TemporaryFile()  # closed by follow
        self.folder = tempfile.TemporaryDirectory(prefix="hcq-campaign-")
        words = [campaign.module, campaign.name, seed, first, count, writes]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.worker", *map(str, words)],
            cwd=ROOT,
            env=_environment(campaign, self.folder.name),
            pass_fds=[writes],
            stdin=subprocess.DEVNULL,
            stdout=self.errors,
            stderr=self.errors,
            start_new_session=True,
        )
        os.close(writes)

    def follow(self, tally: Tally, ends: float | None) -> int:
        """Count outcomes until the worker ends, or is ended; the number of the last case it was at."""
        samples: list[dict[str, int]] = []
        is_running = False  # a case
        try:
            buffered = b""
            deadline = time.monotonic() + START_S
            poll = select.poll()
            poll.register(self.reads, select.POLLIN)
            while True:
                until = deadline if ends is None or is_running else min(deadline, ends)
                if not poll.poll(1000 * max(0.0, until - time.monotonic())):
                    if ends is not None and not is_running and time.monotonic() >= ends:
                        break
                    tally.hangs += 1
                    self._fail(tally, f"hangs for {self.campaign.deadline_s:g} s", self._stacks())
                    return self.at
                chunk = os.read(self.reads, 65536)
                if not chunk:
                    break
                *lines, buffered = (buffered + chunk).split(b"\n")
                for line in lines:
                    said = json.loads(line)
                    is_running = "case" in said
                    if is_running:
                        self.at = said["case"]
                        if ends is not None and time.monotonic() >= ends:
                            self.at -= 1
                            return self._end(tally, samples)
                    else:
                        self._count(tally, said)
                        samples += [said["held"]] if "held" in said else []
                        if len(tally.failures) >= MAX_FAILURES:
                            return self._end(tally, samples)
                    deadline = time.monotonic() + self.campaign.deadline_s
            if is_running or (ends is None and self.process.wait(timeout=START_S)):
                tally.crashes += 1
                code = self.process.wait(timeout=START_S)
                name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                self._fail(tally, f"the process ended with {name}", self._said())
                return self.at
            return self._end(tally, samples)
        finally:
            self._kill()

    def _end(self, tally: Tally, samples: list[dict[str, int]]) -> int:
        grown = growth(samples)
        if grown:
            tally.leaks += 1
            tally.failures.append(
                f"{self.campaign.name}: leak: {grown}; python -m tests.campaigns {self.campaign.name} "
                f"--seed {self.seed} --cases {self.at + 1}"
            )
        return self.at

    def _count(self, tally: Tally, said: dict[str, Any]) -> None:
        if "wrong" in said:
            tally.wrong += 1
            self._fail(tally, "wrong", said["wrong"])
        elif said["outcome"] == "right":
            tally.right += 1
        else:
            tally.refused += 1

    def _fail(self, tally: Tally, what: str, text: str) -> None:
        command = Case(self.campaign.name, self.seed, self.at).command
        if self.campaign.explain is not None:
            text = f"{text.rstrip()}\n{self._explained()}"
        tally.failures.append(f"{command}   # {what}\n{text}".rstrip())

    def _explained(self) -> str:
        """What the campaign itself tells of the case that failed."""
        words = [self.campaign.module, self.campaign.name, self.seed, self.at]
        try:
            told = subprocess.run(
                [sys.executable, "-m", "tests.campaigns.worker", *map(str, words)],
                cwd=ROOT,
                env=_environment(self.campaign, self.folder.name),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=EXPLAIN_S,
            )
        except subprocess.TimeoutExpired:
            return f"(no explanation in {EXPLAIN_S} s)"
        return told.stdout or told.stderr[-4000:]

    def _stacks(self) -> str:
        """Where a hanging worker is: faulthandler prints all threads on SIGABRT."""
        self.process.send_signal(signal.SIGABRT)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            pass
        return self._said()

    def _said(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")[-4000:]

    def _kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # its children, too
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.reads)
        self.errors.close()
        self.folder.cleanup()


def _environment(campaign: Campaign, folder: str) -> dict[str, str]:
    """The switches of a campaign's processes: none of the user's, and a folder of their own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HCQ_")}
    environment |= {"HCQ_CACHE_DIR": f"{folder}/cache", "HCQ_REPORT_DIR": folder, "TMPDIR": folder}
    return {**environment, **campaign.environment}


def growth(samples: list[dict[str, int]]) -> str:
    """What still grows after warm-up, or "": the last third of the samples beside the second."""
    if len(samples) < MIN_SAMPLES:
        return ""
    third = len(samples) // 3
    middle, end = samples[third : 2 * third], samples[2 * third :]
    told = []
    for what, slack in SLACK.items():
        before = max(sample[what] for sample in middle)
        after = min(sample[what] for sample in end[len(end) // 2 :])
        if after > before + slack:
            told.append(f"{what} went from {before:,} to {after:,}")
    return ", ".join(told)
