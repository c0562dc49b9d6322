"""Conformance: PyTorch's own samples of its operators, computed by us, values and gradients (`make conformance`).

In       PyTorch's OpInfo database: for every operator, inputs of each dtype, and how exact a result must be
Out      a table on the terminal; docs/conformance.md with a line for each operator that fails, which says why
Changes  docs/conformance.md, when all operators were run; the kernels it compiles stay in the disk cache
Next     samples.py (operators, inputs), judge.py (what passes), run.py (processes),
         diary.py (results of a run cut short), page.py (the page),
         devices.py (the same on several devices)

    python tools/conformance/pytorch.py                        all operators, a few processes, and the page
    python tools/conformance/pytorch.py --only cumsum --only nn.functional.pad
    python tools/conformance/pytorch.py --json out.jsonl --resume   go on where a run was cut short
    HCQ_EMULATE=amd:gfx1100 python tools/conformance/pytorch.py --device AMD
    python tools/conformance/pytorch.py --devices CPU,amd:gfx1100,nv:sm_90   several devices, compared
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hcq.tools.conformance import devices as between_devices
from hcq.tools.conformance import page as report
from hcq.tools.conformance.diary import Diary, DiaryError, measured_revision
from hcq.tools.conformance.judge import run_operator
from hcq.tools.conformance.page import CORE, OUTSIDE, group_of, score
from hcq.tools.conformance.run import SECONDS, run_all
from hcq.tools.conformance.samples import DTYPES, SAMPLES, database, full_name


def worker(device: str | None, kinds: Sequence[str], devices: Sequence[str] = (), samples: int = 1) -> int:
    """Operators by number, one a line on stdin; a line of JSON each on stdout."""
    if devices:
        between_devices.emulated(devices)
    if device:
        os.environ["HCQ_DEVICE"] = device
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(1)
    operators = database(kinds)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what operators print is not ours
    print(json.dumps({"ready": len(operators)}), file=out, flush=True)
    for line in sys.stdin:
        op = operators[int(line)]
        if devices:
            result = between_devices.run_operator(op, kinds, devices, samples)
        else:
            result = run_operator(op, kinds)
        print(json.dumps(result), file=out, flush=True)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns 0: it measures and does not judge."""
    parser = argparse.ArgumentParser(prog="conformance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="an operator's name, or the front of names, as fft.; may be repeated",
    )
    parser.add_argument("--device", help="where our side runs (default: HCQ_DEVICE, or CPU)")
    parser.add_argument(
        "--dtype",
        action="append",
        help=f"of samples; may be repeated (default {', '.join(DTYPES)}), as complex64",
    )
    parser.add_argument(
        "--devices",
        default="",
        help="compare devices instead: CPU,amd:gfx1100,nv:sm_90 (emulated), or CPU,AMD",
    )
    parser.add_argument(
        "--samples", type=int, default=SAMPLES, help=f"of each dtype, with --devices (default {SAMPLES})"
    )
    parser.add_argument(
        "--json", type=Path, help="write each result to this file, a line as soon as it is there"
    )
    parser.add_argument(
        "--resume", action="store_true", help="do not compute again what the file of --json has"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit of an operator (default 60)")
    parser.add_argument("--all", action="store_true", help="print the operators that pass, too")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    devices = [name for name in options.devices.split(",") if name]
    if len(devices) == 1:
        raise SystemExit(f"conformance: --devices {devices[0]}: name two at least, as CPU,amd:gfx1100.")
    if not 1 <= options.samples <= SAMPLES:
        raise SystemExit(f"conformance: --samples {options.samples}: there are 1 to {SAMPLES} of each dtype.")
    if options.resume and options.json is None:
        raise SystemExit("conformance: --resume goes on with a file of results: name it with --json.")
    if options.worker:
        return worker(options.device, options.dtype or DTYPES, devices, options.samples)
    try:
        import torch

        for kind in options.dtype or ():
            if not isinstance(getattr(torch, kind, None), torch.dtype):
                raise SystemExit(
                    f"conformance: --dtype {kind}: PyTorch has float32, complex64, ..., and not this."
                )
        operators = database(options.dtype or DTYPES)
    except ModuleNotFoundError as error:
        raise SystemExit(f"conformance: {error}. Install what it needs: make conformance") from error
    names = [full_name(op) for op in operators]
    known = {name.partition("!")[0] for name in names} | set(names)
    for name in options.only:
        if name not in known and not any(each.startswith(name) for each in known):
            raise SystemExit(
                f"conformance: no operator is called {name!r}. PyTorch has cumsum, nn.functional.pad, ..."
            )
    work = [
        (number, name)
        for number, name in enumerate(names)
        if not options.only
        or name.partition("!")[0] in options.only
        or any(name.startswith(each) for each in options.only if each not in known)
        or name in options.only
    ]
    start = time.perf_counter()
    quiet = not (options.all or options.only)
    kinds = options.dtype or DTYPES
    words = [word for kind in kinds for word in ("--dtype", kind)]
    if devices:
        words += ["--devices", options.devices, "--samples", str(options.samples)]
    device = options.device or os.environ.get("HCQ_DEVICE", "CPU")
    version = torch.__version__.partition("+")[0]
    about: dict[str, Any] = {"PyTorch": version, "dtypes": list(kinds), "devices": devices or [device]}
    about["samples"] = options.samples if devices else SAMPLES
    try:
        if devices:
            between_devices.check(devices)
        diary = Diary(options.json, options.resume, about, measured_revision())
    except (DiaryError, between_devices.NoDevice) as error:
        raise SystemExit(f"conformance: {error}") from error
    results = run_all(work, options.device, options.jobs, options.seconds, quiet, words, diary)
    for group in (CORE, *dict.fromkeys(OUTSIDE.values())):
        print(
            score([result for result in results if group_of(result["operator"]) == group]).row(f"{group:20}")
        )
    print(score(results).row("all"))
    print(f"{math.ceil(time.perf_counter() - start)} s")
    if devices and not options.only and not options.dtype:
        between_devices.PAGE.write_text(
            between_devices.page(results, devices, options.samples, diary.revisions), "utf-8"
        )
        print(f"wrote {between_devices.PAGE}")
    elif not options.only and not options.dtype:
        report.PAGE.write_text(
            report.page(results, options.device or "the CPU", version, options.seconds, diary.revisions),
            "utf-8",
        )
        print(f"wrote {report.PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
