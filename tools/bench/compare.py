"""Our times beside NumPy's, PyTorch's, JAX's, tinygrad's and llama.cpp's, in one run, as ratios.

In       case names, or none for all of them
Out      a table: per case our figure, each peer's, how many times faster we are, our share of the machine's ceiling
Changes  nothing; caches used here are temporary
Next     cases/case.py (what a case is), cases/training.py (the list of all), docs/performance.md

How it measures: each library runs in a process of its own, so that thread pools do not meet; a result that differs from
NumPy's in float64 is an error, not a time; libraries take turns in short blocks, so that a slow minute of the machine
falls on all of them; the figure is the median of all runs. Every peer is measured at its best: NumPy's OpenBLAS is
told the kind of CPU, which it mistakes for an older one; `torch-kept` is PyTorch where the heap keeps what it has, for
each large result is otherwise mapped and faulted in anew.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import importlib.util
import json
import os
import platform
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

if __package__ in (None, ""):  # run as a file from a checkout: the package is beside this folder
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import hcq
from hcq.config import cores, current
from hcq.tools.bench.cases.case import DISTRIBUTIONS, LIBRARIES, Case
from hcq.tools.bench.cases.training import ALL_CASES
from hcq.tools.bench.startup import STARTUP_CASES, Startup

ANSWER_SECONDS = 300  # tinygrad compiles for long
LESS_IS_BETTER = ("us", "s")
# a library that had both has its figure: the others need not wait for it
ENOUGH_BLOCKS, ENOUGH_SECONDS = (3, 6)
SCALE = {"us": 1e6, "s": 1.0}
# how NumPy, its OpenBLAS, PyTorch and what that calls are kept from AVX-512, where HCQ_CPU_LEVEL keeps us from it
WITHIN_V3 = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(64 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    blocks: int
    block_seconds: float
    processes: int
    clock: str = (
        "wall"  # or "processor": time of the process's threads, which says something on a busy machine, too
    )


FULL = Effort(blocks=9, block_seconds=0.4, processes=5)
QUICK = Effort(blocks=3, block_seconds=0.1, processes=3)


@dataclass
class Figure:
    """What one library reached in one case: a median in the case's unit, or the reason why there is none."""

    value: float | None = None
    low: float = 0.0  # the quartiles of the runs
    high: float = 0.0
    runs: int = 0
    reason: str = ""


@dataclass
class Row:
    """One line of the table."""

    name: str
    about: str
    unit: str
    ceiling: float | None = None
    figures: dict[str, Figure] = field(default_factory=dict)

    def ratio(self, peer: str) -> float | None:
        """How many times faster than the peer we are; None where either has no figure."""
        ours, theirs = self.figures.get("hcq", Figure()).value, self.figures.get(peer, Figure()).value
        if not ours or not theirs:
            return None
        return theirs / ours if self.unit in LESS_IS_BETTER else ours / theirs


class Worker:
    """A process of worker.py of one library and one case."""

    def __init__(self, library: str, case: str, environment: dict[str, str]) -> None:
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hcq.tools.bench.worker", library, case],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        answer = self._answer()
        if "error" in answer:
            self.close()
            raise RuntimeError(str(answer["error"]))

    def block(self, seconds: float, clock: str = "wall") -> list[float]:
        """Time runs for so many seconds; seconds of each."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"block {seconds} {clock}\n")
        self.process.stdin.flush()
        times: list[float] = self._answer()["times"]
        return times

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _answer(self) -> dict[str, list[float]]:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as waiting:  # unlike select(), it takes any number of open files
            waiting.register(self.process.stdout, selectors.EVENT_READ)
            ready = waiting.select(ANSWER_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            self.process.wait()
            self.errors.seek(0)
            said = self.errors.read().strip().splitlines() or [f"no answer within {ANSWER_SECONDS} s"]
            raise RuntimeError(said[-1])
        answer: dict[str, list[float]] = json.loads(line)
        return answer


def environment_for(library: str) -> dict[str, str]:
    """The environment of a library's processes: ours, the checkout, and what makes each use the CPU at its best."""
    root = Path(__file__).resolve().parents[2]
    environment = dict(os.environ)
    if (root / "setup.py").is_file():
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(root), environment.get("PYTHONPATH", "")])
        )
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # starting again is meant to find compiled modules
    if current().cpu_level:
        environment |= WITHIN_V3
    # OpenBLAS takes kernels of AVX2 for a CPU newer than itself
    if library == "numpy" and "avx512bw" in cpu_flags():
        environment.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
    if library == "torch-kept":
        environment |= KEEP_MEMORY
    if library == "jax":
        environment.setdefault("JAX_PLATFORMS", "cpu")
    if library == "tinygrad":
        environment.setdefault("DEV", "CPU")
        if shutil.which("clang") is None and zig() is not None:
            environment["PATH"] = os.pathsep.join([clang_of_zig(), environment.get("PATH", "")])
    return environment


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Words of /proc/cpuinfo for what this machine's CPU has; none where there is no such file."""
    return frozenset(_cpu_line("flags").split())


