"""kfdtest, AMD's tests of its kernel driver, on emulated GPUs: built, run, and told as a table.

In       build: the sources of ROCR-Runtime. run: what was built, words of HCQ_EMULATE. table: what runs have found
Out      build: an executable. run: a line for each test, and its result in a file. table: Markdown
Changes  the folder that it builds in
Next     hcq/emu/amd/kfd.py (what is tested), docs/emulated-kernel.md (where the table stands), peer_tests.py (a peer's)

    sudo apt install cmake g++ pkg-config libdrm-dev libnuma-dev llvm-19-dev
    git clone --depth 1 https://github.com/ROCm/ROCR-Runtime ../ROCR-Runtime
    python -m hcq.tools.kfdtest build ../ROCR-Runtime ../kfdtest
    python -m hcq.tools.kfdtest run ../kfdtest amd:gfx1100
    python -m hcq.tools.kfdtest table ../kfdtest

Every test has a process of its own, and so an emulated machine of its own. Sources and what is made of them stay
outside this repository. LLVM decides which GPUs the tests can assemble for: gfx942 takes 17 or later.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

LIMIT_SECONDS = 300
# what tests sleep by themselves: 1.1 s, 20 times as long as on a GPU, after each time that they suspend a queue
SLEEPS = {"KFDCWSRTest.BasicTest/1": 55, "KFDCWSRTest.BasicTest/2": 110, "KFDCWSRTest.BasicTest/3": 1100}
PASSED, SKIPPED, FAILED = "passes", "skips", "fails"
GROUPS = {  # of the tests' classes
    "topology": ("KFDTopologyTest", "KFDOpenCloseKFDTest", "KFDCloseKFDTest", "KFDPerfCountersTest.Clock"),
    "memory": ("KFDMemoryTest", "KFDLocalMemoryTest", "KFDExceptionTest"),
    "events": ("KFDEventTest",),
    "queues and dispatch": ("KFDQMTest", "KFDCWSRTest", "KFDASMTest", "KFDHWSTest", "KFDGWSTest"),
}
KNOWN = {  # tests that fail, and why they do
    "KFDMemoryTest.FlatScratchAccess": "reads what another dispatch left in scratch memory: here each has its own"
}
AMDS_NAMES = {"gfx90a": "aldebaran"}
WITH_TWO_GPUS = ("KFDQMTest.mGPUShareBO",)  # and it does not look whether there are two
LEFT_OUT = {  # beginnings of names, and why they do not apply
    "KFDDBGTest": "the debugger's interface (DBG_TRAP) is not emulated",
    "KFDPerfCountersTest.GetCounterProperties": "performance counters are not emulated",
    "KFDPerfCountersTest.RegisterTrace": "performance counters are not emulated",
    "KFDPerfCountersTest.StartStopQueryTrace": "performance counters are not emulated",
    "KFDGraphicsInterop": "needs the graphics half of the driver (command submission through the render node)",
    "KFDEvictTest": "needs the graphics half of the driver (command submission through the render node)",
    "KFDSVM": "shared virtual memory is not emulated: no GPU here says that it has it",
    "KFDPMTest": "a person suspends the machine in the middle",
    "KFDRASTest": "injected memory errors; AMD leaves it out on every GPU",
    "KFDPCSamplingTest": "PC sampling is not emulated",
    "KFDIPCTest": "a call that Linux does not have (IPC_EXPORT_HANDLE)",
    "KFDLocalMemoryTest.Fragmentation": "AMD leaves it out on every GPU",
    "KFDLocalMemoryTest.CheckZeroInitializationVram": "AMD leaves it out on every GPU",
    "RDMATest": "needs a kernel module of its own",
    "KFDPerformanceTest": "measures speed",
    "KFDMemoryTest.MMBench": "measures speed",
    "KFDMemoryTest.MMBandWidth": "measures speed",
    "KFDQMTest.QueueLatency": "measures speed",
    "KFDEventTest.MeasureInterruptConsumption": "measures speed",
    "KFDGWSTest.Semaphore": "262144 workgroups one after the other take hours here",
    "KFDQMTest.BasicCuMasking": "measures speed; AMD leaves it out on every GPU",
}


def build(source: Path, folder: Path) -> None:
    """Configure and build libhsakmt and kfdtest. Raises SystemExit that says what is missing."""
    for tool in ("cmake", "make", "g++", "pkg-config"):
        if shutil.which(tool) is None:
            raise SystemExit(
                f"kfdtest: {tool} is not installed. See the top of {__file__} for what is needed."
            )
    llvm = sorted(Path("/usr/lib").glob("llvm-*/lib/cmake/llvm"), key=lambda path: _number(path.parts[3]))
    if not llvm:
        raise SystemExit("kfdtest: no LLVM with its headers: apt install llvm-19-dev, or another version.")
    thunk, tests = folder / "libhsakmt", folder / "kfdtest"
    thunk.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "LIBHSAKMT_PATH": str(thunk.resolve())}
    steps = (
        (
            "cmake",
            "-S",
            source / "libhsakmt",
            "-B",
            thunk,
            "-DBUILD_SHARED_LIBS=off",
            "-DCMAKE_C_FLAGS=-w -O1",
        ),
        ("make", "-C", thunk, "hsakmt"),
        # its gtest uses std::tuple without including it
        (
            *("cmake", "-S", source / "libhsakmt/tests/kfdtest", "-B", tests, f"-DLLVM_DIR={llvm[-1]}"),
            *("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=-w -O1 -include tuple"),
        ),
        ("make", "-C", tests, f"-j{os.cpu_count() or 1}"),
    )
    for step in steps:
        subprocess.run([str(word) for word in step], check=True, env=environ)
    print(tests / "kfdtest")


def _number(name: str) -> int:
    return int(re.sub(r"\D", "", name) or 0)


def names(program: Path) -> list[str]:
    """The tests it has."""
    text = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True).stdout
    found: list[str] = []
    group = ""
    for line in text.splitlines():
        if re.fullmatch(r"\w+(/\w+)*\.", line):
            group = line
        elif match := re.match(r"  (\w+(?:/\w+)*)", line):
            found.append(group + match[1])
    return found


def run_one(program: Path, words: str, name: str, limit: float) -> str:
    """One test: "passes", "skips: why" or "fails: why"."""
    command = [sys.executable, "-m", "hcq", "emulate", words, "--", str(program), f"--gtest_filter={name}"]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        text, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        text, _ = child.communicate()
        return f"{FAILED}: not done after {limit:.0f} s{_kernel_said(text)}"
    skipped = re.search(r"Skipping test:? ?(.*)|(?:Test|test) (?:is )?skipped[.:]? ?(.*)", text)
    if child.returncode == 0 and re.search(r"\[  PASSED  \] 1 test", text):
        return f"{SKIPPED}: {(skipped[1] or skipped[2] or '').strip(' .')}" if skipped else PASSED
    failure = re.search(r"[\w/]*?(\w+\.[ch]pp:\d+): Failure\n(.*(?:\n .*)*)", text)
    if failure:
        return f"{FAILED}: {failure[1]}: {' '.join(failure[2].split())}{_kernel_said(text)}"
    last = [line for line in text.strip().splitlines() if line][-1:] or ["no output"]
    return f"{FAILED}: exit status {child.returncode}: {last[0]}{_kernel_said(text)}"


def _kernel_said(text: str) -> str:
    said = re.findall(r"GPU 0x\w+: (.*)", text)
    return f" [kernel: {said[0]}]" if said else ""


def left_out_by_amd(folder: Path, words: str) -> list[str]:
    """Patterns of the tests that AMD's own script leaves out on the first of these GPUs."""
    arch = words.split(",")[0].split(":")[1]
    script = folder / "kfdtest" / "kfdtest.exclude"
    command = ["bash", "-c", 'source "$0"; echo "${FILTER[$1]}"', str(script), AMDS_NAMES.get(arch, arch)]
    patterns = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return patterns.lstrip("-").split(":") if patterns else []


