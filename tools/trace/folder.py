"""A folder of logs as one text: every file below a title, so that one reader goes through all of them.

In       a path
Out      the joined text; None for a path that is no folder
Next     radv/report.py (who reads the joined text)
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from hcq.errors import UsageError
from hcq.tools.trace import unpack

HEAD = b"========== folder "
MOST_FILES = 500
MOST_DEPTH = 3  # folders in folders
MOST_FOLDERS = 200
MOST_ENTRIES = 10_000  # of one folder
SHOWN_DEEPER = 8
MOST_BYTES = 64 << 20  # of all files
MOST_FILE_BYTES = 32 << 20
BINARY_HEAD = 4096  # bytes of a file that are searched for a NUL


def content(path: str) -> bytes | None:
    """All text files of a folder and of those in it, by name, within bounds. Raises UsageError for an empty folder."""
    folder = Path(path)
    if not folder.is_dir():
        return None
    try:
        files, deeper = _files(folder)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None
    if not files:
        raise UsageError(
            f"{path}: a folder without files. Give the folder that RADV_DEBUG=hang made, or a file."
        )
    whole = bytearray(HEAD + folder.name.encode("utf-8", "replace") + b" ==========\n")
    for number, file in enumerate(files):
        name = str(file.relative_to(folder)).encode("utf-8", "replace")
        if number == MOST_FILES or len(whole) >= MOST_BYTES:
            whole += b"\n========== (left out) ==========\n%d more files\n" % (len(files) - number)
            break
        whole += b"\n========== " + name.replace(b"\n", b" ") + b" ==========\n"
        whole += _text_of(file, MOST_BYTES - len(whole))
    if deeper:
        whole += b"\n========== (left out) ==========\nfolders that are not looked into: "
        whole += b", ".join(name.encode("utf-8", "replace").replace(b"\n", b" ") for name in deeper) + b"\n"
    return bytes(whole)


def _files(folder: Path) -> tuple[list[Path], list[str]]:
    """The files, by name, and the folders that are too deep. Links are not followed: they could lead anywhere."""
    found: list[Path] = []
    deeper: list[str] = []
    folders = [(folder, 0)]
    for inner, depth in folders:
        with os.scandir(inner) as entries:
            for entry in islice(entries, MOST_ENTRIES):
                if entry.is_file(follow_symlinks=False):
                    found.append(Path(entry.path))
                elif not entry.is_dir(follow_symlinks=False):
                    continue
                elif depth < MOST_DEPTH and len(folders) < MOST_FOLDERS:
                    folders.append((Path(entry.path), depth + 1))
                elif len(deeper) < SHOWN_DEEPER:
                    deeper.append(str(Path(entry.path).relative_to(folder)))
    return sorted(found), sorted(deeper)


def _text_of(file: Path, most: int) -> bytes:
    try:
        with file.open("rb") as opened:
            found = unpack.unpacked(opened.read(max(0, min(most, MOST_FILE_BYTES))))
        size = file.stat().st_size
    except OSError as error:
        return b"(cannot be read: %s)\n" % str(error.strerror).encode()
    if b"\0" in found[:BINARY_HEAD]:
        return b"(binary, %d bytes)\n" % size
    cut = b"\n(cut: the file has %d bytes)\n" % size if size > MOST_FILE_BYTES else b""
    return found[: max(0, most)] + cut
