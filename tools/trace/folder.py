"""A folder of logs as one text: every file below a title, so that one reader goes through all of them.

In       a path
Out      the joined text; None for a path that is no folder
Changes  nothing
Next     radv/report.py (who reads the joined text)
"""

from __future__ import annotations

from pathlib import Path

from hcq.errors import UsageError
from hcq.tools.trace import unpack

HEAD = b"========== folder "
MOST_FILES = 500
MOST_BYTES = 64 << 20  # of all files
MOST_FILE_BYTES = 32 << 20
BINARY_HEAD = 4096  # bytes of a file that are searched for a NUL


def content(path: str) -> bytes | None:
    """All text files of a folder and of the folders in it, by name. Raises UsageError for an empty folder."""
    folder = Path(path)
    if not folder.is_dir():
        return None
    try:
        files = sorted(one for form in ("*", "*/*") for one in folder.glob(form) if _is_plain(one))
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
    return bytes(whole)


def _is_plain(path: Path) -> bool:
    """Whether it is a file itself: a link could lead anywhere."""
    return path.is_file() and not path.is_symlink()


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
