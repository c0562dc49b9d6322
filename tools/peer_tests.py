"""A peer's own tests of its drivers, tinygrad's, on emulated hardware: a table of what passes, what fails, and why.

In       a checkout of tinygrad, whose drivers and whose tests are run; words of HCQ_EMULATE
Out      a table in Markdown; exit status 1 when something failed that is not known to
Next     peer/__init__.py (how its drivers get there), docs/emulated-kernel.md (where the table stands)

    git clone https://github.com/tinygrad/tinygrad ../tinygrad
    python -m hcq.tools.peer_tests ../tinygrad amd:gfx1100 amd:gfx942 nv:sm_89

Words that are joined by commas are GPUs of one run. Every test has a process of its own, for one that hangs leaves its
device unusable. A kernel's log that is not empty fails a test that its own checks let pass.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hcq.emu.port import EmulatedPort

MODULES = (
    "test.device.test_hcq",
    "test.unit.test_hcq_graph",
    "test.backend.test_graph",
    "test.backend.test_profiler",
    "test.test_tiny",
)
LIMIT_SECONDS = 240
PASSED, SKIPPED = "passes", "skipped"
# what cannot hold on emulated hardware, and why
EXPECTED = {
    "test_exec_2_kernels_100_times": "fails where the host is faster: it rewrites a launch that has not run",
    "test_speed_exec_time": "fails: asks for a GPU's speed",
    "test_speed_copy_bandwidth": "fails: asks for a GPU's speed",
    "test_speed_cross_device_copy_bandwidth": "fails: asks for a GPU's speed",
}


def list_tests(words: Sequence[str], checkout: Path) -> None:
    """Inside: print the names of all tests, a line of JSON."""
    import unittest

    _enter(words, checkout)
    names: list[str] = []

    def walk(suite: unittest.TestSuite) -> None:
        for one in suite:
            walk(one) if isinstance(one, unittest.TestSuite) else names.append(one.id())

    for module in MODULES:
        if (checkout / (module.replace(".", "/") + ".py")).exists():
            walk(unittest.defaultTestLoader.loadTestsFromName(module))
    print(json.dumps(names))


def run_test(words: Sequence[str], checkout: Path, name: str) -> None:
    """Inside: run one test, and print its result as a line of JSON."""
    import unittest

    port = _enter(words, checkout)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromName(name).run(result)
    log = port.kernel_log()
    if result.errors or result.failures:
        said = [text.strip().splitlines()[-1] for _, text in result.errors + result.failures]
        found = " / ".join(dict.fromkeys(log[:2] + said))
    elif result.skipped:
        found = f"{SKIPPED}: {result.skipped[0][1]}"
    else:
        found = " / ".join(log[:2]) or PASSED
    print("\n" + json.dumps(found), flush=True)
    os._exit(0)  # whatever its finalizers would still wait for


def _enter(words: Sequence[str], checkout: Path) -> EmulatedPort:
    sys.path.insert(0, str(checkout))
    os.chdir(checkout)
    from hcq.tools import peer

    return peer.install(list(words))


def inside(words: Sequence[str], checkout: Path, *more: str) -> str:
    """The last line of a process of this program's, or what became of it."""
    command = [sys.executable, "-m", "hcq.tools.peer_tests", str(checkout), ",".join(words), *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return json.dumps(f"not done after {LIMIT_SECONDS} s")
    if done.returncode or not done.stdout.strip():
        said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return json.dumps(said[0])
    return done.stdout.strip().splitlines()[-1]


def table(results: dict[str, dict[str, str]], columns: Sequence[str]) -> str:
    """How many tests of each file pass, and which do not, and why."""
    counts: dict[str, dict[str, list[str]]] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, row in results.items():
        module, test = name.split(".Test")[0], name.rpartition(".")[2]
        for column, found in row.items():
            counts.setdefault(module, {}).setdefault(column, []).append(found)
            if found != PASSED:
                reasons.setdefault((test, re.sub(r"0x[0-9a-f]+|\d{5,}", "N", found)), []).append(column)
    lines = [f"| tests | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for module, of_module in counts.items():
        cells = [_count(of_module.get(column, [])) for column in columns]
        lines.append(f"| `{module}` | {' | '.join(cells)} |")
    lines += ["", "| test | on | result |", "|---|---|---|"]
    for (test, found), on in reasons.items():
        lines.append(f"| `{test}` | {'all' if len(on) == len(columns) else ', '.join(on)} | {found} |")
    return "\n".join(lines)


def _count(found: Sequence[str]) -> str:
    skipped = sum(text.startswith(SKIPPED) for text in found)
    return f"{found.count(PASSED)} of {len(found) - skipped}, {skipped} skipped"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests and print the table."""
    parser = argparse.ArgumentParser("peer_tests", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("words", nargs="+", help="words of HCQ_EMULATE, GPUs of one run joined by commas")
    parser.add_argument("-k", default="", help="only tests whose name has this")
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--test", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    checkout = options.checkout.resolve()
    if options.list:
        list_tests(options.words[0].split(","), checkout)
        return 0
    if options.test:
        run_test(options.words[0].split(","), checkout, options.test)
        return 0
    results: dict[str, dict[str, str]] = {}
    surprises = 0
    for column in options.words:
        names = json.loads(inside(column.split(","), checkout, "--list"))
        if isinstance(names, str):
            sys.exit(f"peer_tests: the peer lists no tests on {column}: {names}")
        for name in names:
            if options.k not in name:
                continue
            start = time.monotonic()
            found = json.loads(inside(column.split(","), checkout, "--test", name))
            short = name.removeprefix("test.")
            if found != PASSED and not found.startswith(SKIPPED):
                reason = EXPECTED.get(name.split(".")[-1])
                surprises += reason is None
                found = reason or found
            print(
                f"{column} {short}: {found} ({time.monotonic() - start:.1f} s)", file=sys.stderr, flush=True
            )
            results.setdefault(short, {})[column] = found
    print(table(results, options.words))
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
