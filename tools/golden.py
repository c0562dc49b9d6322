"""Golden kernels: what the compiler makes of some twenty programs on each target, as text that people review.

    python tools/golden.py check      compare kernels_golden/ with what the compiler makes now; 1 where they differ
    python tools/golden.py update     write what it makes now; then read the diff: it is everyone's kernels
    python tools/golden.py show softmax sm_80

In       golden_programs.py, golden_text.py, kernels_golden/<target>/<program>.txt
Out      nothing, or a unified diff; the exit status
Changes  with `update`, kernels_golden/; starts one process for each target, whose GPU is emulated
Next     kernels_golden/README.md, tests/tools/test_golden.py
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

if __name__ == "__main__" and __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hcq.tools.golden_programs import PROGRAMS
from hcq.tools.golden_text import EMULATED, TARGETS, Sections, texts_of

FOLDER = Path(__file__).resolve().parent.parent / "kernels_golden"
HEAD = "toolchain "
PATIENCE_MS = "3000000"  # a busy machine emulates slowly


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="golden.py", description=__doc__.split("\n")[0], epilog=f"targets: {', '.join(TARGETS)}"
    )
    made.add_argument("verb", choices=("check", "update", "show"))
    made.add_argument("program", nargs="?", help=f"one of {', '.join(PROGRAMS)}; default: all")
    made.add_argument("target", nargs="?", help="default: all")
    made.add_argument(
        "--no-counters", action="store_true", help="leave out what emulated GPUs count; quicker"
    )
    made.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time (default: %(default)s)"
    )
    made.add_argument("--folder", type=Path, default=FOLDER, help=argparse.SUPPRESS)
    made.add_argument("--write", type=Path, help=argparse.SUPPRESS)  # a child's: where its files go
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where all is as reviewed, 1 where it differs, 2 for a mistake in the command."""
    options = parser().parse_args(arguments)
    for what, name, known in (("program", options.program, PROGRAMS), ("target", options.target, TARGETS)):
        if name not in (None, "all") and name not in known:
            print(f"golden.py: there is no {what} {name!r}; there are {', '.join(known)}", file=sys.stderr)
            return 2
    programs = list(PROGRAMS) if options.program in (None, "all") else [options.program]
    targets = list(TARGETS) if options.target in (None, "all") else [options.target]
    if options.write is not None:
        return _write(programs, targets[0], options.write, not options.no_counters)
    with tempfile.TemporaryDirectory() as folder:
        if not _made(programs, targets, Path(folder), options):
            return 1
        return _judge(programs, targets, Path(folder), options)


def _write(programs: Sequence[str], target: str, folder: Path, counted: bool) -> int:
    """A child's work: the files of one target."""
    (folder / target).mkdir(parents=True, exist_ok=True)
    for program in programs:
        kernels = texts_of(program, target, counted)
        (folder / target / f"{program}.txt").write_text(_file(kernels))
        print(program, flush=True)
    return 0


def _file(kernels: Sequence[Sections]) -> str:
    """One kernel after the other; one that comes again is named."""
    texts: dict[str, int] = {}
    for kernel in kernels:
        texts[str(kernel)] = texts.get(str(kernel), 0) + 1
    parts = [text if times == 1 else f"{text}-- launched\n{times} times\n" for text, times in texts.items()]
    return f"{HEAD}{kernels[0].toolchain}\n\n" + "\n\n".join(parts)


def _made(programs: Sequence[str], targets: Sequence[str], folder: Path, options: argparse.Namespace) -> bool:
    """Every target's files, by a process for each; False where one fails, which says why."""
    done = 0
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        jobs = {pool.submit(_child, programs, target, folder, options): target for target in targets}
        good = True
        for job in as_completed(jobs):
            done += 1
            status, said = job.result()
            print(f"golden.py: {jobs[job]} ({done} of {len(targets)})", file=sys.stderr)
            if status:
                print(f"golden.py: {jobs[job]} failed:\n{said}", file=sys.stderr)
                good = False
    return good


def _child(
    programs: Sequence[str], target: str, folder: Path, options: argparse.Namespace
) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    environment["HCQ_COMPILERS"] = "1"
    environment["HCQ_TIMEOUT_MS"] = PATIENCE_MS
    if target in EMULATED and not options.no_counters:
        environment["HCQ_EMULATE"] = EMULATED[target]
        environment["HCQ_DEVICE"] = "AMD" if EMULATED[target].startswith("amd") else "NV"
    else:
        environment["HCQ_DEVICE"] = "CPU"
    program = programs[0] if len(programs) == 1 else "all"
    command = [sys.executable, __file__, "update", program, target, "--write", str(folder)]
    command += ["--no-counters"] * options.no_counters
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def _judge(programs: Sequence[str], targets: Sequence[str], folder: Path, options: argparse.Namespace) -> int:
    different, other_tools = 0, set()
    for target in targets:
        for program in programs:
            now = (folder / target / f"{program}.txt").read_text()
            path = options.folder / target / f"{program}.txt"
            if options.verb == "show":
                print(now)
                continue
            if options.verb == "update":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(now)
                continue
            if not path.is_file():
                print(f"{path} does not exist: write it with golden.py update, and read it")
                different += 1
                continue
            reviewed = path.read_text()
            left_out: tuple[str, ...] = ("counters",) if options.no_counters else ()
            if reviewed.split("\n")[0] != now.split("\n")[0]:
                other_tools.add(
                    (
                        target,
                        reviewed.split("\n")[0].removeprefix(HEAD),
                        now.split("\n")[0].removeprefix(HEAD),
                    )
                )
                left_out = ("machine", "code", "counters")
            before, after = without(reviewed, left_out), without(now, left_out)
            if before != after:
                different += 1
                lines = difflib.unified_diff(before, after, str(path), "made now", lineterm="")
                print("\n".join(lines))
    if options.verb == "update":
        _drop_unknown(options.folder, programs, targets)
    for target, then, here in sorted(other_tools):
        print(
            f"golden.py: {target}: machine code and counters are not compared: {then} made them, here it is {here}"
        )
    if options.verb == "check":
        count = len(programs) * len(targets)
        verdict = (
            f"{different} differ. If that is meant: golden.py update, and read the diff"
            if different
            else "as reviewed"
        )
        print(f"golden.py: {count} programs on targets: {verdict}")
    return int(different > 0)


def without(text: str, names: Sequence[str]) -> list[str]:
    """The lines of a file but for its toolchain and these sections.

    >>> without("toolchain a\\n\\n-- source\\nx\\n-- code\\ny\\n-- source\\nz", ["code"])
    ['-- source', 'x', '-- source', 'z']
    """
    lines, section = [], ""
    for line in text.split("\n")[2:] if names else text.split("\n"):
        if line.startswith("-- "):
            section = line[3:]
        if section not in names:
            lines.append(line)
    return lines


def _drop_unknown(folder: Path, programs: Sequence[str], targets: Sequence[str]) -> None:
    """Files of programs that there are no more."""
    if len(programs) == len(PROGRAMS):
        for target in targets:
            for path in (folder / target).glob("*.txt"):
                if path.stem not in PROGRAMS:
                    path.unlink()


if __name__ == "__main__":
    sys.exit(main())
