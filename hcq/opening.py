"""Opening devices by name.

In       a name ("CPU", "CPU:1"), HCQ_EMULATE and HCQ_VISIBLE
Out      a Device, shared by everyone in the process who asks for the same name
Changes  opening starts the device's threads or channels
Next     backends.py (where each driver lives), device.py (what every device has), open_devices.py (what is open)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hcq import backends, checks, config, open_devices
from hcq.errors import UsageError


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
        known = ", ".join(backends.names())
        raise UsageError(
            f"open({checks.shown(name)}): unknown device. Known: {known}; a number may follow, as in CPU:0."
        )
    settings = config.current()
    is_emulated = bool(settings.emulate) and kind in backends.emulated(settings.emulate)
    port = backends.emulated_port(settings.emulate) if is_emulated else None
    index = int(number or 0)
    index = _shown(name, kind, index, settings)
    key = kind if index == 0 else f"{kind}:{index}"
    with open_devices.lock:
        found = open_devices.by_name.get(key)
        if found is not None and (not found.dead or found.revive()):
            return found
        if open_devices.is_ending:
            raise UsageError(f"open({name!r}): this process is ending. Join threads before the program ends.")
        made = open_devices.by_name[key] = backends.load(backend.device)(key, port)
        return made


def _shown(name: str, kind: str, index: int, settings: config.Config) -> int:
    """Which device of a kind has this number among those that HCQ_VISIBLE shows."""
    strange = [one for one, _ in settings.visible or () if one and one not in backends.names()]
    if strange:
        raise UsageError(
            f"HCQ_VISIBLE: {strange[0]} is no kind of device. Known: {', '.join(backends.names())}."
        )
    visible = settings.visible_of(kind)
    if visible is None:
        return index
    if not visible:
        raise UsageError(f"open({name!r}): HCQ_VISIBLE shows no device of this kind.")
    if index >= len(visible):
        count = f"{len(visible)} device{'s' if len(visible) > 1 else ''}"
        raise UsageError(f"open({name!r}): HCQ_VISIBLE shows {count} of this kind, 0 is the first.")
    return visible[index]


def known_devices() -> Mapping[str, str]:
    """The kinds of device `open` accepts, with the module that drives each."""
    return {backend.name: backend.device.partition(":")[0] for backend in backends.every()}
