"""The runner: one item in a process of its own, ended at its deadline, with whatever it said.

In       an Item, the device's name, the folder, how much time is left
Out      a Check; the process's stderr in the folder, fresh lines of the kernel's log
Changes  starts processes and ends those that it started
Next     fork_server.py (who starts it), child.py (what the process does), plan.py (which items)
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import time
from dataclasses import replace
from pathlib import Path

import hcq
from hcq.doctor.check import Check, Status
from hcq.tools.hw.child import kind_of
from hcq.tools.hw.fork_server import GRACE_S, ForkServer, end
from hcq.tools.hw.plan import Item

ROOT = Path(hcq.__file__).resolve().parent.parent
TIMEOUT_MS, EMULATED_TIMEOUT_MS = 5_000, 30_000  # of a single wait in an item


class Runner:
    """Runs items for one device, and writes into one folder."""

    def __init__(self, device: str, folder: Path, deadline_s: float | None = None) -> None:
        self.device, self.folder, self.deadline_s = device, folder, deadline_s
        self.log = KernelLog()
        self.server: ForkServer | None = None

    def run(self, item: Item, left_s: float) -> Check:
        """One item. Never raises for what the item does."""
        deadline_s = min(item.deadline_s if self.deadline_s is None else self.deadline_s, left_s)
        errors = self.folder / "stderr" / f"{item.name}.txt"
        errors.parent.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        self.log.fresh()  # what was there before is nobody's
        result = self._run(item, deadline_s, errors)
        took = round(time.perf_counter() - start, 2)
        fresh = self.log.fresh()
        if fresh:
            (errors.parent / f"{item.name}.kernel.txt").write_text("\n".join(fresh) + "\n")
        if fresh and result.status == Status.FAILED:
            result = replace(result, figures={**result.figures, "kernel_log": " | ".join(fresh[-5:])[:1000]})
        return replace(result, took_s=took)

    def close(self) -> None:
        """End the fork server."""
        if self.server is not None:
            self.server.close()
            self.server = None

    def _run(self, item: Item, deadline_s: float, errors: Path) -> Check:
        """One process, until it ends or its time is up."""
        end_s = time.monotonic() + deadline_s
        environment = self._environment(item)
        if self.server is None or self.server.process.poll() is not None:
            self.server = ForkServer(kind_of(self.device), environment)
        server, pid = self.server, 0
        heard, said = os.pipe()
        try:
            with errors.open("wb") as stderr:
                try:
                    words = [item.name, self.device, str(self.folder), f"{deadline_s:g}"]
                    pid = server.start(words, environment, (said, stderr.fileno()))
                finally:
                    os.close(said)
            output = _heard(heard, end_s)
            code = server.ended(max(end_s - time.monotonic(), 0)) if output is not None else None
            if code is not None and output is not None:
                return _result(item.name, output.decode("utf-8", "replace"), code, errors)
            how = ", and was ended"
            end(pid)
            if server.ended(GRACE_S) is None:
                self.server = None  # which waits for it
                how = " and cannot be ended: the kernel driver does not let go of it"
        except OSError as error:
            self.close()
            return Check(item.name, Status.FAILED, f"its process could not be started or waited for: {error}")
        except BaseException:  # Ctrl-C: nothing that was started stays
            if pid:
                end(pid)
            raise
        finally:
            os.close(heard)
        return Check(item.name, Status.FAILED, f"took longer than {deadline_s:g} s{how}. {_tail(errors)}")

    def _environment(self, item: Item) -> dict[str, str]:
        made = dict(os.environ)
        made["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), made.get("PYTHONPATH", "")]))
        made["HCQ_REPORT_DIR"] = str(self.folder / "reports")
        limit_ms = EMULATED_TIMEOUT_MS if made.get("HCQ_EMULATE") else TIMEOUT_MS
        made.setdefault("HCQ_TIMEOUT_MS", str(limit_ms))
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


def _heard(fd: int, end_s: float) -> bytes | None:
    """All that comes until the other end is closed; None where that takes too long."""
    data = b""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while poll.poll(1000 * max(end_s - time.monotonic(), 0)):
        more = os.read(fd, 1 << 16)
        if not more:
            return data
        data += more
    return None


def _tail(errors: Path) -> str:
    try:
        lines = errors.read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return " | ".join(lines[-3:])[-600:]


# -- lines about GPUs that were written since the last look ------------------------------------------------------------


KMSG = "/dev/kmsg"
ABOUT_GPUS = re.compile(
    r"nvrm|nvidia|xid|amdgpu|kfd|drm|iommu|dmar|pcieport|aer|mce|hung task|out of memory", re.IGNORECASE
)
RECORD_BYTES = 8192
MAX_LINES = 200


class KernelLog:
    """The log from now on; it begins at its end."""

    def __init__(self, path: str = KMSG) -> None:
        self.why = ""
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.why = f"{path}: {error.strerror}"

    def fresh(self) -> list[str]:
        """Lines about GPUs and the bus since the last call, the newest MAX_LINES of them."""
        found: list[str] = []
        while self._fd >= 0:
            try:
                record = os.read(self._fd, RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # lines were lost: the log is a ring, too
                found.append("(lines were overwritten before they were read)")
                continue
            except OSError:
                break
            if not record:
                break
            head, _, text = record.decode("utf-8", "replace").partition(";")
            line = text.partition("\n")[0]
            if ABOUT_GPUS.search(line):
                stamp = head.split(",")[2] if head.count(",") >= 2 else "0"
                found.append(f"[{int(stamp) / 1e6:.6f}] {line}" if stamp.isdecimal() else line)
        return found[-MAX_LINES:]
