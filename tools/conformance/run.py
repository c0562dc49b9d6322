"""Conformance, the run: operators in a few processes, with a time limit for each, and a file that has what was found.

In       numbers and names of operators; how many processes; how long one operator may take
Out      a result for each; a line on the terminal for those that do not pass, and how far the run is
Next     pytorch.py (the command line, and what a worker does), diary.py (the file of results)
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hcq.tools.conformance.diary import Diary
from hcq.tools.conformance.judge import LATE, PASSES
from hcq.tools.conformance.samples import SAMPLES

SECONDS = 60.0  # for all samples of an operator
EACH = 60.0  # seconds between lines that say how far the run is
PROGRAM = Path(__file__).resolve().with_name("pytorch.py")  # what a worker runs


class Helper:
    """A process that runs operators, and is replaced when one takes too long or ends it."""

    def __init__(self, device: str | None, words: Sequence[str]):
        self.device = device
        self.words = words
        self.process: Any = None
        self.lines: queue.Queue[str] = queue.Queue()

    def run(self, number: int, name: str, seconds: float) -> dict[str, Any]:
        """The result of one operator."""
        if self.process is None:
            self.start()
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        line = self.next_line(seconds)
        if line:
            return json.loads(line)  # type: ignore[no-any-return]
        if line is None:
            why = f"not done in {seconds:.0f} s"
        else:
            why = f"the process ended with {self.process.wait()}"
        self.stop()
        return {"operator": name, "status": LATE, "counts": {LATE: SAMPLES}, "why": [why]}

    def start(self) -> None:
        """A new process, ready for work."""
        command = [sys.executable, str(PROGRAM), "--worker"]
        command += ["--device", self.device] if self.device else []
        command += self.words
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.lines = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()
        if not self.next_line(300.0):
            raise SystemExit(
                "conformance: a worker did not start; run it by hand: tools/conformance/pytorch.py --worker"
            )

    @staticmethod
    def _read(process: Any, lines: queue.Queue[str]) -> None:
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def next_line(self, seconds: float) -> str | None:
        """What it says next; "" when it has ended, None when it says nothing."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def stop(self) -> None:
        """End it, and what it started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def run_all(
    work: list[tuple[int, str]],
    device: str | None,
    jobs: int,
    seconds: float,
    quiet: bool,
    words: Sequence[str] = (),
    diary: Diary | None = None,
) -> list[dict[str, Any]]:
    """Every operator, in `jobs` processes, whose command line has these words, too; those in the diary are done."""
    diary = diary or Diary()
    todo: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    for number, name in work:
        if name not in diary.results:
            todo.put((number, name))
    progress = Progress(len(work), todo.qsize())

    def serve() -> None:
        helper = Helper(device, words)
        try:
            while True:
                try:
                    number, name = todo.get_nowait()
                except queue.Empty:
                    return
                result = helper.run(number, name, seconds)
                diary.add(result)
                if not quiet or result["status"] != PASSES:
                    print(f"{result['status']:8} {name}  {'; '.join(result['why'])}", flush=True)
                for line in progress.after_one():
                    print(line, flush=True)
        finally:
            helper.stop()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [diary.results[name] for _, name in work if name in diary.results]


class Progress:
    """How far a run is, once in a while.

    total, todo   how many operators there are, and how many of them are not done yet
    """

    def __init__(self, total: int, todo: int, clock: Callable[[], float] = time.monotonic):
        self.total, self.todo, self.done = total, todo, 0
        self.clock = clock
        self.start = self.said = clock()
        self._lock = threading.Lock()

    def after_one(self) -> list[str]:
        """One more operator is done: a line, or none when the last one was said a moment ago."""
        with self._lock:
            self.done += 1
            now, left = self.clock(), self.todo - self.done
            if now - self.said < EACH or not left:
                return []
            self.said = now
            minutes = (now - self.start) / 60
            done = self.total - left
            more = minutes * left / self.done
            return [
                f"         {done} of {self.total} operators, {minutes:.0f} min; about {more:.0f} min more"
            ]
