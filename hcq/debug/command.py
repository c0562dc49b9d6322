"""python -m hcq debug: the command line of the debugger.

In       words of HCQ_EMULATE, a program and its arguments, or a trace; which face asks
Out      what the face prints; the exit status of the program, or that of the script
Changes  this process: the program runs in it
Next     session.py (the debugger), run_program.py (the program), terminal.py and dap.py (faces), docs/debugger.md
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from hcq import config, observe
from hcq.config import Config
from hcq.debug import run_program
from hcq.debug.names import Listener
from hcq.debug.session import Face, Session
from hcq.debug.terminal import Terminal
from hcq.device import Device
from hcq.errors import UsageError
from hcq.events import kernel_debug, kernel_faults, stray_accesses
from hcq.events.observer import Observer

VENDORS = ("amd", "nv", "metal")
FOREVER_MS = 1 << 39

EPILOG = """A program in Python runs in this process, on emulated GPUs. Waits have no deadline.
Any other program runs as under `python -m hcq emulate`: of AMD's runtimes, say. A trace is replayed.

examples:
  python -m hcq debug amd:gfx1100 -- train.py --steps 1      a prompt before the program begins; `help` teaches the rest
  python -m hcq debug nv:sm_90 -- -m my_package
  python -m hcq debug -x commands.txt --batch amd:gfx942 -- matmul.py
  python -m hcq debug -e 'break kernel *' -e continue nv:sm_90 -- matmul.py
  python -m hcq debug --dap 4711                              a server of the Debug Adapter Protocol, for one editor
  python -m hcq debug run.hcqtrace                            the kernels of a trace, on the GPU that it names
  python -m hcq debug amd:gfx1100 -- ./my_hip_program

In a script each line is a command, # begins a comment, `expect EXPRESSION` refuses to go on where it is false. With
--batch nobody is asked: a command that is refused ends it with status 1; else the status is the program's.
docs/debugger.md has a tutorial: a wrong number, traced back to its store.
"""


def add_verb(verb: argparse.ArgumentParser) -> None:
    """Declare what the verb takes."""
    verb.epilog = EPILOG
    verb.usage = (
        "hcq debug [-h] [-x FILE] [-e COMMAND] [--batch] [--dap [PORT]] [WORDS] -- PROGRAM [ARGUMENTS ...]"
    )
    verb.set_defaults(act=run)
    _add_options(verb)
    verb.add_argument(
        "rest", metavar="WORDS -- PROGRAM", nargs=argparse.REMAINDER, help="the GPUs; the program, or a trace"
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-x", metavar="FILE", action="append", default=[], dest="files", help="commands to begin with"
    )
    parser.add_argument(
        "-e", metavar="COMMAND", action="append", default=[], dest="lines", help="a command to begin with"
    )
    parser.add_argument(
        "--batch", action="store_true", help="ask nobody; a command that is refused ends it with status 1"
    )
    parser.add_argument(
        "--sanitize",
        metavar="WORDS",
        help="look for faults of kernels, as HCQ_SANITIZE does: `break finding` stops there",
    )
    parser.add_argument(
        "--dap",
        metavar="PORT",
        nargs="?",
        const="-",
        help="speak the Debug Adapter Protocol, on stdio or at a local port",
    )


def run(options: argparse.Namespace) -> int:
    """The verb. Returns the exit status. Raises UsageError when the question makes no sense."""
    before, program = _split(options.rest)
    extra = argparse.ArgumentParser(add_help=False)
    _add_options(extra)
    more, words = extra.parse_known_args(before)
    options.files += more.files
    options.lines += more.lines
    dap = options.dap or more.dap
    sanitize = more.sanitize or options.sanitize
    if sanitize is not None:
        os.environ["HCQ_SANITIZE"] = sanitize
        config.use(None)
    if dap is not None and dap.partition(":")[0] in VENDORS:  # of a GPU, where a port may stand
        words, dap = [dap, *words], "-"
    if len(words) > 1:
        raise UsageError(
            f"debug: {' '.join(words[1:])!r} is too much before `--`. `hcq debug --help` has examples."
        )
    if words and not words[0].startswith(VENDORS):
        if program:
            raise UsageError(f"debug: {words[0]!r} is no GPU. Say amd:gfx1100, nv:sm_90 or metal:m3.")
        program, words = words, []
    if dap is not None:
        from hcq.debug import dap_server

        return dap_server.serve(None if dap == "-" else dap, words[0] if words else "", program)
    if not program:
        raise UsageError(
            "debug: no program is named. Say for example: python -m hcq debug amd:gfx1100 -- train.py"
        )
    script = [line for name in options.files for line in _lines(name)] + options.lines
    face = Terminal(script, options.batch or more.batch)
    return debug(face, words[0] if words else "", program)


def _split(rest: Sequence[str]) -> tuple[list[str], list[str]]:
    """(before `--`, after it). argparse takes the first `--` away where it stands first."""
    rest = list(rest)
    if "--" in rest:
        at = rest.index("--")
        return rest[:at], rest[at + 1 :]
    if rest and rest[0].partition(":")[0] in VENDORS:
        return rest[:1], rest[1:]
    return [], rest


def _lines(name: str) -> list[str]:
    with open(name, encoding="utf-8") as file:
        return file.read().splitlines()


class _Watched(Config):
    """A configuration whose devices have observers: the debugger's, at least."""

    @property
    def is_observed(self) -> bool:
        return True


def debug(face: Face, words: str, program: Sequence[str]) -> int:
    """Run a program under a debugger. Returns its exit status.

    words   of HCQ_EMULATE; "": those of the environment
    """
    if words:
        os.environ["HCQ_EMULATE"] = words
        config.use(None)
    current = config.current()
    trace = run_program.trace_of(program)
    if trace:
        program, emulated = run_program.replay_of(trace, current.emulate)
        os.environ["HCQ_EMULATE"] = ",".join(emulated)
        config.use(None)
        current = config.current()
    if not current.emulate:
        raise UsageError("debug: no GPU is emulated. Say one: python -m hcq debug amd:gfx1100 -- PROGRAM")
    if current.counters:
        raise UsageError(
            "debug: HCQ_PROFILE=counters counts in runs without the debugger. Leave one of them out."
        )
    if any("caches" in word.split(":") for word in current.emulate):
        raise UsageError(
            "debug: a GPU with emulated caches (:caches) cannot be debugged. Leave the option out."
        )
    config.use(_Watched(**{**vars(current), "timeout_ms": FOREVER_MS}))
    session = Session(face)
    face.begin(session)

    def listen(device: Device) -> Observer:
        return Listener(device, session)

    observe.ADDED.append(listen)
    os.register_at_fork(after_in_child=lambda: kernel_debug.attach(None))  # nobody asks two processes at once
    kernel_debug.attach(session)
    hear_no_more = [
        stray_accesses.listen(session.strayed, session.gaps),
        kernel_faults.listen(session.faulted, frozenset()),
    ]
    try:
        status = run_program.run(session, current.emulate, list(program))
    finally:
        kernel_debug.attach(None)
        for end in hear_no_more:
            end()
        observe.ADDED.remove(listen)
    sys.stdout.flush()
    return status
