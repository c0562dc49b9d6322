"""Check a GPU driven by hcq on real hardware, and gather what its developers need to see.

In       a device's name, or none; nothing but Python has to be installed
Out      what works, with figures beside the vendor's; a folder, and one archive of it under 16 MiB
Changes  the GPU: memory, launches, a fault and a hang on purpose; the folder, the archive
Next     hw/plan.py (what is asked), hw/runner.py (a process for each), docs/hardware.md (what ran, what to send)

Each item runs in a process of its own with a deadline, reports are written after each, and what could not be asked does
not keep anything else from being asked.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import hcq
from hcq.doctor.check import Check, Status
from hcq.errors import DriverError, HcqError, UsageError
from hcq.nv import nodes
from hcq.system.port import LinuxPort
from hcq.tools.hw import archive, keeper, report
from hcq.tools.hw.child import kind_of
from hcq.tools.hw.plan import CAPTURE, LIMIT_S, VENDORS, Item, items
from hcq.tools.hw.runner import Runner
from hcq.tools.trace.color import Color, clean

FAILED, CANNOT = 1, 2
LEAST_S = 1.0  # of an item: with less left it is not begun
SIGNS = {"NV": "/dev/nvidiactl", "AMD": "/dev/kfd"}

DESCRIPTION = """Check a GPU driven by hcq on real hardware, and write an archive with all that was seen.

First the machine, then the vendor's own runtime where it is installed (what it asks of the kernel and puts into its
rings, beside what we do), then opening, a ladder from an empty submission to a kernel with memory of its own, launches,
copies, timestamps, graphs, figures beside the vendor's, experiments, variants of the driver each by itself, and last a
fault, a trap and a hang that the device must recover from.
"""
EPILOG = """examples:
  python tools/hw_check.py                          everything, on the first GPU; under ten minutes
  python tools/hw_check.py --device AMD:1           another GPU
  python tools/hw_check.py --list                   what there is to check
  python tools/hw_check.py --only launches,copies   some of it
  python tools/hw_check.py --skip fault,hang        all but these
  python tools/hw_check.py --calm                   nothing that stops a channel on purpose or may hang the GPU
  HCQ_EMULATE=nv:sm_90 python tools/hw_check.py     the same against an emulated GPU, smaller

what it needs: the kernel driver (nvidia-open, or amdgpu), read-write access to its device files, and Python 3.10 or
  later; no package, no CUDA or ROCm, no compiler, no root. Without a driver it still says why. `make hw-check` puts all
  of it into one file, build/hw_check.pyz, for a machine that has no checkout: python3 hw_check.pyz

what to send: hw-report.zip. docs/hardware.md has all that is in it: reports, the machine's facts, recorded runs, what
  the vendor's runtime was seen to do, standard error of every check; no data of yours and no names of users.

exit status: 0 all checks passed or were skipped (but try-*, which may fail); 1 one failed; 2 nothing was to be checked.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status."""
    options = parser().parse_args(argv)
    try:
        device = options.device or first_device()
        if options.list:
            for item in items(kind_of(device) or VENDORS[0]):
                print(f"{item.name:20} {item.about}")
            return 0
        return check(options, device)
    except HcqError as error:
        print(f"hw_check: {clean(str(error))}", file=sys.stderr)
        return CANNOT


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    made = argparse.ArgumentParser(
        prog="hw_check",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"hcq-hw-check of hcq {hcq.__version__}")
    made.add_argument(
        "--device", metavar="NAME", default="", help="which one, such as NV or AMD:1; default the first"
    )
    made.add_argument("-o", "--output", metavar="FOLDER", default="hw-report", help="default hw-report")
    made.add_argument("--only", metavar="NAMES", default="", help="only these checks, comma separated")
    made.add_argument("--skip", metavar="NAMES", default="", help="all but these")
    made.add_argument("--calm", action="store_true", help="leave out what may disturb others on the GPU")
    made.add_argument("--list", action="store_true", help="the checks, a line each")
    made.add_argument("--json", action="store_true", help="print report.json instead of text")
    made.add_argument(
        "--deadline", metavar="S", type=float, help="seconds for one check, instead of its own deadline"
    )
    made.add_argument(
        "--limit", metavar="S", type=float, default=LIMIT_S, help=f"seconds for all; default {LIMIT_S:g}"
    )
    return made


def first_device() -> str:
    """The kind of the first GPU whose kernel driver is here, or that is emulated; "" for none."""
    words = [word.partition(":")[0].strip().upper() for word in os.environ.get("HCQ_EMULATE", "").split(",")]
    for kind in VENDORS:
        if kind in words or (not any(words) and is_here(kind)):
            return kind
    return ""


def is_here(kind: str) -> bool:
    """Whether the kernel driver of a kind of GPU is here; NVIDIA's is, too, where nobody has made its files."""
    return Path(SIGNS[kind]).exists() or (kind == "NV" and nodes.is_loaded(LinuxPort()))


