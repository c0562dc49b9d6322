"""python -m hcq emulate: the command line of the supervisor.

In       words of HCQ_EMULATE, a program and its arguments; the switches of READ_HERE
Out      the program's output, which is its own; the exit status of the program, or FOUND_STATUS
Changes  this process ends as the program did
Next     supervisor.py, schedules.py (--schedules)
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hcq import config
from hcq.emu.supervisor.supervisor import Supervisor
from hcq.errors import UsageError

LOG_LINES = 50
FOUND_STATUS = 86  # the program ended with 0, and HCQ_SANITIZE has found something
MOST_SCHEDULES = 10_000
# the switches that the supervisor itself obeys; any other variable is the program's, whatever its name and value
READ_HERE = (
    "HCQ_TRACE",
    "HCQ_VALIDATE",
    "HCQ_SANITIZE",
    "HCQ_SANITIZE_IGNORE",
    "HCQ_SANITIZE_SCHEDULES",
    "HCQ_PROFILE",
    "HCQ_REPORT",
    "HCQ_REPORT_DIR",
    "HCQ_EMU_COMPILED",
    "HCQ_EMU_THREADS",
    "HCQ_EMU_PTX",
    "HCQ_DEBUG",
    "HCQ_CACHE_DIR",
    "HCQ_TIMEOUT_MS",
)


def say(text: str) -> None:
    """A line of our own, beside the program's output."""
    print(f"hcq emulate: {text}", file=sys.stderr, flush=True)


def add_options(parser: argparse.ArgumentParser, takes_command: bool) -> None:
    """What stands before the program. takes_command: the program is among these words, for no -- stands before it."""
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="say which GPUs the program sees, and which lines of HCQ_SANITIZE_IGNORE ignored nothing",
    )
    parser.add_argument(
        "--sanitize",
        metavar="WORDS",
        help="look for faults of kernels, as HCQ_SANITIZE does: race,memory,...",
    )
    parser.add_argument(
        "--schedules",
        metavar="N",
        type=int,
        help="run the program N times, with seeds 1 to N: in other orders of waves, workgroups and queues, as"
        " HCQ_SANITIZE_SCHEDULES does",
    )
    parser.add_argument(
        "--findings", metavar="FILE", type=Path, help="write what was found there, as one line of JSON each"
    )
    parser.add_argument(
        "--ptx",
        metavar="FOLDER",
        help="where NAME.ptx lies beside each NAME.cubin that the program loads on NVIDIA GPUs, as HCQ_EMU_PTX does",
    )
    parser.add_argument("words", metavar="WORDS", help="the GPUs, as amd:gfx1100,amd:gfx942")
    if takes_command:
        parser.add_argument("command", metavar="PROGRAM", nargs=argparse.REMAINDER, help="and its arguments")


def run(options: argparse.Namespace) -> int:
    """Run a program on emulated GPUs. Returns its exit status; a program that a signal ended takes us with it.

    options   as add_options declares them, and `command`
    """
    words, arguments = options.words, list(options.command)
    gpus = [word.strip() for word in words.split(",") if word.strip()]
    if not gpus:
        raise UsageError("no GPU is named. Say for example: python -m hcq emulate amd:gfx1100 -- rocminfo")
    if not arguments:
        raise UsageError(f"no program is named. Say for example: python -m hcq emulate {words} -- rocminfo")
    environment = dict(os.environ)
    if options.sanitize is not None:
        environment["HCQ_SANITIZE"] = options.sanitize
    if options.ptx is not None:
        environment["HCQ_EMU_PTX"] = options.ptx
    own = {
        name: value for name, value in environment.items() if name in READ_HERE or not name.startswith("HCQ_")
    }
    settings = config.Config.read(own)
    config.use(settings)
    if options.schedules is None and settings.sanitize_schedules and settings.sanitize:
        options.schedules = settings.sanitize_schedules
    if options.schedules is not None:
        if not 1 <= options.schedules <= MOST_SCHEDULES:
            raise UsageError(f"--schedules {options.schedules}: takes a number from 1 to {MOST_SCHEDULES}.")
        if not settings.sanitize:
            raise UsageError(
                "--schedules looks for faults in other orders: say what kinds, with --sanitize race."
            )
        from hcq.emu.supervisor import schedules

        return schedules.run(gpus, arguments, options, environment)
    return _once(gpus, arguments, options.verbose, options.findings)


def _once(gpus: Sequence[str], arguments: Sequence[str], is_verbose: bool, findings: Path | None) -> int:
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
    found = supervisor.found()
    if findings is not None:
        write(findings, found)
    for line in supervisor.summary(is_verbose):
        say(line)
    sys.stderr.flush()
    if os.WIFSIGNALED(status):
        _die_of(os.WTERMSIG(status))
    own = os.WEXITSTATUS(status)
    if found and not own:
        say(
            f"{how_many(found)} in kernels; the program itself ended with 0, so the exit status is {FOUND_STATUS}"
        )
        return FOUND_STATUS
    return own


def how_many(found: Sequence[Mapping[str, Any]]) -> str:
    """A count in words."""
    return f"{len(found)} finding{'s' if len(found) != 1 else ''}"


def write(path: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Findings as lines of JSON."""
    path.write_text("".join(json.dumps(one) + "\n" for one in found), "utf-8")


def _die_of(number: int) -> None:
    """End as the program ended: whoever waits for us sees the same signal. Its core file is the only one."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), number)
