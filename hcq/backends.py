"""Backends: for each kind of device, the one entry with everything that differs from kind to kind. The registry.

In       a device name such as "AMD:1", in any case
Out      its Backend: driver, decoder, layouts, ioctls, rules, compiler target, disassembler, doctor's checks, emulation
Changes  nothing; a backend's modules are imported when something of it is first asked for
Next     cpu/backend.py (the smallest entry), opening.py (opens by it), trace/file.py (decodes), rules/ (checks)

A new kind of device is a folder with a backend.py, and one line in PLACES. One that comes with another package is an
entry point of that package, in its pyproject.toml:

    [project.entry-points."hcq.backends"]
    TOY = "toy.backend:BACKEND"
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hcq.errors import DriverError, UsageError
from hcq.layout import Ioctl, Packet, declared_in
from hcq.pointers import Declared
from hcq.port import Port
from hcq.record import record

DIAGNOSTICS = "hcq.observe"  # who watches devices, and explains what went wrong with them
PLACES: dict[str, str] = {
    "CPU": "hcq.cpu.backend:BACKEND",
    "AMD": "hcq.amd.backend:BACKEND",
    "NV": "hcq.nv.backend:BACKEND",
    "METAL": "hcq.metal.backend:BACKEND",
}
ENTRY_POINTS = "hcq.backends"
EMULATED_PORT = "hcq.emu.port:port_for"


@record(frozen=True)
class Backend:
    """One kind of device. Places are "module:attribute", imported on first use; "" is what it does not have.

    name          what `hcq.open` takes before the colon
    device        its Device class, opened as device(name, port, config)
    decoder       arch -> decode(words) -> list[Packet]; decode never raises, an unknown arch is a UsageError
    queue_decoder (arch, queue's name) -> decode, where a queue's packets are told apart by its name; "": as `decoder`
    layouts       modules whose Packet classes are its packets, registers and descriptors
    ioctls        modules whose Ioctl objects are the calls its kernel driver takes
    pointers      (request, argument) -> what the argument of such a call points to (hcq/pointers.py)
    rules         its hcq.rules.effects.Model: what its packets do, and rules of its own
    target        (arch, threads of the host) -> the compiler's Target, for tensor programs
    toolchain     open device -> a vendor's compiler: its name, what it takes, (text, arch, name) -> image; or None
    disassembler  (image, arch, entry, name) -> lines of hcq.tools.disassembly
    doctor        its hcq.doctor.subject.Subject: checks before it opens, and a kernel for one after
    emulation     words of HCQ_EMULATE that begin with its name -> an emulated kernel driver
    runnable      what refuses a program that the emulation cannot run, when it is loaded: as its driver calls it
    foreign       a hcq.foreign.MakeReader: what a program that is none of ours asks of the same kernel driver
    carried       its hcq.carried.Carried: what a program's file holds besides kernels; "": nothing
    """

    name: str
    device: str = ""
    decoder: str = ""
    queue_decoder: str = ""
    layouts: tuple[str, ...] = ()
    ioctls: tuple[str, ...] = ()
    pointers: str = ""
    rules: str = ""
    target: str = ""
    toolchain: str = ""
    disassembler: str = ""
    doctor: str = ""
    emulation: str = ""
    runnable: str = ""
    foreign: str = ""
    carried: str = ""

    def decode(self, words: Sequence[int], arch: str = "", queue: str = "") -> list[Packet]:
        """A queue's words as packets. Raises UsageError for an architecture that it does not know."""
        if not self.decoder:
            raise UsageError(f"{self.name}: nobody declared its packets; its backend names no decoder.")
        if queue and self.queue_decoder:
            return _queue_decoder(self.queue_decoder, arch, queue)(words)
        return _decoder(self.decoder, arch)(words)

    def packets(self) -> Iterator[type[Packet]]:
        """Every layout that its modules declare, in the order of the source."""
        for name in self.layouts:
            yield from declared_in(vars(importlib.import_module(name)), Packet)

    def calls(self) -> dict[int, Ioctl]:
        """Request number -> the ioctl it is."""
        modules = (vars(importlib.import_module(name)) for name in self.ioctls)
        return {
            call.request: call for module in modules for call in module.values() if isinstance(call, Ioctl)
        }


def find(device: str) -> Backend | None:
    """The backend of a device name; None when there is none. Raises DriverError when its package cannot be imported."""
    name = device.partition(":")[0].upper()
    place = PLACES.get(name) or _installed().get(name)
    return None if place is None else _entry(name, place)


@functools.cache
def _decoder(place: str, arch: str) -> Callable[[Sequence[int]], list[Packet]]:
    found: Callable[[Sequence[int]], list[Packet]] = load(place)(arch)
    return found


@functools.cache
def _queue_decoder(place: str, arch: str, queue: str) -> Callable[[Sequence[int]], list[Packet]]:
    found: Callable[[Sequence[int]], list[Packet]] = load(place)(arch, queue)
    return found


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


def load(place: str) -> Any:
    """The thing at "module:attribute", its module imported now."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


@functools.cache
def _installed() -> dict[str, str]:
    """What other packages of this environment add: name -> place."""
    from importlib import metadata  # only for names that are not ours, and for lists of all

    return {entry.name.upper(): entry.value for entry in metadata.entry_points(group=ENTRY_POINTS)}
