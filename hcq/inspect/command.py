"""python -m hcq inspect: the devices of another process, or the rings of a real GPU, while they work or hang.

In       the command line: a process, or the number of a GPU
Out      a page, or JSON; the exit status is 0 when there was an answer
Changes  nothing that is looked at
Next     client.py (asks a process), text.py (the page), hcq/backend.py (`inspection`, which a kind of device may name)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from hcq import backends, checks, config
from hcq.backend import load
from hcq.errors import HcqError, UsageError
from hcq.inspect import client, text

DEADLINE_S = 10.0
LISTING_S = 2.0  # for each process of a list

EPILOG = """examples:
  HCQ_INSPECT=1 python train.py &                the program answers inspectors of this user
  python -m hcq inspect                          lists the processes that answer
  python -m hcq inspect 4711                     what its devices do now, what waits for what, memory by names
  python -m hcq inspect 4711 --rings             the words of each ring around get, as packets
  python -m hcq inspect 4711 --queues            queues as the kernel driver describes them (emulated GPUs)
  python -m hcq inspect 4711 --waves             where the kernels stand that run on its emulated GPUs
  python -m hcq inspect 4711 --watch 1           the page again every second, until Ctrl-C
  python -m hcq inspect 4711 --rings --json      for another program

A real AMD GPU, of whatever program, as its kernel driver tells root. It reads files, and registers for --waves alone:
  sudo python -m hcq inspect --gpu 0 --rings     rings of the kernel driver: gfx, compute, copies, scheduler
  sudo python -m hcq inspect --gpu 0 --queues    queues of programs: MQDs and the runlist
  sudo python -m hcq inspect --gpu 0 --waves     waves that are on the GPU: PC, lanes, state
  sudo python -m hcq inspect --gpu 0 --registers whether the GPU is busy; its hardware queues

A process of another user is not shown. docs/inspect.md tells what each line means, and where this ends.
"""


def add_verb(verb: argparse.ArgumentParser) -> None:
    """Declare what the verb takes."""
    verb.epilog = EPILOG
    verb.set_defaults(act=run)
    verb.add_argument(
        "pid", metavar="PID", nargs="?", help="a process; without it, those that answer are listed"
    )
    verb.add_argument(
        "--gpu", metavar="N", help="a real GPU by the number of its DRM device, through debugfs"
    )
    verb.add_argument("--chip", metavar="NAME", default="", help="with --gpu: its architecture, as gfx1100")
    verb.add_argument(
        "--root", metavar="DIR", default="/", help="with --gpu: where sys/ is, as in a copy of it"
    )
    verb.add_argument("--rings", action="store_true", help="the words of each ring around get, as packets")
    verb.add_argument("--queues", action="store_true", help="queues as the kernel driver describes them")
    verb.add_argument("--waves", action="store_true", help="where waves stand: kernel, instruction, lanes")
    verb.add_argument(
        "--registers", action="store_true", help="AMD: whether the GPU is busy, and its hardware queues"
    )
    verb.add_argument("--json", action="store_true", help="JSON, for another program")
    verb.add_argument(
        "--watch", metavar="SECONDS", nargs="?", const="1", help="again and again (default: every second)"
    )
    verb.add_argument(
        "--deadline",
        metavar="SECONDS",
        default=f"{DEADLINE_S:g}",
        help=f"for an answer (default {DEADLINE_S:g})",
    )


def run(options: argparse.Namespace) -> int:
    """The verb. Raises UsageError when the question makes no sense or nobody answers; WaitTimeout at the deadline."""
    pid = None if options.pid is None else _whole("PID", options.pid)
    gpu = None if options.gpu is None else _whole("--gpu", options.gpu)
    deadline_s = _seconds("--deadline", options.deadline)
    every_s = None if options.watch is None else _seconds("--watch", options.watch)
    if pid is not None and gpu is not None:
        raise UsageError("inspect: give a process or --gpu, not both.")
    if gpu is None and (options.chip or options.root != "/"):
        raise UsageError("inspect: --chip and --root go with --gpu.")
    views = [view for view in ("rings", "queues", "waves", "registers") if getattr(options, view)]
    if pid is None and gpu is None and views:
        raise UsageError(
            f"inspect: --{views[0]} needs a process or --gpu. `python -m hcq inspect` lists processes."
        )
    while True:
        if gpu is not None:
            _print(options, _of_gpu(options, gpu, views), _gpu_page)
        elif pid is not None:
            found = client.ask(config.current().cache_dir, pid, views, deadline_s)
            _print(options, found, text.page)
        else:
            _print(options, {"processes": _processes(deadline_s)}, _listing)
        sys.stdout.flush()
        if every_s is None:
            return 0
        try:
            time.sleep(every_s)
        except KeyboardInterrupt:
            return 0


def _print(options: argparse.Namespace, found: dict[str, Any], lines: Any) -> None:
    if options.json:
        print(json.dumps(found) if options.watch else json.dumps(found, indent=2))
        return
    if options.watch:
        clear = "\033[H\033[2J" if sys.stdout.isatty() else ""
        print(f"{clear}---- {time.strftime('%Y-%m-%d %H:%M:%S')}")
    for line in lines(found):
        print(checks.printable(line))


def _processes(deadline_s: float) -> list[dict[str, Any]]:
    """Every process that answers; of one that does not, why."""
    cache_dir = config.current().cache_dir
    found: list[dict[str, Any]] = []
    for pid in client.processes(cache_dir):
        try:
            found.append(client.ask(cache_dir, pid, (), min(deadline_s, LISTING_S)))
        except HcqError as error:
            found.append({"pid": pid, "error": str(error)})
    return found


def _listing(found: dict[str, Any]) -> Iterator[str]:
    for state in found["processes"]:
        yield f"{state['pid']:>8}  {state['error']}" if "error" in state else text.short(state)
    if not found["processes"]:
        yield f"no process answers. {client.HINT}."


def _of_gpu(options: argparse.Namespace, gpu: int, views: list[str]) -> dict[str, Any]:
    for backend in backends.every():
        host = load(backend.inspection).host if backend.inspection else None
        if host is not None:
            found: dict[str, Any] = host(options.root, gpu, options.chip, views or ["rings", "queues"])
            return found
    raise UsageError("inspect --gpu: no kind of device here has such a view.")


def _gpu_page(found: dict[str, Any]) -> Iterator[str]:
    yield f"gpu       {found['gpu']}: {found['device']}, {found['chip'] or 'chip unknown'}"
    for note in found["notes"]:
        yield f"note      {note}"
    yield from text.windows(found["rings"])
    yield from text.queues(found["queues"])
    yield from text.waves(found.get("waves", []))
    yield from text.registers({**found, "notes": []})


def _whole(name: str, given: str) -> int:
    if not checks.is_decimal(given) or len(given) > 9:
        raise UsageError(f"inspect: {name} is a number, not {checks.shown(given)}.")
    return int(given)


def _seconds(name: str, given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 1e6:
        raise UsageError(f"inspect: {name} is a time in seconds from 0.01 on, not {checks.shown(given)}.")
    return value
