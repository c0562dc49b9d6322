"""Opening: `hcq.open`, which opens a device by its name.

In       a name ("CPU", "CPU:1"), HCQ_EMULATE and HCQ_VISIBLE
Out      a Device; the same name gives the same object in the whole process
Changes  opening starts the device's threads or channels
Next     hcq/backends.py (where each driver lives), hcq/device.py (what every device has), open_devices.py (the list
         of open devices), visible.py and sanitizing.py (what HCQ_VISIBLE and `sanitize` ask for)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hcq import backends, checks, config
from hcq.errors import UsageError
from hcq.lifetime import open_devices


def open(name: str = "CPU", sanitize: str | None = None) -> Any:
    """The device of this name, opened on first use and shared by the whole process.

    name      "CPU", "CPU:1", "AMD", "NV:0", ...; HCQ_VISIBLE says which GPUs are counted, HCQ_EMULATE adds emulated
              ones
    sanitize  faults of kernels to look for: "race,memory", on emulated GPUs; None: what HCQ_SANITIZE says
    Raises    UsageError listing the known names; DriverError naming the step of the bring-up that the system refused

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
    if settings.visible is not None:
        from hcq.lifetime import visible

        index = visible.number_of(name, kind, index, settings)
    given: list[Any] = []
    if sanitize is not None:
        from hcq.lifetime import sanitizing

        given.append(sanitizing.settings_with(name, sanitize, is_emulated))
    key = kind if index == 0 else f"{kind}:{index}"
    with open_devices.lock:
        found = open_devices.by_name.get(key)
        if found is not None and (not found.dead or found.revive()):
            if given:
                sanitizing.check_open(name, given[0], found)
            return found
        if open_devices.is_ending:
            raise UsageError(f"open({name!r}): this process is ending. Join threads before the program ends.")
        made = open_devices.by_name[key] = backends.load(backend.device)(key, port, *given)
        return made


def known_devices() -> Mapping[str, str]:
    """The kinds of device `open` accepts, with the module that drives each."""
    return {backend.name: backend.device.partition(":")[0] for backend in backends.every()}
