"""Toolchain: what plans on disk depend on besides what they compute.

In       the name of a device
Out      a digest of its target and of this package's own source: editing a file retires every stored plan
Changes  nothing; it is remembered until a device of that name is closed
Next     plan.py (who puts it into the name of a plan), compiler/compile.py (the same for kernels)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hcq.frontend.core import device as devices


@cache
def toolchain(device: str) -> str:
    """What a plan depends on besides its structure: the target, and this package's own source."""
    import hashlib

    root = Path(__file__).resolve().parent.parent.parent
    words = [devices.target(device).key]
    for folder in ("ir", "compiler", "frontend"):
        words += _source_files(f"{root}{os.sep}{folder}", folder)
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def _source_files(place: str, name: str) -> Iterator[str]:
    """A line for each source file of a folder and of those in it: its name there, its size, when it was changed.

    The first result of a process waits for this: strings, for paths as objects take five times as long.
    """
    with os.scandir(place) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _source_files(entry.path, f"{name}/{entry.name}")
        elif entry.name.endswith(".py"):
            about = entry.stat()
            # the time of the last change of anything, too: some installers give all files one time of change
            yield f"{name}/{entry.name} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}"
