"""What can be opened here: one entry for each device, with its architecture, memory, queues and driver.

In       a Host; words of emulated devices
Out      plain facts, or the reason why a device cannot be opened and the fix
Changes  opens each device and closes it again
Next     examine.py (looks deeper), hcq/__main__.py (prints the list)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.doctor.check import Status
from hcq.doctor.examine import Examination, examine
from hcq.doctor.host import Host
from hcq.doctor.report import scrub


def list_devices(host: Host | None = None, emulated: Sequence[str] = ()) -> Examination:
    """Every device that is here, and the emulated ones, opened and closed again."""
    return examine(host, emulated=emulated, briefly=True)


def entries(found: Examination) -> list[dict[str, Any]]:
    """Facts of each device: name, arch, model, memory_bytes, queues, driver, is_emulated, and what the device adds.

    One that cannot be opened has name, check, error and fix.
    """
    listed: list[dict[str, Any]] = []
    for run in found.runs:
        failed = next((check for check in run.checks if check.status == Status.FAILED), None)
        if failed is not None:
            why = {"check": failed.name, "error": scrub(failed.text), "fix": scrub(failed.fix)}
            listed.append({"name": run.device, "is_emulated": run.is_emulated, **why})
            continue
        driver = next(check.text for check in run.checks if check.name == "driver")
        listed.append({**run.facts, "driver": driver, "is_emulated": run.is_emulated})
    return listed


def _queues(names: Sequence[str]) -> str:
    """Such as "queue main", "queues compute and copy"."""
    *most, last = names
    return f"queues {', '.join(most)} and {last}" if most else f"queue {last}"


def as_text(found: Examination) -> str:
    """One line for each device, and one for each kind that is not here."""
    lines = []
    for facts in entries(found):
        name = f"{facts['name']} (emulated)" if facts["is_emulated"] else facts["name"]
        if "error" in facts:
            lines += [f"{name}: cannot be opened. {facts['error']}", f"    fix: {facts['fix']}"]
            continue
        memory = f"{facts['memory_bytes'] / 2**30:.1f} GiB of memory"
        lines.append(
            f"{name}: {facts['model']}; architecture {facts['arch']}; {memory}; {_queues(facts['queues'])}; "
            f"driver: {facts['driver']}"
        )
    lines += [f"{kind} hardware: none here ({why})" for kind, why in found.absent.items()]
    return "\n".join(lines)
