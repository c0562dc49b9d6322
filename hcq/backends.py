"""Backends: the registry of the kinds of devices (CPU, AMD, NV, METAL, ...), with one entry for each.

In       a device name such as "AMD:1", in any case
Out      its Backend
Changes  nothing; the modules of a backend are imported at first use
Next     backend.py (the fields of an entry), cpu/backend.py (the smallest one), hcq/lifetime/opening.py (opening),
         trace/file.py (decoding), rules/ (checking)

To add a kind of device, write a folder with a backend.py, and add one line to PLACES. Another package can provide one:
it declares an entry point in its pyproject.toml:

    [project.entry-points."hcq.backends"]
    TOY = "toy.backend:BACKEND"
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hcq.backend import Backend as Backend
from hcq.backend import load as load
from hcq.errors import DriverError, UsageError
from hcq.system.port import Port

if TYPE_CHECKING:
    from hcq.system.ioctl_pointers import Declared

DIAGNOSTICS = "hcq.observe"  # who watches devices, and explains what went wrong with them
PLACES: dict[str, str] = {
    "CPU": "hcq.cpu.backend:BACKEND",
    "AMD": "hcq.amd.backend:BACKEND",
    "NV": "hcq.nv.backend:BACKEND",
    "METAL": "hcq.metal.backend:BACKEND",
}
ENTRY_POINTS = "hcq.backends"
EMULATED_PORT = "hcq.emu.port:port_for"


def find(device: str) -> Backend | None:
    """The backend of a device name; None when there is none. Raises DriverError when its package cannot be imported."""
    name = device.partition(":")[0].upper()
    place = PLACES.get(name) or _installed().get(name)
    return None if place is None else _entry(name, place)


@functools.cache
def _entry(name: str, place: str) -> Backend:
    try:
        found: Backend = load(place)
    except (ImportError, AttributeError) as error:
        raise DriverError(
            f"{name}: its backend {place} cannot be imported ({error}). Install its package again, or remove it."
        ) from error
    return found


def of(device: str) -> Backend:
    """The backend of a device name. Raises UsageError listing the known ones.

    >>> of("amd:1").name
    'AMD'
    """
    found = find(device)
    if found is None:
        raise UsageError(f"{device!r}: unknown kind of device. Known: {', '.join(names())}.")
    return found


def pointers_of(device: str) -> Declared:
    """What the calls of a device's kernel driver point to; nothing, where its backend does not say."""
    backend = find(device)
    found: Declared = load(backend.pointers) if backend is not None and backend.pointers else _no_pointers
    return found


def _no_pointers(request: int, argument: bytes) -> tuple[()]:
    return ()


def names() -> list[str]:
    """The kinds of devices there are, those of other installed packages last."""
    return list(dict.fromkeys([*PLACES, *_installed()]))


def every() -> Iterator[Backend]:
    """Every backend there is."""
    return (found for name in names() if (found := find(name)) is not None)


def emulated(words: Sequence[str]) -> set[str]:
    """Of which kinds words of HCQ_EMULATE make devices appear. Raises UsageError for one that names no emulation.

    >>> emulated(["amd:gfx1100", "amd:gfx942"])
    {'AMD'}
    """
    found = set()
    for word in words:
        backend = find(word)
        if backend is None or not backend.emulation:
            known = [one.name.lower() for one in every() if one.emulation]
            raise UsageError(
                f"HCQ_EMULATE={','.join(words)}: no emulator for {word!r}. "
                f"Words start with {' or '.join(f'{name}:' for name in known)}, as in amd:gfx1100."
            )
        found.add(backend.name)
    return found


def emulated_port(words: Sequence[str]) -> Port:
    """The operating system with the devices of these words, one for all devices of the process."""
    made: Port = load(EMULATED_PORT)(tuple(words))  # only those who emulate pay for it
    return made


def register(name: str, place: str) -> None:
    """Add a kind of device to this process; `place` is the "module:attribute" of its Backend.

    Raises  UsageError for a name that is taken, or that is no name
    """
    key = name.upper()
    if not key.isidentifier():
        raise UsageError(f"register({name!r}): a kind of device is one word, such as TOY.")
    if PLACES.setdefault(key, place) != place:
        raise UsageError(f"register({name!r}): this is {PLACES[key]} already. Choose another name.")


@functools.cache
def _installed() -> dict[str, str]:
    """What other packages of this environment add: name -> place."""
    from importlib import metadata  # only for names that are not ours, and for lists of all

    return {entry.name.upper(): entry.value for entry in metadata.entry_points(group=ENTRY_POINTS)}
