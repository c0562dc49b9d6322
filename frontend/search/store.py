"""Store: the file of search results that this process reads and adds to.

In       HCQ_SEARCH_RESULTS, or the cache folder; results
Out      the results that are there
Changes  the file, whole or not at all; two processes that add to it at once both keep what they found
Next     ../../compiler/search/results.py (what a line says), hcq/system/private_files.py (whose files in the cache
         are read)
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from hcq import config
from hcq.compiler.search.results import Place, Result, merge, parse, text_of, union
from hcq.frontend.core.errors import UsageError
from hcq.system import private_files
from hcq.system.atomic_files import replaced

FOLDER, NAME = "search", "results.txt"
MAX_BYTES = 64 << 20

_said: set[str] = set()


def is_wanted() -> bool:
    """Whether kernels may get schedules from anywhere but the heuristic."""
    settings = config.current()
    return settings.search > 0 or settings.search_results is not None


def path() -> Path:
    """The file: the one that HCQ_SEARCH_RESULTS names, else one in the cache folder."""
    settings = config.current()
    return settings.search_results or settings.cache_dir / FOLDER / NAME


def known() -> dict[Place, Result]:
    """What is in the file. Raises UsageError for a file that HCQ_SEARCH_RESULTS names and that is none of results."""
    return _parsed(_text())


def digest() -> str:
    """What plans depend on: the results there are. "" where nobody wants any."""
    if not is_wanted():
        return ""
    words = f"{config.current().search}\n{_text()}"
    return "-" + hashlib.sha256(words.encode()).hexdigest()[:16]


def add(found: Result) -> None:
    """Put a result into the file. Where that cannot be written, a warning says so and nothing else happens."""
    settings = config.current()
    try:
        if settings.search_results is not None:
            with _locked(settings.search_results.parent):
                write_file(settings.search_results, merge(_parsed(_text()), union([found])))
            return
        root = private_files.open_folder(settings.cache_dir, make=True)
        try:
            folder = private_files.open_inner(root, FOLDER, make=True)
        finally:
            os.close(root)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            text = text_of(merge(_parsed(_text()), union([found])))
            private_files.write(folder, NAME, lambda file: file.write(text.encode()))
        finally:
            os.close(folder)
    except (OSError, private_files.Unsafe) as problem:
        say(f"hcq: warning: what a search found is not kept in {path()}: {problem}")


def read_file(where: Path) -> dict[Place, Result]:
    """The results in a file that a person named. Raises UsageError for one that cannot be read, or is damaged."""
    try:
        if where.stat().st_size > MAX_BYTES:
            raise UsageError(f"{where} is larger than {MAX_BYTES} bytes: no file of search results.")
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{where}: no search results can be read there: {problem}.") from problem
    found, problems = parse(text)
    if problems:
        more = f" ({len(problems) - 1} more lines like it)" if len(problems) > 1 else ""
        raise UsageError(f"{where}, {problems[0]}{more}. Remove the line.")
    return found


def write_file(where: Path, found: dict[Place, Result]) -> None:
    """Write a file that a person named, whole or not at all. Raises OSError."""
    with replaced(where) as file:
        file.write(text_of(found).encode())


def say(text: str) -> None:
    """A line on stderr, once."""
    if text not in _said and len(_said) < 64:
        _said.add(text)
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr)


def _text() -> str:
    settings = config.current()
    named = settings.search_results
    if named is not None:
        if not named.exists() and settings.search:
            return ""  # to be made
        return text_of(read_file(named))
    try:
        root = private_files.open_folder(settings.cache_dir)
        try:
            folder = private_files.open_inner(root, FOLDER)
        finally:
            os.close(root)
        try:
            return private_files.read(folder, NAME, MAX_BYTES).decode(errors="replace")
        finally:
            os.close(folder)
    except private_files.Unsafe as problem:
        say(f"hcq: warning: search results in {settings.cache_dir} are not used: {problem}")
    except OSError:
        pass  # there are none yet
    return ""


def _parsed(text: str) -> dict[Place, Result]:
    found, problems = parse(text)
    if problems:
        say(f"hcq: warning: {path()}, {problems[0]}. Such lines are left out ({len(problems)} of them).")
    return found


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Nobody else changes files of results in a folder meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
