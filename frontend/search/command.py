"""python -m hcq search: look at the results of searches, and merge files of them.

In       the command line's words
Out      a table, or the text of a file of results; the exit status
Changes  the file that --output names
Next     store.py (files of results), hcq/__main__.py (who calls)
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from hcq.compiler.search.results import Place, Result, merge, text_of
from hcq.frontend.core.errors import UsageError
from hcq.frontend.search import store
from hcq.frontend.search.progress import shown_ns

DESCRIPTION = """Kernels run by schedules: which loops are vectors, which are threads, what is copied to fast memory.
A heuristic chooses one in a millisecond. A search tries hundreds on the device itself, and keeps what was fastest."""

HELP = """how to search:
  HCQ_SEARCH=4 python train.py                 search each new kernel with a beam of 4; the next run uses what was found
  HCQ_SEARCH=4 HCQ_SEARCH_SECONDS=3600 HCQ_SEARCH_RESULTS=schedules.txt python train.py
                                               for an hour, into a file to commit
  HCQ_SEARCH_RESULTS=schedules.txt python train.py
                                               use that file, search nothing: the same kernels in every run

what is in a file:
  One line for each kernel, sorted. A line is for one kernel (its graph, shapes and dtypes), one kind of processor and
  one LLVM, and others do not take it: a file may hold results of many machines. A schedule of an older version that
  does not apply any more is passed over, and the heuristic chooses.

examples:
  python -m hcq search show                    what was found on this machine: the largest gains first
  python -m hcq search show schedules.txt --kernel dot --schedules
  python -m hcq search merge laptop.txt server.txt --output schedules.txt

docs/search.md tells how the search works, how candidates are checked, and what one that hangs costs.
"""


def add_verb(parser: argparse.ArgumentParser) -> None:
    """The words of `python -m hcq search`."""
    parser.description = DESCRIPTION
    parser.epilog = HELP
    parser.set_defaults(act=run)
    verbs = parser.add_subparsers(dest="what", metavar="show | merge", required=True)
    show = verbs.add_parser(
        "show", help="a table of results: how much faster than the heuristic, how long, how many were tried"
    )
    show.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="default: what HCQ_SEARCH_RESULTS names, or the cache's",
    )
    show.add_argument("--kernel", default="", metavar="TEXT", help="only kernels whose name contains it")
    show.add_argument("--schedules", action="store_true", help="the schedules, too")
    show.add_argument("--json", action="store_true", help="for another program")
    merged = verbs.add_parser(
        "merge", help="the union of files: of two results for one kernel the better one stays"
    )
    merged.add_argument("files", nargs="+", type=Path, metavar="FILE")
    merged.add_argument("--output", type=Path, metavar="FILE", help="default: write to stdout")


def run(options: argparse.Namespace) -> int:
    """Do what the words say. Raises UsageError for a file that is damaged, or cannot be read or written."""
    found = _all(options.files)
    if options.what == "merge":
        if options.output is None:
            sys.stdout.write(text_of(found))
            return 0
        try:
            store.write_file(options.output, found)
        except OSError as problem:
            raise UsageError(f"{options.output}: cannot be written: {problem}.") from problem
        print(f"{options.output}: {len(found)} results")
        return 0
    rows = sorted(
        (one for one in found.values() if options.kernel in one.kernel), key=lambda one: (-one.gain, one)
    )
    if options.json:
        print(json.dumps([asdict(one) for one in rows], indent=2))
    else:
        print(table(rows, options.schedules))
    return 0


def table(rows: list[Result], with_schedules: bool = False) -> str:
    """Results for people."""
    if not rows:
        return "no results. HCQ_SEARCH=4 python PROGRAM searches for some."
    lines = [f"{'gain':>6} {'time':>9} {'heuristic':>9} {'width':>5} {'tried':>6}  kernel, target"]
    for one in rows:
        times = f"{shown_ns(one.ns):>9} {shown_ns(one.heuristic_ns):>9}"
        lines.append(
            f"{one.gain:5.2f}x {times} {one.width:5} {one.tried:6}  {one.kernel}, {one.target} ({one.by})"
        )
        if with_schedules:
            lines.append(f"        {'the heuristic chooses' if one.schedule == '-' else one.schedule}")
    return "\n".join(lines)


def _all(files: list[Path]) -> dict[Place, Result]:
    return merge(*[store.read_file(file) for file in files]) if files else store.known()
