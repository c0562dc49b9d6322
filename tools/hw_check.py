"""Check a GPU driven by hcq on real hardware, and gather what its developers need to see.

In       a device's name; nothing but Python, cffi, pyelftools, ioctl-opt, numpy and nvrtc has to be installed
Out      what works, with figures beside the CUDA driver's; a folder with the report, a recorded run, and fault reports
Changes  the GPU: memory, launches, a fault and a hang on purpose; the folder
Next     hw/checks.py (what is checked), hw/cuda.py (the vendor's figures), docs/hardware.md (what ran, what to send)

Each check runs in a process of its own with a deadline, so that one that crashes or hangs ends alone.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import hcq
from hcq.doctor.check import Check, Status, answer
from hcq.doctor.report import MARKS
from hcq.errors import HcqError, UsageError
from hcq.tools.trace.color import clean

VERSION = 1  # of the JSON
ROOT = Path(hcq.__file__).resolve().parent.parent
FAILED = 1
DEADLINE_S = 300
VENDOR, CAPTURE, DOCTOR, OPENING = (
    "cuda",
    "capture",
    "doctor",
    "opening",
)  # checks that are asked for by name here
COMPARED = {
    "launches": {"launch_us": "launch_us"},
    "latency": {"latency_us": "latency_us", "best_us": "best_us"},
    "bandwidth": {
        name: name
        for name in ("to_device_gb_per_s", "from_device_gb_per_s", "copy_gb_per_s", "kernel_gb_per_s")
    },
}

DESCRIPTION = """Check a GPU driven by hcq on real hardware, and write a folder with all that was seen.

First the doctor's checks (files, permissions, driver, opening, memory, queue), then launches, arguments, kernels with
barriers, atomics and divergence, copies with checksums, timestamps, graphs, a fault and a hang that the device must
recover from, and a short recorded run. Where libcuda is installed, the CUDA driver's figures stand beside ours.
"""
EPILOG = """examples:
  python tools/hw_check.py                          everything, on the first NVIDIA GPU; about two minutes
  python tools/hw_check.py --list                   what there is to check
  python tools/hw_check.py --only launches,copies   some of it
  python tools/hw_check.py --skip fault,hang        nothing that disturbs other users of the GPU
  HCQ_EMULATE=nv:sm_90 python tools/hw_check.py     the same against an emulated GPU, smaller

what it needs: a kernel driver (nvidia-open) and read-write access to /dev/nvidiactl, /dev/nvidia-uvm and /dev/nvidia0;
  pip install cffi pyelftools ioctl-opt numpy nvidia-cuda-nvrtc      no CUDA toolkit, no libcuda, no root

what to send: the folder (default hw-report): report.txt and report.json, capture.hcqtrace (the ioctls and command
  buffers of a short run; it holds no data of yours), reports/ (on the fault and the hang).
  `hcq-trace show hw-report/capture.hcqtrace --ioctls` prints the capture.

