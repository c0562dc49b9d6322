"""One library, one case, one process: check the result, then time blocks of runs when asked to.

In       argv: a library and a case; stdin: one line "block SECONDS wall" or "block SECONDS processor" per block
Out      stdout: one JSON line per answer: {"ready": true}, {"times": [...]} or {"error": "..."}
Next     compare.py (which starts these and lets them take turns), cases/case.py (the work)
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from hcq.tools.bench.cases.case import Arrays, Case, Run
from hcq.tools.bench.cases.training import ALL_CASES

WARM_UP = 3  # runs before the first timed one: a jit records, replays, and settles
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
WARM_SECONDS = 2  # no more of them once they took so long


def main(argv: list[str]) -> int:
    """The program: library and case as arguments. Returns its exit status."""
    library, name = argv
    # what libraries print belongs to stderr: stdout carries answers only
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        run = prepare(ALL_CASES[name](), library)
    except Exception as error:
        reason = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
        if os.environ.get("BENCH_TRACEBACK"):
            traceback.print_exc()
        return _answer(answers, {"error": reason})
    _answer(answers, {"ready": True})
    for line in sys.stdin:
        _, seconds, clock = line.split()
        _answer(answers, {"times": block(run, float(seconds), CLOCKS[clock])})
    return 0


def prepare(case: Case, library: str) -> Run:
    """The case made ready for a library, its first result checked against float64."""
    make = case.maker(library)
    if make is None:
        raise LookupError(f"{case.name} has nothing to compare with in {library}")
    inputs = case.inputs()
    expected = case.expected(inputs)
    run = make(inputs)
    for _ in range(WARM_UP):  # a recorded function is checked as recorded and as replayed
        check(case, fetch(run()), expected)
        if case.changes_state:
            break
    end = time.perf_counter() + WARM_SECONDS
    for _ in range(WARM_UP):
        if time.perf_counter() < end:
            run()
    return run


def check(case: Case, result: Any, expected: Any) -> None:
    """Raises ArithmeticError unless the result is as near to the expected one as the case asks for."""
    import numpy

    result = numpy.asarray(result, "float64")
    if result.shape != numpy.shape(expected):
        raise ArithmeticError(f"shape {result.shape}, expected {numpy.shape(expected)}")
    error = float(numpy.max(numpy.abs(result - expected)) / max(1e-30, float(numpy.max(numpy.abs(expected)))))
    if not error <= case.tolerance:
        raise ArithmeticError(f"relative error {error:.2g}, allowed {case.tolerance:.2g}")


def fetch(result: Any) -> Any:
    """A library's result as a NumPy array."""
    if "bfloat16" in str(getattr(result, "dtype", "")):  # NumPy has none
        # JAX has no float()
        result = result.float() if hasattr(result, "float") else result.astype("float32")
    return result.numpy() if hasattr(result, "numpy") else result


def block(run: Run, seconds: float, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Times of single runs, at least three, for about that long.

    A run before them wakes the threads up and is not counted, unless it alone took longer than the block may.
    """
    before = clock()
    run()
    first = clock() - before
    if first > seconds:
        return [first]
    times: list[float] = []
    end = clock() + seconds
    while len(times) < 3 or clock() < end:
        before = clock()
        run()
        times.append(clock() - before)
    return times


def _answer(answers: TextIO, answer: Arrays) -> int:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
