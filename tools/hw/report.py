"""Reports: results for a person and for a program, written again after every item.

In       Checks, the device's name
Out      report.txt, report.json
Changes  the two files; each is whole at any moment, whatever happens in the next
Next     ../hw_check.py (who writes when), archive.py (what goes with them)
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hcq
from hcq.doctor.check import Check, Status
from hcq.doctor.report import MARKS, scrub
from hcq.tools.hw.plan import DOCTOR, FIGURES

VERSION = 2  # of the JSON
COMPARED = {
    "launches": {"launch_us": "launch_us"},
    "latency": {"latency_us": "latency_us", "best_us": "best_us"},
    "bandwidth": {
        name: name
        for name in ("to_device_gb_per_s", "from_device_gb_per_s", "copy_gb_per_s", "kernel_gb_per_s")
    },
}


def write(folder: Path, device: str, results: Sequence[Check], running: str = "") -> dict[str, Any]:
    """Both reports. running: the item that comes next; a machine that stops there leaves its name."""
    data = as_data(results, device, running)
    _replace(folder / "report.json", json.dumps(data, indent=1, default=str) + "\n")
    _replace(folder / "report.txt", as_text(data, results))
    return data


def _replace(path: Path, text: str) -> None:
    """A file is what it was, or what it is to be, and on the disk before anything else happens."""
    beside = path.with_name(f"{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def as_data(results: Sequence[Check], device: str, running: str = "") -> dict[str, Any]:
    """report.json: what ran where, and every result with its figures."""
    opened = next((one.figures for one in results if one.name == "opening"), {})
    emulated = os.environ.get("HCQ_EMULATE", "")
    return {
        "hw_check": VERSION,
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "hcq": hcq.__version__,
        "device": device,
        "is_emulated": bool(emulated),
        "emulate": emulated,
        "arch": opened.get("arch", ""),
        "driver": opened.get("driver", opened.get("kfd_version", "")),
        "system": {
            "kernel": platform.release(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
        "status": "failed" if has_failed(results) else "ok",
        "running": running,
        "checks": [asdict(one) for one in results],
    }


def as_text(data: dict[str, Any], results: Sequence[Check]) -> str:
    """report.txt: the same for people."""
    where = f"emulated ({data['emulate']})" if data["is_emulated"] else "hardware"
    head = [
        f"hw_check of {data['device'] or 'no GPU'} on {where}, {data['when']}",
        f"hcq {data['hcq']}, driver {data['driver']}, {data['arch']}, Linux {data['system']['kernel']}",
        *([f"running {data['running']}"] if data["running"] else []),
        "",
    ]
    doctor = next((str(one.figures.get("text", "")) for one in results if one.name == DOCTOR), "")
    body = [line for one in results for line in lines(one)]
    return scrub("\n".join([*head, *body, "", *comparison(results), verdict(results), "", doctor])) + "\n"


def lines(result: Check) -> list[str]:
    """A result for a person: one line, and the fix below it."""
    found = [f"{MARKS[result.status]:>7}  {result.name:18} {result.text}"]
    if result.fix:
        found.append(f"{'':>7}  {'':18} fix: {result.fix}")
    return found


def comparison(results: Sequence[Check]) -> list[str]:
    """Our figures beside the vendor's, where both are there."""
    by_name = {one.name: one.figures for one in results if one.status == Status.OK}
    theirs = by_name.get(FIGURES)
    if not theirs:
        return []
    found = [f"{'':26} {'hcq':>10} {'vendor':>10} {'hcq is':>10}"]
    for name, pairs in COMPARED.items():
        for ours, their in pairs.items():
            a, b = float(by_name.get(name, {}).get(ours, 0)), float(theirs.get(their, 0))
            if a and b:
                faster = b / a if ours.endswith("_us") else a / b
                found.append(f"{ours:26} {a:10.2f} {b:10.2f} {faster:8.2f} x")
    return [*found, ""]


def has_failed(results: Sequence[Check]) -> bool:
    """Whether a check failed. A variant that does not work says something about the hardware, and is no failure."""
    return any(one.status == Status.FAILED and not one.name.startswith("try-") for one in results)


def verdict(results: Sequence[Check]) -> str:
    """How many checks ended how, in a line, the failed ones by name; variants are counted apart."""
    tries = [one for one in results if one.name.startswith("try-")]
    rest = [one for one in results if one not in tries]
    counts = {status.value: sum(one.status == status for one in rest) for status in Status}
    failed = ", ".join(one.name for one in rest if one.status == Status.FAILED)
    text = f"{counts['ok']} ok, {counts['failed']} failed, {counts['skipped']} skipped"
    if tries:
        text += f"; of {len(tries)} variants {sum(one.status == Status.OK for one in tries)} work"
    return f"{text}; failed: {failed}" if failed else text
