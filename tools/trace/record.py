"""Record: run a command with tracing switched on.

In       a command and its arguments
Out      the command's exit status; 128 and the number of the signal that ended it
Changes  the file, which begins anew; whatever the command does
Next     hcq/observe/trace.py (what is written), show.py (reads it)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hcq import config
from hcq.errors import UsageError
from hcq.trace.records import MAGIC


def record(command: Sequence[str], output: str, with_data: bool) -> int:
    """Run a command and record what it submits.

    output     the trace file; a trace that is there already is replaced
    with_data  also record contents of memory
    Raises     UsageError when the command cannot be started, or the file is something else than a trace
    """
    words = list(command[1:] if command[:1] == ["--"] else command)
    if not words:
        raise UsageError("give a command after --, as in: hcq-trace record -- python x.py")
    path = Path(output)
    _make_room(path)
    environment = {**os.environ, "HCQ_TRACE": str(path.absolute()) + (",data" if with_data else "")}
    try:
        child = subprocess.Popen(words, env=environment)
    except OSError as error:
        raise UsageError(f"{words[0]} cannot be started ({error.strerror}).") from None
    status = _wait(child)
    if not path.exists():
        print(f"hcq-trace record: {words[0]} opened no hcq device; nothing was recorded", file=sys.stderr)
    elif status < 0:
        name = signal.Signals(-status).name
        print(
            f"hcq-trace record: {words[0]} was ended by {name}; {path} holds what came before",
            file=sys.stderr,
        )
    elif sys.stderr.isatty():
        size = path.stat().st_size / 1e6
        print(
            f"hcq-trace record: {path}, {size:.1f} MB; look at it: hcq-trace show {path} --last 3",
            file=sys.stderr,
        )
    return status if status >= 0 else 128 - status


def record_foreign(command: Sequence[str], output: str) -> int:
    """Run a command that is none of ours and record what it asks of /dev/kfd and submits there, by ptrace.

    Raises  UsageError where it cannot be traced, or there is no AMD GPU
    """
    from hcq.observe.foreign.session import Session
    from hcq.tools.trace.tracer import filter
    from hcq.tools.trace.tracer.tracer import Tracer

    words = list(command[1:] if command[:1] == ["--"] else command)
    if not words:
        raise UsageError("give a command after --, as in: hcq-trace record --foreign -- ./a_hip_program")
    gpus = _amd_gpus()
    if not gpus:
        raise UsageError(
            "record --foreign: /sys/devices/virtual/kfd lists no GPU. It records programs on AMD's kernel driver;"
            " programs of this package record themselves: leave --foreign out."
        )
    path = Path(output)
    _make_room(path)
    settings = replace(config.current(), trace=str(path.absolute()), report=frozenset({"off"}))
    session = Session(settings)
    session.offers("AMD", gpus)
    tracer = Tracer(session, stops_at_every_call=filter.is_filtered())
    try:
        status = tracer.run(words)
    finally:
        session.close()
    if not path.exists():
        print(f"hcq-trace record: {words[0]} used no GPU; nothing was recorded", file=sys.stderr)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _amd_gpus() -> dict[int, str]:
    """What names each GPU in calls of the KFD, and its architecture."""
    found = {}
    for folder in sorted(
        Path("/sys/devices/virtual/kfd/kfd/topology/nodes").glob("*"), key=lambda at: at.name
    ):
        try:
            gpu_id = int((folder / "gpu_id").read_text())
            rows = (line.split() for line in (folder / "properties").read_text().splitlines())
            version = next((int(row[1]) for row in rows if row[:1] == ["gfx_target_version"]), 0)
        except (OSError, ValueError):
            continue
        if gpu_id:
            found[gpu_id] = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    return found


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for the command. Ctrl-C reaches it, too, and what it means is for it to say."""
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue


def _make_room(path: Path) -> None:
    """Remove an old trace; anything else is somebody's file."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
        if start and not start.startswith(MAGIC.split()[0]):
            raise UsageError(
                f"record: {path} is no trace, and recording would replace it. Name another file with -o."
            )
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}). Name another file with -o."
        ) from None
