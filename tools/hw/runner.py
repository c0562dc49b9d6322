"""The runner: one item in a process of its own, ended at its deadline, with whatever it said.

In       an Item, the device's name, the folder, how much time is left
Out      a Check; the process's stderr in the folder, fresh lines of the kernel's log
Changes  starts processes and ends those that it started
Next     child.py (what the process does), plan.py (which items)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import hcq
from hcq.doctor.check import Check, Status
from hcq.tools.hw.kernel_log import KernelLog
from hcq.tools.hw.plan import Item

ROOT = Path(hcq.__file__).resolve().parent.parent
TIMEOUT_MS = 5_000  # of a single wait in an item
GRACE_S = 5.0  # for a process to go after it was killed: one in the kernel's hands may not


class Runner:
    """Runs items for one device, and writes into one folder."""

    def __init__(self, device: str, folder: Path, deadline_s: float | None = None) -> None:
        self.device, self.folder, self.deadline_s = device, folder, deadline_s
        self.log = KernelLog()

    def run(self, item: Item, left_s: float) -> Check:
        """One item. Never raises for what the item does."""
        deadline_s = min(item.deadline_s if self.deadline_s is None else self.deadline_s, left_s)
        errors = self.folder / "stderr" / f"{item.name}.txt"
        errors.parent.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        self.log.fresh()  # what was there before is nobody's
        with errors.open("wb") as stderr:
            child = subprocess.Popen(
                self._words(item, deadline_s),
                env=self._environment(item),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                output, _ = child.communicate(timeout=deadline_s)
                late = ""
            except subprocess.TimeoutExpired:
                output, late = b"", _end(child)
            except BaseException:  # Ctrl-C: nothing that was started stays
                _end(child)
                raise
        took = round(time.perf_counter() - start, 2)
        fresh = self.log.fresh()
        if fresh:
            (errors.parent / f"{item.name}.kernel.txt").write_text("\n".join(fresh) + "\n")
        if late:
            text = f"took longer than {deadline_s:g} s{late}. {_tail(errors)}"
            result = Check(item.name, Status.FAILED, text)
        else:
            result = _result(item.name, output.decode("utf-8", "replace"), child.returncode, errors)
        if fresh and result.status == Status.FAILED:
            result = replace(result, figures={**result.figures, "kernel_log": " | ".join(fresh[-5:])[:1000]})
        return replace(result, took_s=took)

    def _words(self, item: Item, deadline_s: float) -> list[str]:
        return [sys.executable, "-X", "faulthandler", "-m", "hcq.tools.hw.child", item.name, self.device,
                str(self.folder), f"{deadline_s:g}"]  # fmt: skip

    def _environment(self, item: Item) -> dict[str, str]:
        made = dict(os.environ)
        made["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), made.get("PYTHONPATH", "")]))
        made["HCQ_REPORT_DIR"] = str(self.folder / "reports")
        made.setdefault("HCQ_TIMEOUT_MS", str(TIMEOUT_MS))
        made.pop("HCQ_TRACE", None)
        if item.trace:
            path = self.folder / item.trace
            path.unlink(missing_ok=True)
            made["HCQ_TRACE"] = f"{path},data"
        return {**made, **item.environment}


def _result(name: str, output: str, code: int, errors: Path) -> Check:
    """What the process said last, or how it ended."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        fields = json.loads(output.strip().rpartition("\n")[2])
        return Check(**{**fields, "status": Status(fields["status"])})
    how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"status {code}"
    return Check(name, Status.FAILED, f"its process ended with {how}: {_tail(errors)}")


def _end(child: subprocess.Popen[bytes]) -> str:
    """Kill a process with all that it started. Returns what to add where it does not go."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.communicate(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        return " and cannot be ended: the kernel driver does not let go of it"
    return ", and was ended"


def _tail(errors: Path) -> str:
    try:
        lines = errors.read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return " | ".join(lines[-3:])[-600:]
