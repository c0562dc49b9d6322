"""What a trace costs: submissions with HCQ_TRACE beside the same without, and the flight recorder's share of a launch.

In       nothing, or how many rounds (--rounds)
Out      a table: the median time of each piece of work, off, on, and their ratio
Changes  a trace in a temporary folder, which goes at the end
Next     hcq/observe/trace.py and hcq/system/call_site.py (what is measured), docs/performance.md (figures of a run)

Two devices of one process, one of them traced, take turns in short rounds: a slow moment of the machine falls on both.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hcq import config
from hcq.cpu.device import CpuDevice
from hcq.cpu.doctor import cpu_object
from hcq.doctor.kernels import ENTRY
from hcq.system import call_site

Work = Callable[[], object]
PER_ROUND = 300
REPLAYS = 20  # kernels in the recorded graph


@dataclasses.dataclass(frozen=True)
class Row:
    """Microseconds of one piece of work without and with a trace, and the quartiles of the ratio round by round."""

    name: str
    off_us: float
    on_us: float
    low: float
    ratio: float
    high: float

    def __str__(self) -> str:
        spread = f"{self.ratio:.2f}x  ({self.low:.2f} to {self.high:.2f})"
        return f"{self.name:44} {self.off_us:8.2f} {self.on_us:8.2f}   {spread}"


def pieces(device: Any) -> dict[str, Work]:
    """Pieces of work by name, ready to be run again and again."""
    program = device.load(cpu_object(device.arch), ENTRY, args=("buffer", "buffer", "int"))
    out, a = device.alloc(64, "out"), device.alloc(64, "a")
    a.write(bytes(64))
    graph = device.graph("chain")
    for _ in range(REPLAYS):
        graph.dispatch(program, [out, a, 16])
    graph.replay()

    def launch() -> None:
        device.queue().dispatch(program, [out, a, 16]).submit()

    def launch_and_wait() -> None:
        device.queue().dispatch(program, [out, a, 16]).submit().wait()

    def five() -> None:
        queue = device.queue()
        for _ in range(5):
            queue.dispatch(program, [out, a, 16])
        queue.submit()

    def copy() -> None:
        device.queue().copy(out, a, 8).submit()

    def allocate() -> None:
        device.alloc(256, "short-lived")

    return {
        "dispatch, submit": launch,
        "dispatch, submit, wait": launch_and_wait,
        "five dispatches, submit": five,
        "copy of 8 bytes, submit": copy,
        f"replay of a graph of {REPLAYS}": graph.replay,
        "allocate and free": allocate,
    }


def measure(off: Any, on: Any, rounds: int) -> list[Row]:
    """The pieces on both devices in turns."""
    plain, traced = pieces(off), pieces(on)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in plain}
    for number in range(rounds + 1):
        for name in plain:
            first, second = (off, plain[name]), (on, traced[name])
            turns = (first, second) if number % 2 else (second, first)
            times = {id(device): _time(device, work) for device, work in turns}
            if number:  # the first round warms up
                found[name].append((times[id(off)], times[id(on)]))
    rows = []
    for name, pairs in found.items():
        low, ratio, high = statistics.quantiles([b / a for a, b in pairs], n=4)
        off_us, on_us = statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
        rows.append(Row(name, off_us, on_us, low, ratio, high))
    return rows


def _time(device: Any, work: Work) -> float:
    """Microseconds of one piece of work, of PER_ROUND in a row. The device has caught up before and after."""
    device.synchronize()
    start = time.perf_counter_ns()
    for _ in range(PER_ROUND):
        work()
    spent = time.perf_counter_ns() - start
    device.synchronize()
    return spent / PER_ROUND / 1000


def recorder_share(device: Any, launch_us: float, rounds: int) -> float:
    """Which part of a launch the line of the user's program takes, on average over many launches."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(PER_ROUND):
            call_site.site()
        times.append((time.perf_counter_ns() - start) / PER_ROUND / 1000)
    return statistics.median(times) / call_site.EVERY / launch_us


def main(argv: list[str] | None = None) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(
        description="What HCQ_TRACE costs a submission, and the flight recorder a launch."
    )
    parser.add_argument("--rounds", type=int, default=41, help="how often each is measured (default 41)")
    options = parser.parse_args(argv)
    if options.rounds < 2:
        parser.error("--rounds is 2 or more")
    with tempfile.TemporaryDirectory(prefix="hcq-bench-trace-") as folder:
        settings = dataclasses.replace(config.current(), trace=None, validate=False)
        off = CpuDevice("CPU", config=settings)
        on = CpuDevice("CPU:1", config=dataclasses.replace(settings, trace=str(Path(folder) / "t.hcqtrace")))
        title = f"us each, the median of {options.rounds} rounds"
        print(f"{title:44} {'off':>8} {'on':>8}   on / off (quartiles)")
        rows = measure(off, on, options.rounds)
        for row in rows:
            print(row)
        share = recorder_share(off, rows[0].off_us, options.rounds)
        print(f"flight recorder: {100 * share:.2f} % of a launch")
        for device in (off, on):
            device.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
