"""The GPUs that Metal lists, and the one it gives to a process for which it lists none.

In       a runtime
Out      MTLDevices
Next     device.py (who opens one), doctor.py (who counts them)
Source   MTLDevice.h: MTLCopyAllDevices, MTLCreateSystemDefaultDevice; both give what is ours to release. Apple's page
         of the latter: Core Graphics has to be loaded, which programs of the command line do not do by themselves
"""

from __future__ import annotations

from hcq.metal.abi import messages
from hcq.metal.objc import Objc


def copy_gpus(objc: Objc) -> list[int]:
    """Every GPU, each ours to release."""
    objc.call(messages.COLOR_SPACE_TYPE)  # a constant of Core Graphics: asking for it loads the framework
    every = objc.call(messages.COPY_ALL_DEVICES)
    found = []
    if every:
        count = int(objc.send(every, messages.COUNT))
        found = [objc.retain(objc.send(every, messages.OBJECT_AT, number)) for number in range(count)]
        objc.release(every)
    if not found and (usual := int(objc.call(messages.CREATE_SYSTEM_DEFAULT_DEVICE))):
        found.append(usual)
    return found
