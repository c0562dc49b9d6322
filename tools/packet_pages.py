"""Packet pages: docs/packets/*.md, written from the very classes that encode and decode (`make docs`).

In       hcq.backends (which modules declare which layouts) and hcq.trace.records
Out      one page for each kind of device: packets, registers, structures, ioctls, each with its bits; one for traces
Next     pages.py (writes and checks them), hcq/layout.py (what a declaration can say)
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

from hcq import backends
from hcq.backends import Backend
from hcq.layout import Ioctl, Packet, declared_in
from hcq.trace import records

NOTE = "Written by `make docs` from the declarations in the source; change those, not this page."


def pages(docs: Path) -> dict[str, str]:
    """File name -> text, for every page there should be."""
    found = {f"{one.name.lower()}.md": backend_page(one) for one in backends.every() if one.layouts}
    found["trace.md"] = trace_page()
    found["README.md"] = index(found)
    return {f"packets/{name}": text for name, text in found.items()}


def index(found: dict[str, str]) -> str:
    """The list of the pages."""
    rows = [f"- [{name}]({name}): {text.splitlines()[0].removeprefix('# ')}" for name, text in found.items()]
    how = (
        "Words are 32 bits, little endian. Bits are numbered over the whole packet, high bit first: bit 32 is bit 0 of "
        "word 1.\nA field counts in its unit: an address in units of 4 is a multiple of 4. What a decoder finds "
        "in bits that no\nfield claims is shown as unclaimed, never dropped."
    )
    return "\n".join(["# Packets", "", NOTE, "", how, "", *rows, ""])


def backend_page(backend: Backend) -> str:
    """All layouts of one kind of device, module by module, then its ioctls."""
    lines = [f"# {backend.name}: packets, registers and structures", "", NOTE]
    for name in backend.layouts:
        lines += ["", *module_section(name)]
    calls = backend.calls()
    if calls:
        lines += ["", "## Ioctls", "", "| request | name | argument |", "| --- | --- | --- |"]
        lines += [f"| {call.request:#010x} | {call.name} | {_argument(call)} |" for call in calls.values()]
    return "\n".join([*lines, ""])


def trace_page() -> str:
    """The records of a trace file."""
    lines = [
        "# Trace files: every record",
        "",
        NOTE,
        "",
        "See [trace-format.md](../trace-format.md) for the prose.",
    ]
    rows = ["", "## Kinds of records", "", "| number | kind | head |", "| --- | --- | --- |"]
    for kind in records.Kind:
        head = records.HEADS.get(kind)
        rows.append(f"| {kind.value} | {kind.name} | {head.__name__ if head else 'text (JSON)'} |")
    return "\n".join([*lines, *rows, "", *module_section("hcq.trace.records"), ""])


def module_section(name: str) -> Iterator[str]:
    """The layouts of one module, in the order of the source, under its own first line."""
    module = importlib.import_module(name)
    yield f"## `{name.removeprefix('hcq.').replace('.', '/')}.py`"
    yield ""
    yield inspect.cleandoc(module.__doc__ or "").split("\n\n")[0]
    for layout in declared_in(vars(module), Packet):
        if layout.fields:
            yield ""
            yield f"### {layout.__name__}"
            yield ""
            yield inspect.getdoc(layout) or ""
            yield ""
            yield layout.table()


def _argument(call: Ioctl) -> str:
    return f"{call.layout.__name__}, {4 * call.layout.length_words} bytes" if call.layout else "none"
