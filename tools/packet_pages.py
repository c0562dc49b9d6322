"""Packet pages: docs/packets/*.md, written from the very classes that encode and decode (`make docs`).

In       hcq.backends (which modules declare which layouts) and hcq.trace.records
Out      one page for each kind of device: packets, registers, structures, ioctls, each with its bits; one for traces
Changes  docs/packets/, only files whose text differs
Next     hcq/layout.py (what a declaration can say), tests/tools/test_packet_pages.py (pages are as the classes are)

    python tools/packet_pages.py            write the pages
    python tools/packet_pages.py --check    write nothing; say which pages are old, and exit with 1
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hcq import backends
from hcq.backends import Backend
from hcq.layout import Ioctl, Packet, declared_in
from hcq.trace import records

PAGES = Path(__file__).resolve().parent.parent / "docs" / "packets"
NOTE = "Written by `make docs` from the declarations in the source; change those, not this page."


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="packet_pages", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a page is old")
    options = parser.parse_args(argv)
    wanted = pages()
    old = [name for name, text in wanted.items() if read(name) != text]
    gone = [path for path in sorted(PAGES.glob("*.md")) if path.name not in wanted]
    if options.check:
        for name in [*old, *(path.name for path in gone)]:
            print(f"docs/packets/{name} is not what the declarations say: run make docs")
        return 1 if old or gone else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    for name in old:
        (PAGES / name).write_text(wanted[name], encoding="utf-8")
        print(f"wrote docs/packets/{name}")
    for path in gone:
        path.unlink()
        print(f"removed docs/packets/{path.name}: nothing declares it any more")
    return 0


def read(name: str) -> str | None:
    """A page as it is now; None when there is none."""
    path = PAGES / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def pages() -> dict[str, str]:
    """File name -> text, for every page there should be."""
    found = {f"{one.name.lower()}.md": backend_page(one) for one in backends.every() if one.layouts}
    found["trace.md"] = trace_page()
    found["README.md"] = index(found)
    return found


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


if __name__ == "__main__":
    sys.exit(main())
