"""python -m hcq emulate: the command line of the supervisor.

In       words of HCQ_EMULATE, a program and its arguments; the switches of READ_HERE
Out      the program's output, which is its own; the exit status of the program
Changes  this process ends as the program did
Next     supervisor.py
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Sequence

from hcq import config
from hcq.emu.supervisor.supervisor import Supervisor
from hcq.errors import UsageError

LOG_LINES = 50
# the switches that the supervisor itself obeys; any other variable is the program's, whatever its name and value
READ_HERE = (
    "HCQ_TRACE",
    "HCQ_VALIDATE",
    "HCQ_PROFILE",
    "HCQ_REPORT",
    "HCQ_REPORT_DIR",
    "HCQ_CACHE_DIR",
    "HCQ_TIMEOUT_MS",
)


def say(text: str) -> None:
    """A line of our own, beside the program's output."""
    print(f"hcq emulate: {text}", file=sys.stderr, flush=True)


def run(words: str, command: Sequence[str], is_verbose: bool) -> int:
    """Run a program on emulated GPUs. Returns its exit status; a program that a signal ended takes us with it.

    words   as "amd:gfx1100,amd:gfx942"
    """
    arguments = list(command[1:] if command[:1] == ["--"] else command)
    gpus = [word.strip() for word in words.split(",") if word.strip()]
    if not gpus:
        raise UsageError("no GPU is named. Say for example: python -m hcq emulate amd:gfx1100 -- rocminfo")
    if not arguments:
        raise UsageError(f"no program is named. Say for example: python -m hcq emulate {words} -- rocminfo")
    own = {
        name: value for name, value in os.environ.items() if name in READ_HERE or not name.startswith("HCQ_")
    }
    config.use(config.Config.read(own))
    supervisor = Supervisor(gpus, say)
    try:
        if is_verbose:
            for line in [line for kernel in supervisor.machine.kernels for line in kernel.describe()]:
                say(line)
        status = supervisor.run(arguments, os.environ)
        log = supervisor.log()
    finally:
        supervisor.close()
    if log:
        say("log of the emulated kernel drivers:")
        for line in log[-LOG_LINES:]:
            print(f"  {line}", file=sys.stderr)
    sys.stderr.flush()
    if os.WIFSIGNALED(status):
        _die_of(os.WTERMSIG(status))
    return os.WEXITSTATUS(status)


def _die_of(number: int) -> None:
    """End as the program ended: whoever waits for us sees the same signal. Its core file is the only one."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), number)
