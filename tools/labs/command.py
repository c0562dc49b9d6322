"""python -m hcq.tools.labs: list the labs, begin one, check one.

In       the command line
Out      text; the exit status: 0 a lab is right, 1 something is still wrong, 2 the question makes no sense
Changes  `start` writes a file; `check` runs the file in a process of its own
Next     labs.py (the checks)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hcq.errors import HcqError
from hcq.tools.labs.labs import LABS, Lab, remarks

EPILOG = """examples:
  python -m hcq.tools.labs                 what there is
  python -m hcq.tools.labs start 3         writes race.py here
  python -m hcq.tools.labs check 3         checks race.py: right, or what is still wrong
  python -m hcq.tools.labs check 3 my.py

docs/labs.md is for teachers.
"""
EXERCISES = Path(__file__).parent / "exercises"
SECONDS = 120  # for one check


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="hcq.tools.labs",
        description="Exercises about queues and kernels.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="start | check")
    for verb, what in (("start", "write the file of a lab"), ("check", "say what is still wrong with it")):
        one = verbs.add_parser(verb, help=what)
        one.add_argument("lab", type=int, choices=sorted(LABS), help="its number")
        one.add_argument(
            "file", type=Path, nargs="?", help="the file; default: as the lab calls it, in this folder"
        )
    inside = verbs.add_parser("inside")  # the check itself, in a process with the lab's own switches
    inside.add_argument("lab", type=int)
    inside.add_argument("file", type=Path)
    inside.add_argument("result", type=Path)
    options = parser.parse_args(argv)
    if options.verb is None:
        for number, lab in LABS.items():
            print(f"{number}  {lab.file:<15} {lab.title}" + (f" (needs {lab.needs})" if lab.needs else ""))
        return 0
    lab = LABS[options.lab]
    if options.verb == "inside":
        options.result.write_text(json.dumps(remarks(lab, options.file)))
        return 0
    file = options.file or Path(lab.file)
    try:
        return _start(lab, file) if options.verb == "start" else _check(options.lab, lab, file)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except HcqError as error:
        print(error, file=sys.stderr)
        return 2


def _start(lab: Lab, file: Path) -> int:
    if file.exists():
        print(f"{file} is there already. Name another file.", file=sys.stderr)
        return 2
    file.write_text((EXERCISES / lab.file).read_text("utf-8"), "utf-8")
    print(f"{file}: {lab.title}. What to do is written at its top.")
    return 0


def _check(number: int, lab: Lab, file: Path) -> int:
    file.read_bytes()  # so that a file that is not there is said here
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result")  # the file may print what it likes
        line = [sys.executable, "-m", "hcq.tools.labs", "inside", str(number), str(file), str(result)]
        try:
            done = subprocess.run(
                line,
                env={**kept, **lab.switches},
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"still wrong: it did not end in {SECONDS} s")
            return 1
        if done.returncode or not result.exists():
            print(
                f"still wrong: the check itself ended with {done.returncode}, and no result:\n{done.stderr.strip()[-2000:]}"
            )
            return 1
        found = json.loads(result.read_text())
    print(done.stdout, end="")
    for one in found:
        print(f"still wrong: {one}")
    if not found:
        print(f"right. {lab.learned}")
    return 1 if found else 0
