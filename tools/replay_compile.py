"""Compile the kernels of a trace again: what would this revision make of what another one compiled?

    HCQ_TRACE=before.hcqtrace python program.py      with one revision
    python tools/replay_compile.py before.hcqtrace   with another: which schedules and which code differ
    python tools/replay_compile.py before.hcqtrace --diff softmax

In       traces of tensor programs, whose kernels carry their graphs
Out      a line for each kernel; 1 where one no longer compiles, and with --same where one differs
Changes  nothing; no device is opened
Next     ir/text.py (graphs as text), tools/golden.py (kernels that are reviewed)
"""

from __future__ import annotations

import argparse
import difflib
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__" and __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hcq.compiler.pipeline import build
from hcq.compiler.target import Target, amd_target, cpu_target, metal_target, nv_target
from hcq.errors import HcqError
from hcq.ir import text
from hcq.ir.verify import VerifyError, verify
from hcq.trace.file import Code, Trace

TARGETS = {"CPU": cpu_target, "AMD": amd_target, "NV": nv_target, "METAL": metal_target}


@dataclass(frozen=True)
class Again:
    """One kernel: what it was and what it is. `problem` says why it cannot be compiled."""

    name: str
    arch: str
    before: str  # schedule and source
    after: str
    bytes_before: int
    bytes_after: int
    problem: str = ""

    @property
    def verdict(self) -> str:
        """In two words."""
        if self.problem:
            return f"FAILS: {self.problem}"
        if self.before == self.after:
            return "same"
        return "schedule differs" if schedule_of(self.before) != schedule_of(self.after) else "code differs"


def schedule_of(source: str) -> str:
    """The schedule that a kernel's text begins with.

    >>> schedule_of("schedule: split r0 8\\nfor r0 in 4 (x8)")
    'split r0 8'
    """
    return source.split("\n", 1)[0].removeprefix("schedule: ")


def kernels(trace: Trace) -> Iterator[Code]:
    """The kernels of a trace that carry a graph, each once."""
    seen = set()
    for code in trace.code:
        graph = code.facts.get("graph")
        key = (code.device.kind, code.device.arch, graph)
        if isinstance(graph, str) and key not in seen:
            seen.add(key)
            yield code


def target_of(code: Code, threads: int | None) -> Target:
    """Raises ValueError where kernels of that device cannot be compiled here."""
    kind, arch = code.device.kind, code.device.arch
    if kind not in TARGETS:
        raise ValueError(f"nothing compiles for {kind} devices")
    if kind == "CPU" and arch != platform.machine():
        raise ValueError(f"it is for {arch}, and processors are compiled for where they are")
    return TARGETS[kind](arch, threads)


def again(code: Code, threads: int | None = None, keeps_schedule: bool = False) -> Again:
    """Compile one kernel of a trace again.

    threads         of a CPU; default: those that this process may use, as where the trace was made
    keeps_schedule  with the schedule that it had, not with what the heuristic chooses now
    """
    before = str(code.facts.get("source", ""))
    shown: dict[str, str] = {}
    try:
        sink = text.read(str(code.facts["graph"]))
        verify(sink, "tensor")
        schedule = schedule_of(before) if keeps_schedule else None
        schedule = "" if schedule == "(plain loops)" else schedule
        made = build(sink, target_of(code, threads), schedule, show=shown.__setitem__)
    except (ValueError, VerifyError, HcqError, RuntimeError) as problem:
        said = str(problem).split("\n")[0]
        return Again(
            code.name, code.device.arch, before, "", len(code.image), 0, said or type(problem).__name__
        )
    return Again(code.name, code.device.arch, before, shown["code"], len(code.image), len(made.image))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    lines = (__doc__ or "").split("\n")
    made = argparse.ArgumentParser(prog="replay_compile.py", description=lines[0])
    made.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="made with HCQ_TRACE=FILE")
    made.add_argument("--diff", metavar="TEXT", help="show how kernels with this in their name differ")
    made.add_argument(
        "--keep-schedules", action="store_true", help="compile each with the schedule that it had"
    )
    made.add_argument("--same", action="store_true", help="1 where any kernel differs")
    made.add_argument("--threads", type=int, help="of the CPU, where the trace was made with another number")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 as the options say, or 2 for a file that is no such trace."""
    options = parser().parse_args(arguments)
    found: list[Again] = []
    for path in options.traces:
        try:
            codes = list(kernels(Trace.read(str(path))))
        except (HcqError, OSError) as problem:
            print(f"replay_compile.py: {problem}", file=sys.stderr)
            return 2
        if not codes:
            print(
                f"replay_compile.py: no kernel of {path} carries its graph: only tensor programs' do, traced with "
                "HCQ_TRACE=FILE",
                file=sys.stderr,
            )
            return 2
        for number, code in enumerate(codes, 1):
            if sys.stderr.isatty():
                print(f"\r{number} of {len(codes)}", end="", file=sys.stderr)
            found.append(again(code, options.threads, options.keep_schedules))
        if sys.stderr.isatty():
            print("\r", end="", file=sys.stderr)
    for one in found:
        print(f"{one.arch:8} {one.bytes_before:8} -> {one.bytes_after:8} bytes  {one.name}: {one.verdict}")
        if options.diff is not None and options.diff in one.name and one.before != one.after:
            before, after = one.before.splitlines(), one.after.splitlines()
            print("\n".join(difflib.unified_diff(before, after, "in the trace", "made now", lineterm="")))
    failed = sum(bool(one.problem) for one in found)
    same = sum(one.verdict == "same" for one in found)
    print(f"{len(found)} kernels: {same} the same, {len(found) - same - failed} differ, {failed} fail")
    return int(failed > 0 or (options.same and same < len(found)))


if __name__ == "__main__":
    sys.exit(main())
