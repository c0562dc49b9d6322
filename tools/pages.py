"""Generated pages: what the documentation repeats of the source, written from it (`make docs`), checked by `make lint`.

In       the generators of GENERATORS, which write whole pages, and of PARTS; the pages as they are now
Out      docs/, only files whose text differs
Changes  those files; pages in a generator's folder that it does not make are removed
Next     packet_pages.py, rule_pages.py, module_pages.py, onnx_page.py (whole pages), ptx_page.py, amd_ways_page.py,
         refused_page.py, abi_page.py, upward_page.py (parts)

    python tools/pages.py            write the pages
    python tools/pages.py --check    write nothing; say which pages are old, and exit with 1
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hcq.tools import (
    abi_page,
    amd_ways_page,
    module_pages,
    onnx_page,
    packet_pages,
    ptx_page,
    refused_page,
    rule_pages,
    upward_page,
)

DOCS = Path(__file__).resolve().parent.parent / "docs"


class Generator(NamedTuple):
    """One writer of pages.

    pages   the documentation's folder -> file name in it -> text
    folder  where all pages are its own; empty where it has single files among others
    """

    pages: Callable[[Path], dict[str, str]]
    folder: str = ""


GENERATORS = (
    Generator(packet_pages.pages, "packets"),
    Generator(rule_pages.pages, "rules"),
    Generator(module_pages.pages),
    Generator(onnx_page.pages),
)


class Part(NamedTuple):
    """What stands between two comments of a page that is prose elsewhere. A page may have several parts."""

    page: str
    mark: str
    text: Callable[[], str]

    def renewed(self, before: str | None) -> str:
        """The page with this part written anew. One that has no such comments gets them at its end."""
        begin, end = f"<!-- {self.mark}: written by make docs -->", f"<!-- end of {self.mark} -->"
        start, _, rest = (before or "").partition(begin)
        _, closed, after = rest.partition(end)
        if not closed:
            start, after = f"{before.rstrip()}\n\n" if before else "", "\n"
        return f"{start}{begin}\n\n{self.text()}\n\n{end}{after}"


PARTS = (
    Part("abi.md", "history", abi_page.histories),
    Part("architecture.md", "upward references", upward_page.references),
    Part("emulated-amd.md", "instructions", amd_ways_page.lists),
    Part("emulated-amd.md", "refused", refused_page.table),
    Part("emulated-ptx.md", "tables", ptx_page.tables),
)


def main(argv: Sequence[str] | None = None, docs: Path = DOCS) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(prog="pages", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a page is old")
    options = parser.parse_args(argv)
    wanted, gone = survey(docs)
    old = {name: text for name, text in wanted.items() if read(docs / name) != text}
    if options.check:
        for name in (*old, *gone):
            print(f"docs/{name} is not what the source says: run make docs")
        return 1 if old or gone else 0
    for name, text in old.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")
    for name in gone:
        (docs / name).unlink()
        print(f"removed docs/{name}: nothing declares it any more")
    return 0


def survey(docs: Path = DOCS) -> tuple[dict[str, str], list[str]]:
    """The pages that there should be, and those that there are and should not be. Names are relative to docs/."""
    wanted: dict[str, str] = {}
    there: set[str] = set()
    for generator in GENERATORS:
        wanted.update(generator.pages(docs))
        if generator.folder:
            there |= {f"{generator.folder}/{path.name}" for path in (docs / generator.folder).glob("*.md")}
    for part in PARTS:
        wanted[part.page] = part.renewed(wanted.get(part.page, read(docs / part.page)))
    return wanted, sorted(there - wanted.keys())


def read(path: Path) -> str | None:
    """A page as it is now; None when there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