def check(options: argparse.Namespace, device: str) -> int:
    """Run the checks, print and write what they found."""
    wanted = chosen(options, device)
    folder = Path(options.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be made ({error.strerror}). Name another folder with -o."
        ) from None
    results: list[Check] = []

    def say(text: str) -> None:
        if text and not options.json:
            print(text, flush=True)

    if not device:
        say(nothing_here())
    interrupted = False
    try:
        is_emulated = bool(os.environ.get("HCQ_EMULATE"))
        if kind_of(device) == "NV" and not is_emulated:
            say(made_files())
        files = keeper.gpu_files() if kind_of(device) == "NV" and not is_emulated else []
        with keeper.holding(files) as held:
            for line in held:
                say(f"{'':>7}  {line}")
            with contextlib.closing(Runner(device, folder, options.deadline)) as runner:
                run_all(wanted, runner, results, options.limit, say)
    except KeyboardInterrupt:
        interrupted = True
        say("interrupted: what was found so far is in the archive")
    finally:
        data = report.write(folder, device, results)
        path, out = archive.make(folder)
    if options.json:
        print(json.dumps(data, indent=1, default=str))
    size = path.stat().st_size
    say("\n".join(["", *report.comparison(results), report.verdict(results)]))
    say(
        f"written to {path} ({size / 1e6:.1f} MB{f', {len(out)} files left out' if out else ''}): send that file."
    )
    if not device:
        return CANNOT
    return FAILED if interrupted or report.has_failed(results) else 0


def made_files() -> str:
    """Make NVIDIA's device files where they are missing, so that they can be held open; what came of it."""
    port, found = LinuxPort(), []
    if not nodes.is_loaded(port):
        return ""
    for path in (SIGNS["NV"], "/dev/nvidia0", nodes.UVM):
        there = os.path.exists(path)
        try:
            port.close(nodes.open_node(port, path))
        except DriverError as refusal:
            found.append(f"{'':>7}  {refusal}")
            continue
        if not there:
            found.append(f"{'':>7}  {path} was made")
    return "\n".join(found)


def nothing_here() -> str:
    """What to say on a machine without a GPU's kernel driver."""
    return (
        f"no kernel driver of a GPU is here: neither {' nor '.join(SIGNS.values())} exists. The machine is described;"
        " for the rest load a driver (python -m hcq doctor says how), or take an emulated GPU: HCQ_EMULATE=nv:sm_90."
    )


def run_all(wanted: Sequence[Item], runner: Runner, results: list[Check], limit_s: float, say: Any) -> None:
    """Each item in order, reports written before and after it."""
    end = time.monotonic() + limit_s
    for item in wanted:
        report.write(runner.folder, runner.device, results, item.name)
        result = one(item, runner, results, end - time.monotonic())
        results.append(result)
        say("\n".join(report.lines(result)))
        report.write(runner.folder, runner.device, results)


def one(item: Item, runner: Runner, results: Sequence[Check], left_s: float) -> Check:
    """One item, unless what it needs has failed or there is no time left for it."""
    if any(done.name == item.needs and done.status == Status.FAILED for done in results):
        return Check(item.name, Status.SKIPPED, f"needs {item.needs}")
    if left_s < LEAST_S:
        return Check(item.name, Status.SKIPPED, "no time was left for it (--limit gives more)")
    result = runner.run(item, left_s)
    if item.name == CAPTURE and result.status == Status.OK:
        return read_capture(runner.folder / item.trace, result)
    return result


def chosen(options: argparse.Namespace, device: str) -> list[Item]:
    """The items that are wanted. Raises UsageError for a name that means nothing."""
    kind = kind_of(device)
    if kind and kind not in VENDORS:
        raise UsageError(f"hw_check checks {' and '.join(VENDORS)}, not {device!r}.")
    known = items(kind)
    names = [item.name for item in known]
    only, skip = _words(options.only), _words(options.skip)
    for word in (*only, *skip):
        if word not in names:
            raise UsageError(f"{word!r} is no check. They are {', '.join(names)}.")
    return [
        item
        for item in known
        if (not only or item.name in only) and item.name not in skip and not (options.calm and item.disturbs)
    ]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def read_capture(path: Path, result: Check) -> Check:
    """What the recorded run holds, and whether every word of it has a name."""
    from hcq.tools.trace import lint, show
    from hcq.trace.file import Trace

    try:
        trace = Trace.read(str(path))
        shown = [
            line
            for view in show.select(trace, show.Filter(ioctls=True))
            for line in show.lines(view, Color(False))
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
    fix = f"hcq-trace lint {path}  # and send the archive"
    return replace(result, status=Status.FAILED, text=text, fix=fix, figures=figures)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
