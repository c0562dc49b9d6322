"""The JSON of every verb keeps its keys, because programs of other people read them.

A key may be added here; none may go. A change of meaning raises `schema` (docs/trace.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hcq.command import Signal, Wait
from tests.tools.trace.making import CELL, Maker

RECORDS = {
    "process": {"process", "pid", "argv", "python", "monotonic_ns", "unix_ns"},
    "device": {"device", "arch", "process", "facts"},
    "code": {"device", "kernel", "entry", "va", "size_bytes", "arguments", "hash"},
    "alloc": {"device", "va", "size_bytes", "name"},
    "free": {"device", "va", "size_bytes", "name"},
    "map": {"device", "va", "size_bytes", "name"},
    "signal": {"device", "signal", "va", "value", "by"},
    "data": {"device", "why", "buffer", "va", "size_bytes"},
    "result": {"device", "submission", "buffer", "va", "size_bytes", "digest"},
    "block": {"device", "label", "va", "size_words"},
    "port": {"device", "call", "arguments", "text"},
    "close": {"device", "submitted"},
    "submission": {
        "number", "submission", "device", "queue", "started", "finished", "site", "thread", "size_words", "kernels",
        "packets", "commands",
    },
}  # fmt: skip
PACKET = {"at", "packet", "fields", "names", "words", "text"}
LINT = {
    "rule", "level", "what", "fix", "device", "queue", "submission", "word", "packet", "kernel", "buffer", "site"
}  # fmt: skip
QUEUE = {
    "device", "queue", "submissions", "commands", "words", "timed", "span_s", "busy_s", "occupancy", "gap_count", "gaps"
}  # fmt: skip
WORK = {"name", "verb", "count", "timed", "total_s", "median_s", "min_s", "bytes"}


def deadlock(path: Path) -> Path:
    made = Maker()
    made.device("CPU")
    made.alloc(CELL, name="gate")
    made.submit(Wait(CELL, 1), Signal(CELL, 1))
    return made.write(path)


def test_the_records_of_show_and_export(trace, capsule):
    seen: dict[str, set[str]] = {}
    for line in trace("show", capsule, "--json", "--memory", "--ioctls").out.splitlines():
        view = json.loads(line)
        missing = {"kind", "record", "seconds", *RECORDS[view["kind"]]} - set(view)
        assert not missing, view
        seen.setdefault(view["kind"], set()).update(view)
        for packet in view.get("packets", ()):
            assert set(packet) >= PACKET
        for command in view.get("commands", ()):
            assert set(command) >= {"verb", "text"}
    assert set(seen) == set(RECORDS) - {"free"}  # nothing was freed before the device closed
    whole = json.loads(trace("export", capsule, "--json").out)
    assert set(whole) == {"schema", "cut_bytes", "devices", "records"}
    assert whole["schema"] == 1
    assert {record["kind"] for record in whole["records"]} == set(seen)


def keys(found: Any) -> set[str]:
    return set(found)


def test_the_other_verbs(trace, capsule, tmp_path):
    stuck = deadlock(tmp_path / "stuck")

    def read(*arguments: object) -> Any:
        return json.loads(trace(*arguments, "--json").out)

    stats = read("stats", capsule)
    assert keys(stats) >= {"devices", "submissions", "work", "buffers"}
    assert keys(stats["devices"][0]) >= QUEUE
    assert keys(stats["work"][0]) >= WORK
    assert keys(stats["buffers"]) >= {"peak_bytes", "peak_count"}
    graph = read("graph", stuck)
    assert keys(graph) >= {"submissions", "waits", "stuck"}
    assert keys(graph["waits"][0]) >= {"device", "submission", "signal", "value", "by"}
    assert keys(graph["stuck"][0]) >= {"wait", "why", "cycle"}
    assert all(keys(one) >= LINT for one in read("lint", stuck)) and read("lint", stuck)
    assert keys(read("diff", capsule, stuck)) >= {
        "same", "submissions", "commands", "kernels", "notes", "differences"
    }  # fmt: skip
    assert keys(read("diff", capsule, stuck)["differences"][0]) >= {"device", "what", "a", "b"}
    assert keys(read("replay", capsule)) >= {
        "same", "submissions", "commands", "compared", "compared_bytes", "given", "given_bytes", "unchecked",
        "unchecked_bytes", "failure", "differing", "mismatches",
    }  # fmt: skip
    disasm = read("disasm", capsule, "mixed")
    assert keys(disasm) >= {"kernel", "entry", "arch", "va", "instructions"}
    assert keys(disasm["instructions"][0]) >= {"offset", "raw", "text", "label", "target", "source"}


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_the_keys_of_a_submission_and_the_kinds_are_on_the_page(kind):
    page = (Path(__file__).parents[3] / "docs" / "trace.md").read_text(encoding="utf-8")
    assert f"`{kind}`" in page
    if kind == "submission":
        assert [key for key in RECORDS[kind] | PACKET if f"`{key}`" not in page] == []
