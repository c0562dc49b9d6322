"""The program that is debugged: a Python program in this process, an unmodified one under the supervisor, or a replay.

In       a command line
Out      the program's exit status
Changes  sys.argv and sys.path, as a program expects them; what SIGINT does
Next     command.py (who asks), session.py (stops), hcq/emu/supervisor/command.py (unmodified programs)
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType

from hcq.debug.names import ForeignListener
from hcq.debug.session import Session
from hcq.errors import UsageError
from hcq.events.foreign_devices import ForeignDevice, ForeignObserver
from hcq.trace.file import Trace
from hcq.trace.records import MAGIC

REPLAY = "hcq.tools.hcq_trace"  # the program that replays traces
WORDS = {"AMD": "amd", "NV": "nv", "METAL": "metal"}


def run(session: Session, words: Sequence[str], command: list[str]) -> int:
    """Run it, from a stop before its beginning to one after its end."""
    if os.path.basename(command[0]).startswith("python"):
        command = command[1:]
    if not command:
        raise UsageError("debug: Python alone is no program. Say a file, or -m and a module.")
    is_ours = command[0] in ("-m", "-c") or command[0].endswith((".py", ".pyz"))
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if session.is_stopped and session.cancel():
            return
        if session.is_stopped:
            session.face.tell("-- the program has stopped already: continue goes on, quit ends it.")
        elif not session.interrupt():
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        session.between(f"the program begins: {' '.join(command)}")
        status, how = _python(command) if is_ours else _foreign(session, words, command)
        session.between(f"the program has ended {how}")
    finally:
        signal.signal(signal.SIGINT, before)
    return status


def _python(command: list[str]) -> tuple[int, str]:
    """A program in Python, in this process. (status, how it ended)."""
    try:
        if command[0] == "-c":
            if len(command) < 2:
                raise UsageError("debug: -c takes the program's text.")
            sys.argv = ["-c", *command[2:]]
            sys.path.insert(0, "")
            exec(compile(command[1], "<string>", "exec"), {"__name__": "__main__"})
        elif command[0] == "-m":
            if len(command) < 2:
                raise UsageError("debug: -m takes a module.")
            sys.argv = command[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            if not os.path.exists(command[0]):
                raise UsageError(f"debug: there is no file {command[0]!r}.")
            sys.argv = command
            sys.path.insert(0, os.path.dirname(os.path.abspath(command[0])))
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
        if code is None:
            return 0, "with status 0"
        if isinstance(code, int):
            return code, f"with status {code}"
        print(code, file=sys.stderr)
        return 1, "with status 1"
    except UsageError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise  # ours
        traceback.print_exc()
        return 1, f"with {type(error).__name__}: {error}"
    except BaseException as error:
        traceback.print_exc()
        return 1, f"with {type(error).__name__}: {error}"
    return 0, "with status 0"


def _foreign(session: Session, words: Sequence[str], command: list[str]) -> tuple[int, str]:
    """An unmodified program on emulated GPUs, whose calls this process answers."""
    from hcq.emu.supervisor.supervisor import Supervisor
    from hcq.observe.foreign.session import ADDED

    def listen(device: ForeignDevice) -> ForeignObserver:
        return ForeignListener(device, session)

    ADDED.append(listen)
    supervisor = Supervisor(
        list(words), lambda text: print(f"hcq debug: {text}", file=sys.stderr, flush=True)
    )

    def end() -> None:
        if supervisor.child > 0:
            os.kill(supervisor.child, signal.SIGKILL)

    session.enders.append(end)
    try:
        status = supervisor.run(command, os.environ)
        for line in supervisor.log():
            print(f"  {line}", file=sys.stderr)
    finally:
        session.enders.remove(end)  # its number may be another process's by now
        supervisor.close()
        ADDED.remove(listen)
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status), f"by signal {os.WTERMSIG(status)}"
    return os.WEXITSTATUS(status), f"with status {os.WEXITSTATUS(status)}"


def trace_of(command: Sequence[str]) -> str:
    """The trace that a command line is; "" when it is a program."""
    if len(command) != 1 or not os.path.isfile(command[0]) or command[0].endswith(".py"):
        return ""
    with open(command[0], "rb") as file:
        return command[0] if file.read(len(MAGIC)) == MAGIC else ""


def replay_of(trace: str, emulated: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """(the program that replays a trace, the GPUs that it replays on: those of the trace, if none are named).

    Raises  UsageError for a trace of other devices alone, or one that cannot be read
    """
    if not emulated:
        devices = {one.name: one for one in Trace.read(trace).devices}
        emulated = tuple(f"{WORDS[one.kind]}:{one.arch}" for one in devices.values() if one.kind in WORDS)
    if not emulated:
        raise UsageError(f"debug {trace}: no device of it is a GPU that can be emulated here.")
    return ["-m", REPLAY, "replay", trace], emulated
