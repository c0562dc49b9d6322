"""Generated pages: what the documentation repeats of the source, written from it (`make docs`), checked by `make lint`.

In       the generators listed in GENERATORS; the pages as they are now
Out      docs/, only files whose text differs
Changes  those files; pages in a generator's folder that it does not make are removed
Next     packet_pages.py, rule_pages.py, module_pages.py, onnx_page.py, ptx_page.py, amd_ways_page.py,
         refused_page.py, abi_page.py, stubs.py, upward_page.py (the generators)

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
    stubs,
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
    Generator(ptx_page.pages),
    Generator(amd_ways_page.pages),
    Generator(refused_page.pages),
    Generator(abi_page.pages),
    Generator(stubs.pages),
    Generator(upward_page.pages),
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
    return wanted, sorted(there - wanted.keys())


def read(path: Path) -> str | None:
    """A page as it is now; None when there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
