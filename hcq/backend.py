"""Backend: one entry of the registry: where each part of a kind of device is found, imported at first use.

In       import paths such as "hcq.amd.device:AmdDevice"
Out      `Backend`: driver, decoder, layouts, ioctls, rules, compiler target, disassembler, doctor's checks, emulation
Next     backends.py (the registry of kinds), cpu/backend.py (the smallest entry)
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hcq.errors import UsageError
from hcq.layout import Ioctl, Packet, declared_in
from hcq.record import record


@record(frozen=True)
class Backend:
    """One kind of device. Places are "module:attribute", imported on first use; "" is what it does not have.

    name          what `hcq.open` takes before the colon
    device        its Device class, opened as device(name, port, config)
    decoder       arch -> decode(words) -> list[Packet]; decode never raises, an unknown arch is a UsageError
    queue_decoder (arch, queue's name) -> decode, where a queue's packets are told apart by its name; "": as `decoder`
    layouts       modules whose Packet classes are its packets, registers and descriptors
    ioctls        modules whose Ioctl objects are the calls its kernel driver takes
    pointers      (request, argument) -> what the argument of such a call points to (hcq/system/ioctl_pointers.py)
    rules         its hcq.rules.effects.Model: what its packets do, and rules of its own
    target        (arch, threads of the host) -> the compiler's Target, for tensor programs
    toolchain     open device -> a vendor's compiler: its name, what it takes, (text, arch, name) -> image; or None
    disassembler  (image, arch, entry, name) -> lines of hcq.tools.disassembly
    doctor        its hcq.doctor.subject.Subject: checks before it opens, and a kernel for one after
    emulation     words of HCQ_EMULATE that begin with its name -> an emulated kernel driver
    runnable      what refuses a program that the emulation cannot run, when it is loaded: as its driver calls it
    foreign       a hcq.events.foreign_devices.MakeReader: what a program that is none of ours asks of the
    same kernel driver
    texts         (folder or None) -> a hcq.code.kernel_text.FindText: what kernels that others load were made from
    atlas         its hcq.system.abi_atlas.Atlas: the kernel driver's interface at each of its releases
    inspection    its hcq.system.inspection.Inspection: views of an open device's rings and queues, and of real GPUs
    carried       its hcq.code.program_file_parts.Carried: what a program's file holds besides kernels; "": nothing
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
    texts: str = ""
    atlas: str = ""
    inspection: str = ""
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


@functools.cache
def _decoder(place: str, arch: str) -> Callable[[Sequence[int]], list[Packet]]:
    found: Callable[[Sequence[int]], list[Packet]] = load(place)(arch)
    return found


@functools.cache
def _queue_decoder(place: str, arch: str, queue: str) -> Callable[[Sequence[int]], list[Packet]]:
    found: Callable[[Sequence[int]], list[Packet]] = load(place)(arch, queue)
    return found


def load(place: str) -> Any:
    """The thing at "module:attribute", its module imported now."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
