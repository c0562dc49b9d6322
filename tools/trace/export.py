"""Export: a trace for other programs: Perfetto's protobuf, JSON, or CSV.

In       a Trace
Out      bytes
Next     perfetto.py (the protobuf), views.py (what JSON holds), docs/trace.md (the keys and columns)
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from hcq.errors import UsageError
from hcq.tools.trace import perfetto
from hcq.tools.trace.views import View, command_view, seconds, views
from hcq.trace.file import Trace

SCHEMA = 1  # rises when a key or a column changes its meaning
COLUMNS = (
    "device", "queue", "submission", "command", "verb", "kernel", "grid_x", "grid_y", "grid_z", "size_bytes",
    "submitted_s", "started_s", "finished_s", "site", "text",
)  # fmt: skip


def export(trace: Trace, form: str) -> bytes:
    """The file in one of FORMS."""
    if form not in FORMS:
        raise UsageError(f"export: unknown form {form!r}. Forms: {', '.join(FORMS)}.")
    made: bytes = FORMS[form](trace)
    return made


def as_json(trace: Trace) -> bytes:
    """One JSON object: schema, devices, and every view of views.py in order."""
    whole: View = {
        "schema": SCHEMA,
        "cut_bytes": trace.cut_bytes,
        "devices": [
            {
                "key": d.key,
                "name": d.name,
                "kind": d.kind,
                "arch": d.arch,
                "process": d.process,
                "facts": d.facts,
            }
            for d in trace.devices
        ],
        "records": list(views(trace)),
    }
    return (json.dumps(whole, default=str, indent=1) + "\n").encode()


def as_csv(trace: Trace) -> bytes:
    """A row for each command, those of graphs included."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for submission in trace.submissions:
        memory = submission.memory()
        times = [
            seconds(trace, t) for t in (submission.time_ns, submission.started_ns, submission.finished_ns)
        ]
        for index, command in enumerate(submission.all_commands()):
            grid: list[Any] = command.get("grid") or ["", "", ""]
            text = command_view(submission, memory, command)["text"]
            table.writerow(
                [submission.device.key, submission.queue, submission.value, index, command["verb"],
                 command.get("kernel", ""), *grid, command.get("size_bytes", ""),
                 *("" if t is None else f"{t:.9f}" for t in times), submission.site, text]
            )  # fmt: skip
    return out.getvalue().encode("utf-8", "replace")


FORMS = {"perfetto": perfetto.encode, "json": as_json, "csv": as_csv}
