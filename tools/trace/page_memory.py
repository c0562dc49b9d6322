"""Page memory: the buffers of a trace for the local page: where they lie, what they are called, what touched them.

In       a Trace; how the page counts time
Out      dictionaries for JSON: columns of buffers and mappings, the uses of one, those that a text finds
Changes  nothing; what was worked out once is kept
Next     page_data.py (who hands it on), touches.py (what a use is), page/memory.js and page/buffer.js (who draw it)
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from hcq.errors import UsageError
from hcq.tools.trace.touches import Touches, touches
from hcq.tools.trace.views import device_of
from hcq.trace.file import Submission, Trace
from hcq.trace.records import Kind

Json = dict[str, Any]
MAX_SPANS = 300_000  # buffers and mappings on the memory map; beyond that the smallest are left out
MAX_FOUND = 20  # buffers in one search
MAX_WITH_USES = 3  # of these, so many with their uses
MAX_USES = 8  # of each of these
MAX_SCANNED = 5_000  # submissions looked through for the users of one buffer
MAX_TOUCHES = 5_000  # uses of one buffer in one answer
MAX_LOOKED_AT = 100_000  # submissions looked through for these


class PageMemory:
    """The buffers of one trace. `ns` says a time of the file as the page counts it."""

    def __init__(self, trace: Trace, ns: Callable[[int | None], int | None]) -> None:
        self.trace = trace
        self._ns = ns

    @cached_property
    def spans(self) -> Json:
        """Every buffer and mapping: where, how large, from when to when. The page's memory map and list."""
        rows: list[list[Any]] = []
        open_: dict[tuple[int, int, str, int], int] = {}
        devices: dict[tuple[int, int], int] = {}
        names: dict[str, int] = {}
        numbers = {device.key: index for index, device in enumerate(self.trace.devices)}
        for record in self.trace.records:
            fields = record.fields
            if record.kind == Kind.DEVICE:
                device = device_of(self.trace, record)
                devices[record.process, fields["device"]] = numbers[device.key] if device else 0
            if record.kind not in (Kind.ALLOC, Kind.FREE, Kind.MAP, Kind.UNMAP):
                continue
            sort = "buffer" if record.kind in (Kind.ALLOC, Kind.FREE) else "mapping"
            key = (record.process, fields["device"], sort, fields["va"])
            before = open_.pop(key, None)
            if before is not None:
                rows[before][5:8:2] = self._ns(record.time_ns), record.index
            if record.kind in (Kind.ALLOC, Kind.MAP):
                name = fields.get("name")
                text = self.trace.string(record.process, name) if isinstance(name, int) else str(name or "")
                text = self.trace.renamed.get(record.index, text)
                open_[key] = len(rows)
                rows.append([
                    fields["va"],
                    fields["size_bytes"],
                    names.setdefault(text, len(names)),
                    int(sort == "mapping"),
                    self._ns(record.time_ns),
                    None,
                    record.index,
                    None,
                    devices[record.process, fields["device"]],
                ])  # fmt: skip
        left_out = max(0, len(rows) - MAX_SPANS)
        if left_out:
            smallest = sorted(row[1] for row in rows)[left_out]
            rows = [row for row in rows if row[1] >= smallest][:MAX_SPANS]
        names_of = ("va", "size", "name", "mapping", "from", "until", "record", "until_record", "device")
        return {"spans": columns(names_of, rows), "names": list(names), "left_out": left_out}

    def users(self, span: int) -> Json:
        """The submissions that name an address inside a buffer while it lives."""
        seen = self._touched(span, MAX_SCANNED, MAX_SCANNED)
        return {
            "submissions": list(dict.fromkeys(one.number for one in seen.found)),
            "complete": seen.is_complete,
        }

    def touches(self, span: int) -> Json:
        """Everything that read or wrote a buffer while it lived, in order, as columns."""
        row, seen = self._row(span), self._touched(span, MAX_TOUCHES, MAX_LOOKED_AT)
        device = self.trace.devices[row["device"]]
        names = ("number", "outer", "inner", "verb", "kernel", "role", "access", "offset")
        return {
            "buffer": {
                "span": span,
                "name": self.spans["names"][row["name"]] or f"buffer@{row['va']:x}",
                "va": row["va"],
                "size_bytes": row["size"],
                "from": row["from"],
                "until": row["until"],
                "device": device.key,
            },
            "touches": columns(names, seen.found),
            "scanned": seen.scanned,
            "complete": seen.is_complete,
        }

    def _touched(self, span: int, most: int, most_scanned: int) -> Touches:
        row = self._row(span)
        last = len(self.trace.records) if row["until_record"] is None else row["until_record"]
        process = self.trace.devices[row["device"]].process
        life = (row["record"], last)
        return touches(self.trace, process, row["va"], row["size"], life, most, most_scanned)

    def _row(self, span: int) -> Json:
        spans = self.spans["spans"]
        if not 0 <= span < len(spans["va"]):
            raise UsageError(f"buffer {span}: the trace holds {len(spans['va'])}, from 0 on.")
        return {name: column[span] for name, column in spans.items()}

    def span_at(self, made: Submission, va: int) -> int | None:
        """The buffer that began at an address when a submission was made; None where none did."""
        process = made.device.process
        since = self._starts.get((process, va), [])
        at = bisect.bisect_right(since, made.record, key=lambda one: one[0]) - 1
        return since[at][1] if at >= 0 else None

    @cached_property
    def _starts(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        spans, found = self.spans["spans"], dict[tuple[int, int], list[tuple[int, int]]]()
        for span, (va, device, record) in enumerate(zip(spans["va"], spans["device"], spans["record"])):
            if not spans["mapping"][span]:
                found.setdefault((self.trace.devices[device].process, va), []).append((record, span))
        return found

    def found(self, wanted: str) -> list[Json]:
        """Buffers by a part of their name or an address in them, the first of them with their first uses."""
        rows: list[Json] = []
        # that name itself first
        buffers = sorted(self.called(wanted), key=lambda row: row["text"].lower() != wanted)
        for at, row in enumerate(buffers):
            rows.append(row)
            if at < MAX_WITH_USES:
                seen = self._touched(row["number"], MAX_USES, MAX_SCANNED)
                rows += [{"sort": "use", **one._asdict()} for one in seen.found]
        return rows

    def called(self, wanted: str) -> list[Json]:
        """Buffers whose name has a text in it, or that hold an address."""
        spans, names = self.spans["spans"], self.spans["names"]
        try:
            address = int(wanted, 16) if wanted.startswith("0x") and len(wanted) > 4 else -1
        except ValueError:
            address = -1
        named = {number for number, name in enumerate(names) if name and wanted in name.lower()}
        found: dict[tuple[Any, ...], Json] = {}
        for span, (va, size, name) in enumerate(zip(spans["va"], spans["size"], spans["name"])):
            if spans["mapping"][span]:
                continue  # it is named after the first buffer in it
            if name not in named and not va <= address < va + size and wanted not in f"buffer@{va:x}":
                continue
            key = (va, size, name, spans["device"][span])
            if key not in found and len(found) < MAX_FOUND:
                label = names[name] or f"buffer@{va:x}"
                note = f"{size} bytes at {va:#x}"
                found[key] = {"sort": "buffer", "number": span, "text": label, "note": note}
        return list(found.values())


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Json:
    """Rows as a column for each name."""
    columns = list(zip(*rows)) or [()] * len(names)
    return dict(zip(names, columns))
