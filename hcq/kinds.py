"""Kinds of devices: for each name before the colon, where its driver, its packets and its rules are. One registry.

In       a device name such as "CPU:1"
Out      the Kind: its Device class, the decoder of each of its queues, its layouts, its ioctls, its rules
Changes  nothing; a kind's modules are imported when something of it is first asked for
Next     device.py (opens by kind), trace/file.py (decodes by kind), validate.py (checks by kind)

A new kind of device adds one entry here and gets traces, fault reports, packet pages and rules with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hcq.errors import UsageError
from hcq.layout import Ioctl, Packet, declared_in

MAIN = "main"


@dataclass(frozen=True)
class Kind:
    """One kind of device. Places are "module:attribute" and are imported on first use.

    device   the Device class, opened by name
    decode   queue name -> decode(words) -> list[Packet]; never raises
    by_arch  the places in `decode` are functions of the architecture that return the decoder
    layouts  modules whose Packet classes are the kind's packets, registers and descriptors
    ioctls   modules whose Ioctl objects are the calls its kernel driver takes
    rules    the module with its effects and its rules
    """

    name: str
    device: str
    decode: Mapping[str, str] = field(default_factory=dict)
    by_arch: bool = False
    layouts: tuple[str, ...] = ()
    ioctls: tuple[str, ...] = ()
    rules: str = ""

    def decoder(self, queue: str = MAIN, arch: str = "") -> Callable[[Sequence[int]], list[Packet]]:
        """What turns a queue's words into packets.

        Raises  UsageError for a queue that this kind has not, or an architecture it does not know
        """
        if queue not in self.decode:
            raise UsageError(f"{self.name} has no queue {queue!r}. Its queues: {', '.join(self.decode)}.")
        found: Callable[[Sequence[int]], list[Packet]] = load(self.decode[queue])
        return load(self.decode[queue])(arch) if self.by_arch else found

    def packets(self) -> Iterator[type[Packet]]:
        """Every layout that the kind's modules declare, in the order of the source."""
        for name in self.layouts:
            yield from declared_in(vars(importlib.import_module(name)), Packet)

    def calls(self) -> dict[int, Ioctl]:
        """Request number -> the ioctl it is."""
        found = {}
        for name in self.ioctls:
            for thing in vars(importlib.import_module(name)).values():
                if not isinstance(thing, type) and hasattr(thing, "request") and hasattr(thing, "layout"):
                    found[thing.request] = Ioctl(thing.request, thing.name, thing.layout, thing.show)
        return found


KINDS: dict[str, Kind] = {
    "CPU": Kind(
        "CPU",
        device="hcq.cpu.device:CpuDevice",
        decode={MAIN: "hcq.cpu.encode:decode"},
        layouts=("hcq.cpu.packets",),
        rules="hcq.cpu.validate",
    ),
    "AMD": Kind(
        "AMD",
        device="hcq.amd.device:AmdDevice",
        decode={MAIN: "hcq.amd.decode:decoder"},
        by_arch=True,
        layouts=(
            "hcq.amd.abi.pm4",
            "hcq.amd.abi.sdma",
            "hcq.amd.abi.aql",
            "hcq.amd.abi.registers",
            "hcq.amd.abi.descriptor",
            "hcq.amd.abi.kfd",
        ),
        ioctls=("hcq.amd.abi.kfd",),
        rules="hcq.amd.validate",
    ),
    "NV": Kind(
        "NV",
        device="hcq.nv.device:NvDevice",
        decode={MAIN: "hcq.nv.decode:decoder"},
        by_arch=True,
        layouts=(
            "hcq.nv.abi.host_methods",
            "hcq.nv.abi.compute_methods",
            "hcq.nv.abi.compute_classes",
            "hcq.nv.abi.copy_methods",
            "hcq.nv.abi.gpfifo",
            "hcq.nv.abi.qmd_v3",
            "hcq.nv.abi.qmd_v4",
            "hcq.nv.abi.qmd_v5",
            "hcq.nv.abi.bank0",
            "hcq.nv.abi.image",
            "hcq.nv.bundle",
            "hcq.nv.abi.rm_structs",
            "hcq.nv.abi.control_structs",
            "hcq.nv.abi.uvm_structs",
        ),
        ioctls=("hcq.nv.abi.ioctls",),
        rules="hcq.nv.validate",
    ),
}


def kind_of(device: str) -> Kind:
    """The kind of a device name. Raises UsageError listing the known ones."""
    name = device.partition(":")[0].upper()
    if name not in KINDS:
        raise UsageError(f"{device!r}: unknown kind of device. Known: {', '.join(KINDS)}.")
    return KINDS[name]


def load(place: str) -> Any:
    """The thing at "module:attribute"."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
