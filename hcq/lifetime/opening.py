"""Opening: `hcq.open`, which opens a device by its name.

In       a name ("CPU", "CPU:1"), HCQ_EMULATE and HCQ_VISIBLE
Out      a Device; the same name gives the same object in the whole process
Changes  opening starts the device's threads or channels
Next     hcq/backends.py (where each driver lives), hcq/device.py (what every device has), open_devices.py (the list
         of open devices)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hcq import backends, checks, config
from hcq.errors import UsageError
from hcq.lifetime import open_devices


def open(name: str = "CPU") -> Any:
    """The device of this name, opened on first use and shared by the whole process.

    name    "CPU", "CPU:1", "AMD", "NV:0", ...; HCQ_VISIBLE says which GPUs are counted, HCQ_EMULATE adds emulated
            ones
    Raises  UsageError listing the known names; DriverError naming the step of the bring-up that the system refused

    >>> hcq.open("CPU")  # doctest: +ELLIPSIS
    Device(CPU, ...)
    """
    kind, _, number = checks.text("open", "name", name).upper().partition(":")
    backend = backends.find(kind)
    if backend is None or not backend.device or not (number == "" or checks.is_decimal(number)):
        raise UsageError(
            f"open({checks.shown(name)}): unknown device. Known are {', '.join(backends.names())}; a number may "
            "follow, as in CPU:0."
        )
    settings = config.current()
    is_emulated = bool(settings.emulate) and kind in backends.emulated(settings.emulate)
    port = backends.emulated_port(settings.emulate) if is_emulated else None
    index = int(number or 0)
    for word, _ in settings.visible or ():
        if word and backends.find(word) is None:
            known = ", ".join(backends.names())
            raise UsageError(f"HCQ_VISIBLE names {word}, which is no kind of device. Known are {known}.")
    visible = settings.numbers_of(kind)
    if visible is not None:
        if index >= len(visible):
            raise UsageError(f"open({name!r}): {_shown_of(kind, visible)}.")
        index = visible[index]
    key = kind if index == 0 else f"{kind}:{index}"
    with open_devices.lock:
        found = open_devices.by_name.get(key)
        if found is not None and (not found.dead or found.revive()):
            return found
        if open_devices.is_ending:
            raise UsageError(f"open({name!r}): this process is ending. Join threads before the program ends.")
        made = open_devices.by_name[key] = backends.load(backend.device)(key, port)
        return made


def _shown_of(kind: str, visible: tuple[int, ...]) -> str:
    """What HCQ_VISIBLE leaves of a kind, in words."""
    if not visible:
        return f"HCQ_VISIBLE is empty, which hides every GPU. Unset it, or name {kind}:0 in it"
    if len(visible) == 1:
        return f"HCQ_VISIBLE shows one device of {kind}, which is number 0"
    return f"HCQ_VISIBLE shows {len(visible)} devices of {kind}, of which 0 is the first"


def known_devices() -> Mapping[str, str]:
    """The kinds of device `open` accepts, with the module that drives each."""
    return {backend.name: backend.device.partition(":")[0] for backend in backends.every()}