exit status: 0 all checks passed or were skipped; 1 something failed; 2 the check itself could not run.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status."""
    options = parser().parse_args(argv)
    try:
        if options.child:
            return child(options.child, options.device, Path(options.output))
        if options.list:
            print("\n".join(f"{name:12} {about}" for name, about in names().items()))
            return 0
        return check(options)
    except HcqError as error:
        print(f"hw_check: {clean(str(error))}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    made = argparse.ArgumentParser(
        prog="hw_check",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--device", metavar="NAME", default="NV", help="which one, such as NV or NV:1; default NV"
    )
    made.add_argument("-o", "--output", metavar="FOLDER", default="hw-report", help="default hw-report")
    made.add_argument("--only", metavar="NAMES", default="", help="only these checks, comma separated")
    made.add_argument("--skip", metavar="NAMES", default="", help="all but these")
    made.add_argument("--list", action="store_true", help="the checks, a line each")
    made.add_argument("--json", action="store_true", help="print report.json instead of text")
    made.add_argument(
        "--deadline",
        metavar="S",
        type=float,
        default=DEADLINE_S,
        help=f"seconds for one check; default {DEADLINE_S}",
    )
    made.add_argument("--child", metavar="NAME", default="", help=argparse.SUPPRESS)
    return made


def names() -> dict[str, str]:
    """Every check with the first line of what it asks."""
    from hcq.tools.hw.checks import CHECKS

    return {name: (one.__doc__ or "").partition("\n")[0] for name, one in CHECKS.items()}


# ------------------------------------------------------------ the parent


def check(options: argparse.Namespace) -> int:
    """Run the checks, print and write what they found."""
    wanted = _chosen(options.only, options.skip)
    _check_compiler()
    folder = Path(options.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be made ({error.strerror}). Name another folder with -o."
        ) from None
    results = []
    for name in wanted:
        result = run_one(name, options.device, folder, options.deadline)
        results.append(result)
        if not options.json:
            print("\n".join(lines(result)), flush=True)
        if name == OPENING and result.status == Status.FAILED:
            break  # nothing after it can work; a check of the doctor that failed need not be in the way
    report = as_data(results, options.device)
    text = as_text(report, results)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "report.txt").write_text(text)
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print(
            "\n".join(
                ["", *comparison(results), verdict(results), f"written to {folder}/: send that folder."]
            )
        )
    return FAILED if any(one.status == Status.FAILED for one in results) else 0


def _check_compiler() -> None:
    """The kernels are CUDA C. Raises UsageError that says how to get nvrtc."""
    from hcq.nv.toolchain import nvrtc

    nvrtc.library()


def _chosen(only: str, skip: str) -> list[str]:
    known = names()
    for word in (*_words(only), *_words(skip)):
        if word not in known:
            raise UsageError(f"{word!r} is no check. They are {', '.join(known)}.")
    return [name for name in known if (not only or name in _words(only)) and name not in _words(skip)]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def run_one(name: str, device: str, folder: Path, deadline_s: float) -> Check:
    """One check in a process of its own."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH", "")]))
    environment["HCQ_REPORT_DIR"] = str(folder / "reports")
    trace = folder / "capture.hcqtrace"
    if name == CAPTURE:
        trace.unlink(missing_ok=True)
        environment["HCQ_TRACE"] = f"{trace},data"
    words = [
        sys.executable,
        "-m",
        "hcq.tools.hw_check",
        "--child",
        name,
        "--device",
        device,
        "-o",
        str(folder),
    ]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, errors="replace", timeout=deadline_s
        )
    except subprocess.TimeoutExpired as late:
        return Check(
            name, Status.FAILED, f"took longer than {deadline_s:g} s. {_tail(late.stderr)}", took_s=deadline_s
        )
    took = round(time.perf_counter() - start, 2)
    last_line = done.stdout.strip().rpartition("\n")[2]
    with contextlib.suppress(ValueError, TypeError):
        fields = json.loads(last_line)
        result = Check(**{**fields, "status": Status(fields["status"]), "took_s": took})
        return read_capture(trace, result) if name == CAPTURE and result.status == Status.OK else result
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    return Check(name, Status.FAILED, f"its process ended with {how}: {_tail(done.stderr)}", took_s=took)


def _tail(text: str | bytes | None) -> str:
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text or ""
    return " | ".join(plain.strip().splitlines()[-3:])[-600:]


def read_capture(path: Path, result: Check) -> Check:
    """What the recorded run holds, and whether every word of it has a name."""
    from hcq.tools.trace import lint, show
    from hcq.trace.file import Trace

    try:
        trace = Trace.read(str(path))
        shown = [
            line
            for view in show.select(trace, show.Filter(ioctls=True))
            for line in show.lines(view, _plain())
        ]
        found = lint.findings(trace)
    except HcqError as error:
        return replace(result, status=Status.FAILED, text=f"the recorded run cannot be read: {error}")
    unnamed = [line.strip() for line in shown if "UNKNOWN" in line or "unclaimed" in line]
    data = path.read_bytes()
    figures: dict[str, int | float | str] = {
        "file": path.name,
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "lines": len(shown),
        "unnamed_words": len(unnamed),
        "broken_rules": len(found),
    }
    text = f"{path.name}: {len(data)} bytes, {len(unnamed)} words without a name, {len(found)} broken rules"
    if not unnamed and not any(one.level == "error" for one in found):
        return replace(result, text=text, figures=figures)
    text += f"; the first: {(unnamed or [str(found[0])])[0][:200]}"
    fix = f"hcq-trace lint {path}  # and send the folder"
    return replace(result, status=Status.FAILED, text=text, fix=fix, figures=figures)


