"""One file of hw_check that can be carried to a machine with a GPU: it needs Python 3.10 or later, and nothing else.

In       the checkout
Out      build/hw_check.pyz, under 5 MB: the package as it is installed, with kernels, and a few lines that unpack it
Changes  that file; run, it unpacks into a temporary folder, which goes when the check has ended
Next     hw_check.py (the program in it), docs/hardware.md (what to do with it), Makefile (`make hw-check`)

Unpacked, because kernels are read as files, and each check is a process of its own that imports from a folder. The same
checkout makes the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOPS = (
    "hcq",
    "ir",
    "compiler",
    "frontend",
    "tools",
)  # all but the first are folders in it when they are installed
LIMIT_BYTES = 5_000_000
WHEN = (1980, 1, 1, 0, 0, 0)
# what no check needs: pictures and pages of other programs, and what needs packages that are not here
WITHOUT = (
    "hcq/tools/trace/page/",
    "hcq/tools/reference_pages/",
    "hcq/tools/bench/",
    "hcq/tools/conformance/",
)
START = """\
import os
import shutil
import signal
import sys
import tempfile
import zipfile


def main():
    if sys.version_info < (3, 10):
        print("hw_check: Python %d.%d runs this, and 3.10 or later is needed: python3.12 %s" % (
            sys.version_info[0], sys.version_info[1], sys.argv[0]), file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *what: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="hw_check-")
    try:
        with zipfile.ZipFile(__loader__.archive) as archive:
            archive.extractall(folder)
        sys.path.insert(0, folder)
        from hcq.tools import hw_check

        return hw_check.main()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os._exit(0)
"""


def files() -> Iterator[tuple[str, Path]]:
    """Each file of the package as it is installed: its name there, and where it is now."""
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            name = name if top == "hcq" else f"hcq/{name}"
            if path.is_file() and path.parent.name != "__pycache__" and not name.startswith(WITHOUT):
                yield name, path


def make(target: Path) -> int:
    """Write the file. Returns its size in bytes. Raises ValueError when it is too large to be carried."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f"{target.name}.new")
    with beside.open("wb") as out:
        out.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in (("__main__.py", START.encode()), *((n, p.read_bytes()) for n, p in files())):
                archive.writestr(zipfile.ZipInfo(name, WHEN), data, zipfile.ZIP_DEFLATED, 9)
    size = beside.stat().st_size
    if size > LIMIT_BYTES:
        beside.unlink()
        raise ValueError(f"{target}: {size} bytes, of {LIMIT_BYTES}. Leave more out (WITHOUT).")
    beside.chmod(0o755)
    beside.replace(target)
    return size


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status."""
    made = argparse.ArgumentParser(prog="hw_check_file", description="Put hw_check into one file.")
    made.add_argument("target", nargs="?", default="build/hw_check.pyz", help="default build/hw_check.pyz")
    target = Path(made.parse_args(argv).target)
    if not (ROOT / "setup.py").exists():
        print(f"hw_check_file: {ROOT} is no checkout of hcq, and the file is made from one.", file=sys.stderr)
        return 2
    size = make(target)
    print(f"wrote {target} ({size / 1e6:.1f} MB): on a machine with a GPU, python3 {target.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
