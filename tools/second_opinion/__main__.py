"""Runs one HIP program on two machines and compares its memory after each kernel.

In       the command line of the program, two machines
Out      what `hcq-trace diff` says of the two records; exit status 0: the same memory, 1: not, 2: it could not be done
Changes  writes watch_hip.so and the records into the folder of -o
Next     machines.py (the machines), ../trace/kernel_memory.py (the comparison), ../../docs/second-opinion.md
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a folder of a checkout
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from hcq.errors import HcqError, UsageError
from hcq.tools.second_opinion import machines
from hcq.tools.trace import kernel_memory
from hcq.tools.trace.color import Color

EXAMPLES = """examples:
  python tools/second_opinion --build-rocjitsu ~/rocjitsu
  python tools/second_opinion --rocjitsu ~/rocjitsu --on amd:gfx942 --on rocjitsu:gfx942_cdna3_kmd -- ./program
  python tools/second_opinion --on amd:gfx1100 --on hardware -- ./program          the GPU of this computer
  HCQ_EMU_COMPILED=0 python tools/second_opinion --on amd:gfx90a -o before -- ./program
  hcq-trace diff before/0.hcqmem after/0.hcqmem                                    two records made one by one

The program is compiled by hipcc for the architecture that both machines have. Exit status: 0 for the same memory after
each kernel, 1 for other memory, 2 when it could not be done.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status."""
    options = parser().parse_args(argv)
    try:
        if options.build_rocjitsu:
            machines.build_rocjitsu(options.build_rocjitsu)
            return 0
        return run(options)
    except HcqError as error:
        print(f"second_opinion: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="second_opinion",
        description="Run a HIP program on two machines and compare its memory after each kernel.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--on", metavar="MACHINE", action="append", default=[], help="twice; or once, to record only"
    )
    made.add_argument("--rocjitsu", metavar="FOLDER", type=Path, help="where rocjitsu was built")
    made.add_argument(
        "--build-rocjitsu", metavar="FOLDER", type=Path, help="fetch and build rocjitsu there, and end"
    )
    made.add_argument(
        "-o", "--output", metavar="FOLDER", type=Path, help="keep the records; default: they are not kept"
    )
    made.add_argument(
        "--ulps", metavar="N", type=int, default=0, help="float32 that are so near are the same"
    )
    made.add_argument(
        "--limit", metavar="N", type=int, default=20, help="print at most N differences; default 20"
    )
    made.add_argument("program", metavar="PROGRAM", nargs="*", help="the program and its arguments, after --")
    return made


def run(options: argparse.Namespace) -> int:
    """Run the program on each machine, then compare."""
    if not options.program or len(options.on) not in (1, 2):
        raise UsageError(
            "it takes --on MACHINE twice (once to record only) and, after --, a program; see --help"
        )
    with tempfile.TemporaryDirectory() as kept:
        folder = options.output or Path(kept)
        folder.mkdir(parents=True, exist_ok=True)
        watcher = build_watcher(folder)
        commands = [machines.command(one, options.rocjitsu, watcher, options.program) for one in options.on]
        read = []
        for index, (machine, command) in enumerate(zip(options.on, commands)):
            path = folder / f"{index}.hcqmem"
            print(f"second_opinion: {' '.join(options.program)} on {machine}", file=sys.stderr, flush=True)
            record(command, path)
            read.append(kernel_memory.read(path))
            if not read[-1].launches:
                raise UsageError(
                    "the program launched no kernel by a call of HIP that is watched (watch_hip.c has them)"
                )
        if len(read) == 1:
            return 0
        result = kernel_memory.compare(read[0], read[1], options.ulps)
    for line in kernel_memory.lines(result, Color.for_stdout(), options.limit):
        print(line)
    return 0 if result.is_same else 1


def build_watcher(folder: Path) -> Path:
    """watch_hip.so, compiled by the C compiler that CC names."""
    made = folder.resolve() / "watch_hip.so"
    source = Path(__file__).with_name("watch_hip.c")
    words = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError:
        raise UsageError(
            f"there is no C compiler {words[0]}, which compiles watch_hip.c; CC names another"
        ) from None
    if done.returncode:
        raise UsageError(f"{' '.join(words)} failed:\n{done.stderr}")
    return made


def record(command: Sequence[str], path: Path) -> None:
    """Run the program, whose memory is recorded in a file."""
    path.unlink(missing_ok=True)
    try:
        status = subprocess.run(
            command, env={**os.environ, "HCQ_KERNEL_MEMORY": str(path.resolve())}
        ).returncode
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}") from None
    if not path.exists():
        raise UsageError(f"`{' '.join(command)}` ended with {status} and left no record")
    if status:
        print(f"second_opinion: it ended with {status} there", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
