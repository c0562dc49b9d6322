"""Call site: the line of the user's program that made a call, for traces, reports and errors.

In       the call stack at a submission or a wait
Out      `site()`: a pair that is cheap to take and to keep; `where(site)`: the same as text
Changes  nothing; what it keeps are code objects, never frames, so no buffer lives longer for it
Next     observe/ledger.py (keeps sites beside submissions), observe/report.py and observe/trace.py (print them)

Looking at the stack costs a quarter of a microsecond or more. That is too much for every launch, which takes three. So
a submission has its line while the program is young, traced or validated, and whenever it does more than launch
kernels. Later one launch in EVERY has its line, which is enough to find the loop. Every program also knows the line
that first dispatched it.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

Site = tuple[CodeType, int] | None  # a function and the offset of the instruction in it

EVERY = 32  # a power of two
_frame = sys._getframe


class _Ours(dict[str, bool]):
    """Source file -> whether it is part of this package or of Python's own way to start a program (`python -m`).

    Asked once for each file, then a plain look-up.
    """

    def __missing__(self, file: str) -> bool:
        self[file] = found = _is_of_package(file) or _starts_programs(file)
        return found


_ours = _Ours()


def site() -> Site:
    """The innermost line outside this package; its own outermost one when a program of the package runs."""
    frame: FrameType | None = _frame(2)  # not our caller, which is part of this package
    while frame is not None:
        code = frame.f_code
        if not _ours[code.co_filename]:
            return code, frame.f_lasti
        frame = frame.f_back
    return _outermost(_frame(2))


def site_of(frame: FrameType | None) -> Site:
    """The same for a frame of another thread, or one that a signal interrupted: it may be in Python's library."""
    start = frame
    while frame is not None:
        file = frame.f_code.co_filename
        if not _ours[file] and not _is_library(file):
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return _outermost(start)


def _is_of_package(file: str) -> bool:
    """Whether a file is this package's own source, installed as one folder or in the folders of a checkout.

    The tools are not: they are programs that use the package, as a user's program does.
    """
    package = __name__.partition(".")[0]
    for folder in sys.modules[package].__path__:
        if file.startswith(f"{folder}/"):
            part = file[len(folder) + 1 :].partition("/")[0].removesuffix(".py")
            if part != "tools" and (part == "__main__" or f"{package}.{part}" in sys.modules):
                return True
    return False


def _starts_programs(file: str) -> bool:
    """Python's runpy, which is a file or, from 3.11 on, part of the interpreter."""
    return file.startswith("<frozen ") or file == os.path.join(os.path.dirname(os.__file__), "runpy.py")


def _is_library(file: str) -> bool:
    """Whether a file is part of Python's own library; packages that were installed beside it are not."""
    return file.startswith(os.path.dirname(os.__file__)) and "-packages" not in file


def _outermost(frame: FrameType | None) -> Site:
    """Where a program of this package (`python -m hcq doctor`) began what it does now."""
    found = None
    while frame is not None:
        if not _starts_programs(frame.f_code.co_filename):
            found = frame
        frame = frame.f_back
    return None if found is None else (found.f_code, found.f_lasti)


def where(at: Site) -> str:
    """A site as "file.py:12 in function"."""
    if at is None:
        return ""
    code, offset = at
    return f"{code.co_filename}:{line_of(code, offset)} in {code.co_name}"


def source_line(at: Site) -> str:
    """The text of the line, "" when its file cannot be read."""
    import linecache

    return "" if at is None else linecache.getline(at[0].co_filename, line_of(*at)).strip()


def line_of(code: CodeType, offset: int) -> int:
    """The source line of an instruction."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno
