"""Conformance, the run: operators in a few processes, with a time limit for each, and a file that has what was found.

In       numbers and names of operators; how many processes; how long one operator may take
Out      a result for each; a line on the terminal for those that do not pass
Changes  the file of results
Next     conformance.py (the command line, and what a worker does)
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hcq.tools.conformance_judge import LATE, PASSES
from hcq.tools.conformance_samples import SAMPLES

SECONDS = 60.0  # for all samples of an operator
PROGRAM = Path(__file__).resolve().parent / "conformance.py"  # what a worker runs


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
                "conformance: a worker did not start; run it by hand: tools/conformance.py --worker"
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
    diary = diary or Diary(None)
    todo: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    for number, name in work:
        if name not in diary.results:
            todo.put((number, name))

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
        finally:
            helper.stop()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [diary.results[name] for _, name in work if name in diary.results]


class Diary:
    """Results by operator, and a file that has each of them as soon as it is there, a line of JSON.

    A run that goes on with it computes what was late again.
    """

    def __init__(self, path: Path | None, resumed: bool = False):
        self.path = path
        self.results: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        if path is None:
            return
        if resumed and path.exists():
            for line in path.read_text("utf-8").splitlines():
                result = json.loads(line)
                if result["status"] != LATE:
                    self.results[result["operator"]] = result
        else:
            path.write_text("", "utf-8")

    def add(self, result: dict[str, Any]) -> None:
        """One more."""
        with self._lock:
            self.results[result["operator"]] = result
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