def reason_left_out(name: str) -> str | None:
    """Why a test does not apply; None when it does."""
    return next((why for start, why in LEFT_OUT.items() if name.startswith(start)), None)


def run(folder: Path, words: Sequence[str], pattern: str, limit: float) -> int:
    """Run the tests on each GPU, and keep the results. Returns how many failed."""
    program = folder / "kfdtest" / "kfdtest"
    if not program.exists():
        raise SystemExit(
            f"kfdtest: {program} is not there. Build it: python -m hcq.tools.kfdtest build SOURCE {folder}"
        )
    failed = 0
    for word in words:
        store = folder / f"results-{re.sub(r'[^a-z0-9=]+', '-', word)}.json"
        results: dict[str, str] = json.loads(store.read_text())["results"] if store.exists() else {}
        for name in names(program):
            if reason_left_out(name) or not re.search(pattern, name):
                continue
            start = time.monotonic()
            is_alone = name in WITH_TWO_GPUS and "," not in word
            seconds = limit + SLEEPS.get(name, 0)
            found = f"{SKIPPED}: needs a second GPU" if is_alone else run_one(program, word, name, seconds)
            results[name] = found
            failed += found.startswith(FAILED)
            print(f"{word} {name}: {found} ({time.monotonic() - start:.1f} s)", flush=True)
            store.write_text(json.dumps({"words": word, "results": results}, indent=1))
    return failed


