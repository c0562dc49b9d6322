"""The archive: the folder as one file that can be sent, never larger than a mail takes.

In       a folder
Out      hw-report.zip beside it, under LIMIT_BYTES; what did not fit is named in it
Changes  the file
Next     ../hw_check.py (makes it last, and when it is interrupted), docs/hardware.md (what it holds)
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

LIMIT_BYTES = 16 << 20
ROOM_BYTES = 256 << 10  # for the directory of names, and the list of what was left out
MAX_FILES = 5_000
# what is put in first, by how the path begins; the rest follows, small files before large ones
FIRST = (
    "report.",
    "ladder.json",
    "facts.json",
    "stderr/",
    "evidence/",
    "watch/",
    "opening.",
    "capture.",
    "reports/",
    "host/",
)


def make(folder: Path, path: Path | None = None, limit_bytes: int = LIMIT_BYTES) -> tuple[Path, list[str]]:
    """The archive and the names of files that did not fit. A file that cannot be read is one of these."""
    path = folder.with_name(f"{folder.name}.zip") if path is None else path
    left = limit_bytes - ROOM_BYTES
    out: list[str] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, name in enumerate(_ordered(folder)):
            try:
                data = (folder / name).read_bytes()
            except OSError as error:
                out.append(f"{name}: {error.strerror}")
                continue
            size = len(zlib.compress(data, 6)) + 200 + 2 * len(name)
            if size > left or number >= MAX_FILES:
                out.append(f"{name}: {len(data)} bytes")
                continue
            left -= size
            archive.writestr(f"{folder.name}/{name}", data, compresslevel=6)
        if out:
            archive.writestr(f"{folder.name}/left-out.txt", "\n".join(out)[: ROOM_BYTES // 4] + "\n")
    return path, out


def _ordered(folder: Path) -> Iterator[str]:
    def weight(path: Path) -> tuple[int, int, str]:
        name = path.relative_to(folder).as_posix()
        rank = next((number for number, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))
        return rank, path.stat().st_size, name

    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return (path.relative_to(folder).as_posix() for path in sorted(files, key=weight))