def _plain() -> Any:
    from hcq.tools.trace.color import Color

    return Color(False)


# ------------------------------------------------------------ the child


def child(name: str, device: str, folder: Path) -> int:
    """Run one check in this process; the last line of standard output is what it found, as JSON."""
    from hcq.tools.hw import checks

    bench = checks.Bench(device, folder)
    result = answer(name, lambda: checks.CHECKS[name](bench), bench.advise, checks.REPORT_IT)
    print(json.dumps(asdict(replace(result, text=clean(result.text)))), flush=True)
    return 0


# ------------------------------------------------------------ reports


def lines(result: Check) -> list[str]:
    """A result for a person: one line, and the fix below it."""
    found = [f"{MARKS[result.status]:>7}  {result.name:11} {result.text}"]
    if result.fix:
        found.append(f"{'':>7}  {'':11} fix: {result.fix}")
    return found


def comparison(results: Sequence[Check]) -> list[str]:
    """Our figures beside the CUDA driver's, where both are there."""
    by_name = {one.name: one.figures for one in results if one.status == Status.OK}
    theirs = by_name.get(VENDOR)
    if not theirs:
        return []
    found = [f"{'':26} {'hcq':>10} {'CUDA':>10} {'hcq is':>10}"]
    for name, pairs in COMPARED.items():
        for ours, their in pairs.items():
            a, b = float(by_name.get(name, {}).get(ours, 0)), float(theirs.get(their, 0))
            if a and b:
                faster = b / a if ours.endswith("_us") else a / b
                found.append(f"{ours:26} {a:10.2f} {b:10.2f} {faster:8.2f} x")
    return [*found, ""]


def verdict(results: Sequence[Check]) -> str:
    """How many checks ended how, in a line, the failed ones by name."""
    counts = {status.value: sum(one.status == status for one in results) for status in Status}
    failed = ", ".join(one.name for one in results if one.status == Status.FAILED)
    text = f"{counts['ok']} ok, {counts['failed']} failed, {counts['skipped']} skipped"
    return f"{text}; failed: {failed}" if failed else text


def as_data(results: Sequence[Check], device: str) -> dict[str, Any]:
    """report.json: what ran where, and every result with its figures."""
    opened = next((one.figures for one in results if one.name == "opening"), {})
    return {
        "hw_check": VERSION,
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "hcq": hcq.__version__,
        "device": device,
        "is_emulated": bool(_emulated()),
        "emulate": _emulated(),
        "arch": opened.get("arch", ""),
        "driver": opened.get("driver", ""),
        "system": {
            "kernel": platform.release(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
        "status": "failed" if any(one.status == Status.FAILED for one in results) else "ok",
        "checks": [asdict(one) for one in results],
    }


def _emulated() -> str:
    return os.environ.get("HCQ_EMULATE", "")


def as_text(report: dict[str, Any], results: Sequence[Check]) -> str:
    """report.txt: the same for people."""
    where = f"emulated ({report['emulate']})" if report["is_emulated"] else "hardware"
    head = [
        f"hw_check of {report['device']} on {where}, {report['when']}",
        f"hcq {report['hcq']}, driver {report['driver']}, {report['arch']}, Linux {report['system']['kernel']}",
        "",
    ]
    doctor = next((str(one.figures.get("text", "")) for one in results if one.name == DOCTOR), "")
    body = [line for one in results for line in lines(one)]
    return "\n".join([*head, *body, "", *comparison(results), verdict(results), "", doctor]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