def table(folder: Path) -> str:
    """What the runs have found, in Markdown: counts by group, tests that do not pass, and what is left out."""
    program = folder / "kfdtest" / "kfdtest"
    stores = [json.loads(path.read_text()) for path in sorted(folder.glob("results-*.json"))]
    words = [store["words"] for store in stores]
    excluded = {one: left_out_by_amd(folder, one) for one in words}
    lines = [f"| tests of | {' | '.join(words)} |", f"|---|{'---|' * len(words)}"]
    for group, starts in GROUPS.items():
        cells = []
        for store in stores:
            kept = {name: text for name, text in store["results"].items() if not reason_left_out(name)}
            found = [text for name, text in kept.items() if name.startswith(starts)]
            ran = [text for text in found if not text.startswith(SKIPPED)]
            cell = f"{ran.count(PASSED)} of {len(ran)}, {len(found) - len(ran)} skip"
            cells.append(cell if found else "")
        lines.append(f"| {group} | {' | '.join(cells)} |")
    for kind in (FAILED, SKIPPED):
        rows: dict[str, dict[str, list[str]]] = {}  # reason -> test -> GPUs
        for store in stores:
            for name, text in store["results"].items():
                if text.startswith(kind) and not reason_left_out(name):
                    left = any(fnmatch(name, pattern) for pattern in excluded[store["words"]])
                    why = KNOWN.get(name, text.removeprefix(f"{kind}: "))
                    why += ". AMD leaves it out on this GPU" if left else ""
                    rows.setdefault(why, {}).setdefault(name, []).append(store["words"])
        lines += ["", f"| {kind} | why |", "|---|---|"]
        for why, tests in rows.items():
            named = (
                f"`{name}`" + ("" if len(on) == len(words) else f" ({'; '.join(on)})")
                for name, on in tests.items()
            )
            lines.append(f"| {', '.join(named)} | {why} |")
    groups: dict[str, list[str]] = {}
    for name in names(program):
        if why := reason_left_out(name):
            groups.setdefault(why, []).append(name)
    lines += ["", "| left out | tests | why |", "|---|---|---|"]
    for why, those in groups.items():
        shown = dict.fromkeys(map(_short, those))
        lines.append(f"| {', '.join(f'`{name}`' for name in shown)} | {len(those)} | {why} |")
    return "\n".join(lines)


def _short(name: str) -> str:
    """A whole class where all of it is left out."""
    return name.split(".")[0] if name.split(".")[0] in LEFT_OUT or name.startswith("KFDSVM") else name


def main(arguments: Sequence[str] | None = None) -> int:
    """The three commands."""
    parser = argparse.ArgumentParser("kfdtest", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("build", help="build libhsakmt and kfdtest")
    one.add_argument("source", type=Path, help="ROCR-Runtime's sources")
    one.add_argument("folder", type=Path, help="where to build")
    one = commands.add_parser("run", help="run the tests that apply, and keep the results")
    one.add_argument("folder", type=Path)
    one.add_argument("words", nargs="+", help="a word of HCQ_EMULATE, or several joined by commas")
    one.add_argument("-k", default="", help="only tests whose name this regular expression finds")
    one.add_argument(
        "--limit", type=float, default=LIMIT_SECONDS, help="seconds for each test, beside those it sleeps"
    )
    one = commands.add_parser("table", help="print what the runs have found")
    one.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "build":
        build(options.source.resolve(), options.folder)
        return 0
    if options.command == "run":
        return 1 if run(options.folder.resolve(), options.words, options.k, options.limit) else 0
    print(table(options.folder.resolve()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
