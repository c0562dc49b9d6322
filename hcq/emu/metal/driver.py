"""The emulation as a whole: words of HCQ_EMULATE become a runtime with Metal's classes and these GPUs.

In       words such as "metal:m3"
Out      a Runtime
Next     runtime.py (what it answers), device.py (a GPU), hcq/metal/backend.py (who names this)
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.emu.metal.device import Device
from hcq.emu.metal.objects import Array
from hcq.emu.metal.runtime import Runtime
from hcq.emu.metal.spec import parse_all


def emulate(words: Sequence[str]) -> Runtime:
    """The runtime with the GPUs of these words. Raises UsageError naming what is wrong with one."""
    return Runtime(parse_all(words), _copy_devices, _default_device)


def _default_device(runtime: Runtime) -> Device:
    return Device(runtime, runtime.specs[0])


def _copy_devices(runtime: Runtime) -> Array:
    """Those that are listed: none where a process is not shown any, as in some sandboxes."""
    made = (
        [] if any(spec.is_unlisted for spec in runtime.specs) else [Device(runtime, s) for s in runtime.specs]
    )
    array = Array(runtime, made)
    for one in made:
        one.release()  # the array keeps them
    return array
