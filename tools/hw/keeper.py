"""The keeper: a process that holds the GPU's device file open for the whole run.

In       the paths of device files
Out      a line once they are open
Changes  the GPU stays initialised: without an open file NVIDIA's driver shuts it down between two items and starts it
         again, which takes seconds each time
Next     ../hw_check.py (who starts it)

In a process of its own because opening a GPU that is broken may never return.
"""

from __future__ import annotations

import contextlib
import glob
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

PATTERN = "/dev/nvidia[0-9]*"
OPEN_S = 60.0
HOLD = (
    "import os, sys\n"
    "for path in sys.argv[1:]:\n"
    "    try:\n"
    "        os.open(path, os.O_RDWR | os.O_CLOEXEC)\n"
    "        print('open', path, flush=True)\n"
    "    except OSError as error:\n"
    "        print(path, error.strerror, flush=True)\n"
    "print('all', flush=True)\n"
    "sys.stdin.read()\n"  # until the run is over, or its process is gone
)


@contextlib.contextmanager
def holding(paths: list[str]) -> Iterator[list[str]]:
    """Hold files open. Yields what was said of each; waits OPEN_S for the first to open, and goes on without."""
    if not paths:
        yield []
        return
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    said: list[str] = []
    ready = threading.Event()

    def listen() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == "all":
                break
            said.append(line.strip())
        ready.set()

    threading.Thread(target=listen, name="keeper", daemon=True).start()
    try:
        if not ready.wait(OPEN_S):
            said.append(f"{paths[0]} did not open within {OPEN_S:g} s")
        yield said
    finally:
        with contextlib.suppress(OSError, ValueError):
            assert child.stdin is not None
            child.stdin.close()
        try:
            child.wait(5.0)
        except subprocess.TimeoutExpired:
            child.kill()


def gpu_files() -> list[str]:
    """The files of NVIDIA GPUs that this process sees; AMD's driver starts GPUs once, when it is loaded."""
    return sorted(
        path
        for path in glob.glob(PATTERN)
        if path.removeprefix("/dev/nvidia").isdecimal() and os.path.exists(path)
    )