def _cpu_line(field: str) -> str:
    """What /proc/cpuinfo first says of a field; "" where it says nothing."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith(field)), "")
    except OSError:
        return ""


def zig() -> Path | None:
    """The zig program of the wheel `ziglang`, which carries a whole clang; None where that wheel is not installed."""
    found = importlib.util.find_spec("ziglang")
    return Path(found.origin).parent / "zig" if found is not None and found.origin else None


@functools.cache
def clang_of_zig() -> str:
    """A folder whose program `clang` is zig's; removed when we end."""
    folder = tempfile.mkdtemp(prefix="hcq-bench-clang-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = Path(folder) / "clang"
    program.write_text(f'#!/bin/sh\nexec "{zig()}" clang "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return folder


def why_absent(library: str) -> str:
    """Why a library cannot run here; empty when it can."""
    if library == "hcq":
        return ""
    package = library.partition("-")[0]
    if importlib.util.find_spec(package) is None:
        return f"not installed (pip install {DISTRIBUTIONS.get(package, package)})"
    if library == "tinygrad" and "DEV" not in os.environ and shutil.which("clang") is None and zig() is None:
        return "needs clang (apt install clang, or pip install ziglang, which carries one)"
    return ""


def measure_case(
    case: type[Case], libraries: Sequence[str], effort: Effort, ceilings: dict[str, float]
) -> Row:
    """Every library's figure for a case; the libraries take turns block by block."""
    row = Row(case.name, case.about, case.unit, ceilings.get(case.ceiling or ""))
    workers: dict[str, Worker] = {}
    times: dict[str, list[float]] = {}
    for library in libraries:
        if case.method(library) is None:
            row.figures[library] = Figure(reason="n/a")
            continue
        try:
            workers[library] = Worker(library, case.name, environment_for(library))
        except RuntimeError as error:
            row.figures[library] = Figure(reason=str(error))
    try:
        for _ in range(effort.blocks):
            for library, worker in list(workers.items()):
                seen = times.setdefault(library, [])
                if len(seen) >= ENOUGH_BLOCKS and sum(seen) >= ENOUGH_SECONDS:
                    continue
                try:
                    seen.extend(worker.block(effort.block_seconds, effort.clock))
                except RuntimeError as error:
                    row.figures[library] = Figure(reason=str(error))
                    del workers[library]
    finally:
        for worker in workers.values():
            worker.close()
    amount = case().amount
    for library in workers:
        row.figures[library] = figure(times[library], amount, case.unit)
    return row


def measure_startup(case: Startup, libraries: Sequence[str], effort: Effort) -> Row:
    """Every library's figure for a case of fresh processes."""
    row = Row(case.name, case.about, case.unit)
    times: dict[str, list[float]] = {}
    for library in libraries:
        if library not in case.libraries():
            row.figures[library] = Figure(reason="n/a")
            continue
        try:
            case.prepare(library, environment_for(library))
            times[library] = []
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            row.figures[library] = Figure(reason=str(error))
    for _ in range(effort.processes):
        for library in list(times):
            try:
                times[library].append(case.once(library, environment_for(library)))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                row.figures[library] = Figure(reason=str(error))
                del times[library]
    for library, seconds in times.items():
        row.figures[library] = figure(seconds, 1, case.unit)
    return row


def figure(times: Sequence[float], amount: float, unit: str) -> Figure:
    """Times of runs as a median and quartiles in the case's unit."""
    values = sorted(
        seconds * SCALE[unit] / amount if unit in LESS_IS_BETTER else amount / seconds for seconds in times
    )
    return Figure(median(values), values[len(values) // 4], values[len(values) * 3 // 4], len(values))


# -- printing ----------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A figure with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def line(row: Row, libraries: Sequence[str]) -> list[str]:
    """The cells of a row. A peer's cell ends in how many times faster than it we are: above 1.00x we are ahead."""
    cells = [row.name, row.unit]
    for library in libraries:
        found = row.figures[library]
        if found.value is None:
            cells.append("n/a" if found.reason == "n/a" else "failed")
            continue
        ratio = row.ratio(library) if library != "hcq" else None
        cells.append(number(found.value) + (f" ({ratio:.2f}x)" if ratio is not None else ""))
    ours = row.figures["hcq"].value if "hcq" in row.figures else None
    share = f" ({100 * ours / row.ceiling:.0f}%)" if ours and row.ceiling else ""
    cells.append(number(row.ceiling) + share if row.ceiling else "")
    return cells


class Table:
    """Prints rows as they come, in columns as wide as the longest cell expected."""

    WIDTHS = (22, 10)

    def __init__(self, libraries: Sequence[str]) -> None:
        self.libraries = libraries
        self.widths = [*self.WIDTHS, *(18 for _ in libraries), 14]
        self._print(["case", "unit", *libraries, "ceiling"])
        self._print(["-" * (width - 2) for width in self.widths])

    def add(self, row: Row) -> None:
        """Print a case's line, and why a library has no figure in it."""
        self._print(line(row, self.libraries))
        for library in self.libraries:
            reason = row.figures[library].reason
            if reason and reason != "n/a":
                print(f"    {library}: {reason}", flush=True)

    def _print(self, cells: Sequence[str]) -> None:
        print("".join(cell.ljust(width) for cell, width in zip(cells, self.widths)).rstrip(), flush=True)


def machine() -> str:
    """The processor's name and how many cores we may use."""
    model = _cpu_line("model name") or platform.machine()
    return f"{model}, {cores()} cores"


def versions(libraries: Sequence[str]) -> dict[str, str]:
    """What was compared: Python and the libraries, with their versions."""
    from importlib.metadata import PackageNotFoundError, version

    import hcq

    found = {"python": platform.python_version(), "hcq": hcq.__version__}
    for library in libraries:
        if library not in ("hcq", "torch-kept"):
            try:
                found[library] = version(DISTRIBUTIONS.get(library, library))
            except PackageNotFoundError:
                found[library] = "?"
    return found


# -- the program -------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    about = {name: case.about for name, case in ALL_CASES.items()}
    about |= {name: case.about for name, case in STARTUP_CASES.items()}
    listing = "\n".join(f"  {name:20}{text}" for name, text in about.items())
    made = argparse.ArgumentParser(
        prog="bench",
        description=(__doc__ or "").split("\n\n")[0]
        + " A peer's cell ends in (how many times faster we are).",
        epilog=f"cases:\n{listing}\n\nexamples:\n"
        "  python tools/bench/compare.py                            everything, an hour\n"
        "  python tools/bench/compare.py sgemm --quick              the three matrix products, roughly\n"
        "  python tools/bench/compare.py conv3x3 --only numpy       hcq and NumPy alone\n"
        "  python tools/bench/compare.py --json before.json         keep every figure with its quartiles\n"
        "  BENCH_TRACEBACK=1 python tools/bench/compare.py chain    where a failing case fails",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"bench of hcq {hcq.__version__}")
    made.add_argument("case", nargs="*", help="names of cases, or how they begin; none means all")
    made.add_argument("--quick", action="store_true", help="shorter blocks and fewer of them: rough figures")
    made.add_argument(
        "--processor-time",
        action="store_true",
        help="count the time of all threads of a process instead of wall time; with taskset -c 0, for a busy machine",
    )
    made.add_argument("--only", metavar="PEER,...", help="compare with these only; '' measures hcq alone")
    made.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    made.add_argument("--no-ceilings", action="store_true", help="do not measure the machine itself")
    return made


def chosen(names: Sequence[str], made: argparse.ArgumentParser) -> list[str]:
    """The cases that begin with one of the names, in the table's order."""
    every = [*ALL_CASES, *STARTUP_CASES]
    for name in names:
        if not any(case.startswith(name) for case in every):
            made.error(f"no case begins with {name!r}; cases: {', '.join(every)}")
    return [case for case in every if not names or any(case.startswith(name) for name in names)]


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status."""
    made = parser()
    args = made.parse_args(argv)
    names = chosen(args.case, made)
    effort = replace(QUICK if args.quick else FULL, clock="processor" if args.processor_time else "wall")
    peers = [*LIBRARIES[1:]] if args.only is None else [name for name in args.only.split(",") if name]
    for peer in peers:
        if peer not in LIBRARIES[1:]:
            made.error(f"no peer {peer!r}; peers: {', '.join(LIBRARIES[1:])}")
    absent = {peer: why_absent(peer) for peer in peers}
    libraries = ["hcq", *(peer for peer in peers if not absent[peer])]

    print(machine())
    print(", ".join(f"{name} {version}" for name, version in versions(libraries).items()))
    for peer, reason in absent.items():
        if reason:
            print(f"{peer}: {reason}")
    ceilings: dict[str, float] = {}
    if not args.no_ceilings and any(name in ALL_CASES and ALL_CASES[name].ceiling for name in names):
        command = [sys.executable, "-m", "hcq.tools.bench.ceilings", str(cores())]
        done = subprocess.run(command, env=environment_for("hcq"), capture_output=True, text=True, check=True)
        ceilings = json.loads(done.stdout)
        print("ceilings: " + ", ".join(f"{name} {number(value)}" for name, value in ceilings.items()))
    print()

    table, rows = Table(libraries), []
    for name in names:
        if name in ALL_CASES:
            row = measure_case(ALL_CASES[name], libraries, effort, ceilings)
        else:
            row = measure_startup(STARTUP_CASES[name](), libraries, effort)
        rows.append(row)
        table.add(row)

    if args.json:
        record = {
            "machine": machine(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": versions(libraries),
            "absent": {peer: reason for peer, reason in absent.items() if reason},
            "ceilings": ceilings,
            "rows": [asdict(row) for row in rows],
        }
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    failed = [
        row.name for row in rows if row.figures["hcq"].value is None and row.figures["hcq"].reason != "n/a"
    ]
    if failed:
        print(f"\nhcq failed in: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
