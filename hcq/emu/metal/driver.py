"""The emulation as a whole: words of HCQ_EMULATE become a runtime with Metal's classes and these GPUs.

In       words such as "metal:m3"
Out      a Runtime
Changes  nothing
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
    return Runtime(parse_all(words), _copy_devices)


def _copy_devices(runtime: Runtime) -> Array:
    made = [Device(runtime, spec) for spec in runtime.specs]
    array = Array(runtime, made)
    for one in made:
        one.release()  # the array keeps them
    return array
