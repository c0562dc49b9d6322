"""Reports: an examination as text for a person, and as JSON for a bug report.

In       an Examination
Out      text; JSON whose names stay as they are from version to version
Next     check.py (what is printed), docs/doctor.md (the JSON's fields)

Neither holds the name of a user or of a home folder, so that both can be pasted anywhere.
"""

from __future__ import annotations

import json
import os
import platform
import re

import hcq
from hcq.doctor.check import CHECKS, Check, Run, Status
from hcq.doctor.examine import Examination

VERSION = 1  # of the JSON; rises when a field changes its meaning or goes
MARKS = {Status.OK: "ok", Status.FAILED: "FAILED", Status.SKIPPED: "-"}
COLOURS = {Status.OK: "32", Status.FAILED: "31;1", Status.SKIPPED: "2"}


def as_text(found: Examination, colours: bool = False) -> str:
    """What a terminal shows."""
    lines = [f"hcq {hcq.__version__}, Python {platform.python_version()}, {_system(found)}", ""]
    for run in found.runs:
        lines += [_title(run), *(line for check in run.checks for line in _lines(check, colours)), ""]
    lines += [f"{kind}: {why}." for kind, why in found.absent.items()]
    lines.append(_verdict(found))
    return scrub("\n".join(lines))


def as_json(found: Examination) -> str:
    """The same for a bug report or a program."""
    whole = {
        "doctor": VERSION,
        "status": "ok" if found.is_well else "failed",
        "hcq": hcq.__version__,
        "python": platform.python_version(),
        "system": {
            "kernel": found.facts.kernel,
            "machine": platform.machine(),
            "container": found.facts.container,
            "is_wsl": found.facts.is_wsl,
            "is_seccomp_filtered": found.facts.is_filtered,
            "is_selinux_enforcing": found.facts.is_selinux_enforcing,
            "memlock_bytes": found.facts.memlock,
            "memory_bytes": found.facts.memory_bytes,
        },
        "devices": [
            {
                "name": run.device,
                "kind": run.kind,
                "is_emulated": run.is_emulated,
                "status": "ok" if run.is_well else "failed",
                "checks": [
                    {
                        "name": check.name,
                        "status": check.status.value,
                        "text": scrub(check.text),
                        "fix": scrub(check.fix),
                        "figures": dict(check.figures),
                    }
                    for check in run.checks
                ],
            }
            for run in found.runs
        ],
        "absent": found.absent,
    }
    return json.dumps(whole, indent=2)


def scrub(text: str) -> str:
    """Without home folders, and without the name of whoever runs this in any path."""
    home = os.path.expanduser("~").rstrip("/")
    if home.count("/") >= 1 and home != "/":
        text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    return re.sub(r"/(?:home|Users)/[^/\s'\":]+", "~", text)


def _system(found: Examination) -> str:
    facts = found.facts
    where = f" in a {facts.container} container" if facts.container else ""
    return f"Linux {facts.kernel} on {platform.machine()}{where}"


def _title(run: Run) -> str:
    return f"{run.device} (emulated)" if run.is_emulated else run.device


def _lines(check: Check, colours: bool) -> list[str]:
    mark = MARKS[check.status].ljust(6)
    if colours:
        mark = f"\x1b[{COLOURS[check.status]}m{mark}\x1b[0m"
    lines = [f"  {mark} {check.name:<10} {check.text}"]
    if check.status == Status.FAILED:
        lines.append(f"         asks       {CHECKS[check.name]}")
        lines.append(f"         fix        {check.fix}")
    return lines


def _verdict(found: Examination) -> str:
    ill = [run.device for run in found.runs if not run.is_well]
    if not ill:
        return f"All is well: {', '.join(_title(run) for run in found.runs)} can be used."
    return f"Not well: {', '.join(ill)}. Follow the first fix, then run this again."
