"""Serve a program: what `hcq-trace serve` takes on the command line, and a program recorded to be served.

In       `--compile` and a program with its arguments instead of a trace
Out      the path of a trace that is there while the page is
Changes  runs the program; a folder of its own, removed afterwards
Next     serve.py (the page), record.py (how a program is recorded), compile_view.py (how its kernels are compiled)
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hcq.errors import UsageError


def options(verb: argparse.ArgumentParser) -> None:
    """What the verb takes besides files."""
    verb.add_argument("--port", metavar="N", type=int, default=0, help="default 0: any free one")
    verb.add_argument("--open", action="store_true", help="open the page in your browser")
    verb.add_argument(
        "--compile",
        action="store_true",
        help="compile kernels again and show every pass and rewrite; FILE may be a program.py and its arguments",
    )
    verb.add_argument(
        "--debug",
        action="store_true",
        help="debug its kernels in the page, on emulated GPUs; FILE is a trace recorded with --data, or a program.py",
    )


@contextmanager
def recorded(command: Sequence[str], with_data: bool = False) -> Iterator[str]:
    """Run a Python program and record it. On an emulated GPU what its kernels do is counted, too.

    with_data   contents of memory, too, to run the kernels again

    Raises  UsageError where the program opened no device
    """
    from hcq.tools.trace import record

    with tempfile.TemporaryDirectory(prefix="hcq-trace-") as folder:
        path = Path(folder) / f"{Path(command[0]).stem}.hcqtrace"
        counts = bool(os.environ.get("HCQ_EMULATE")) and not os.environ.get("HCQ_PROFILE")
        words = ["env", "HCQ_PROFILE=counters"] if counts else []
        status = record.record([*words, sys.executable, *command], str(path), with_data)
        if not path.exists():
            raise UsageError(
                f"serve {command[0]}: it left no trace (exit status {status}). A program of the tensor layer "
                "opens a device and leaves one."
            )
        yield str(path)
