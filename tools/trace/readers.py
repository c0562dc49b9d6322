"""Readers: what `hcq-trace decode` recognises by itself, one line for each kind of pasted material.

In       the bytes of a file, and what the command line says about them
Out      a `Reading`, as text or as data; None where no reader knows it, and it is a log of ioctls, perhaps
Changes  nothing
Next     kernel_log/ (kernel logs), decode.py (logs of ioctls, NVIDIA's words)

A new kind of material is a line in READERS: what tells it from all others, and who reads it. The first that recognises
a file has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hcq.tools.trace import kernel_log
from hcq.tools.trace.color import Color


class Wanted(NamedTuple):
    """What the command line says: the form of words, the chip; empty where it says nothing."""

    form: str = ""
    chip: str = ""


class Reading(NamedTuple):
    """What a file holds: lines for people, objects for programs."""

    lines: Callable[[Color], Iterator[str]]
    as_json: Callable[[], Any]
    has_calls: bool = False  # a log of ioctls may stand between what was read


class Reader(NamedTuple):
    """One kind of material: whether a file is it, and what it says."""

    name: str
    recognises: Callable[[bytes, Wanted], bool]
    read: Callable[[bytes, Wanted], Reading]


def find(content: bytes, wanted: Wanted) -> Reading | None:
    """What the first reader that recognises the file makes of it; None for a file that none does."""
    for reader in READERS:
        if reader.recognises(content, wanted):
            return reader.read(content, wanted)
    return None


# ------------------------------------------------------------ kernel logs


def _is_kernel_log(content: bytes, wanted: Wanted) -> bool:
    return not wanted.form and kernel_log.recognises(content)


def _read_kernel_log(content: bytes, wanted: Wanted) -> Reading:
    found = kernel_log.events(content.decode("utf-8", "replace").split("\n"))
    return Reading(
        lambda color: kernel_log.lines(found, color), lambda: kernel_log.json(found), b"ioctl" in content
    )


READERS: tuple[Reader, ...] = (Reader("kernel log", _is_kernel_log, _read_kernel_log),)
