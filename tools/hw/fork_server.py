"""The fork server: a process that has imported what items need, and forks one for each: no item waits for imports.

In       a request with two descriptors for output; the environment of the item
Out      the item's process, as its number; then how it ended
Changes  nothing of a GPU: the server opens no device, so what an item does ends with the item
Next     runner.py (who asks), child.py (what is run)

Before the fork there is one thread and no device. A server that dies, or whose child the kernel does not let go, is
left to itself, and the next item gets another one.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

MODULES = ("checks", "evidence", "experiments", "host", "ladder", "variants")  # of this folder
OF_VENDOR = ("evidence", "experiments", "host", "ladder", "variants")
OTHERS = ("_cffi_backend", "hcq.doctor.examine", "hcq.observe.report")
MESSAGE_BYTES = 1 << 16
GRACE_S = 5.0  # for a process to go after it was killed: one in the kernel's hands may not


class ForkServer:
    """The client's side: one server, one child at a time. Raises OSError when the server is gone."""

    def __init__(self, kind: str, environment: Mapping[str, str], cwd: str | None = None) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-X",
                    "faulthandler",
                    "-m",
                    "hcq.tools.hw.fork_server",
                    str(theirs.fileno()),
                    kind,
                ],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd=cwd,
            )

    def start(self, argv: Sequence[str], environment: Mapping[str, str], outputs: tuple[int, int]) -> int:
        """A process that runs child.main with these words: its number. outputs: its stdout and stderr."""
        request = json.dumps({"argv": list(argv), "environment": dict(environment)}).encode()
        socket.send_fds(self.socket, [request], list(outputs))
        return int(self._answer()["pid"])

    def ended(self, timeout_s: float) -> int | None:
        """How the child ended: its status, or -signal; None where it has not yet."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return int(self._answer()["status"]) if poll.poll(1000 * timeout_s) else None

    def _answer(self) -> dict[str, Any]:
        data = self.socket.recv(MESSAGE_BYTES)
        if not data:
            raise ConnectionResetError("the fork server is gone")
        found: dict[str, Any] = json.loads(data)
        return found

    def close(self) -> None:
        """End the server; one that waits for a child that does not go is left behind."""
        self.socket.close()
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()


def end(pid: int) -> None:
    """Kill a process with all that it started."""
    for kill in (os.killpg, os.kill):  # a process that was just forked may not lead its group yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


# ------------------------------------------------------------ the server's side


def main(argv: list[str]) -> int:
    """Fork until the other side closes. In a child: run it, and return its exit status."""
    with socket.socket(fileno=int(argv[0])) as asked:
        preload(argv[1])
        gc.collect()
        gc.freeze()  # pages of what is loaded stay shared
        while True:
            request, given, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, 2)
            if not request:
                return 0
            pid = os.fork()
            if not pid:
                break
            for fd in given:
                os.close(fd)
            asked.send(json.dumps({"pid": pid}).encode())
            _, status = os.waitpid(pid, 0)
            try:
                asked.send(json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode())
            except BrokenPipeError:
                return 0
    wanted = json.loads(request)
    os.setsid()
    for number, fd in enumerate(given, 1):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    from hcq.tools.hw import child

    return child.main(wanted["argv"])


def preload(kind: str) -> None:
    """Import what items of a vendor need. What cannot be imported is the item's to say."""
    from hcq.tools.hw import plan

    places = [f"{plan.HERE}.child", *(f"{plan.HERE}.{name}" for name in MODULES), *OTHERS]
    if kind:
        places += [f"{plan.HERE}.{kind.lower()}.{name}" for name in OF_VENDOR]
    for place in [*places, *of_backend(kind)]:
        with contextlib.suppress(Exception):
            importlib.import_module(place)


def of_backend(kind: str) -> list[str]:
    """Modules of a vendor's driver, and of its emulation where that is wanted."""
    from hcq import backends

    if kind not in backends.PLACES:
        return []
    found = backends.of(kind)
    places = [found.device, found.doctor, found.rules]
    made = [place.partition(":")[0] for place in places if place]
    if os.environ.get("HCQ_EMULATE") and found.emulation:
        folder = found.emulation.partition(":")[0].rpartition(".")[0]
        of_all = importlib.import_module(folder)
        walked = pkgutil.walk_packages(of_all.__path__, f"{folder}.")
        made += [backends.EMULATED_PORT.partition(":")[0], *(one.name for one in walked)]
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
