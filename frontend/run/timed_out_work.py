"""Overdue work: a kernel whose wait timed out does not hold up the next tensor.

In       reads of tensors that ended in a WaitTimeout; the buffers that new work needs
Out      a device that is free for the new work
Changes  drops the overdue work when other work comes: its results then say so when they are read
Next     hcq/device.py (reset), plan.py, frontend/jit/replay.py and frontend/tensor.py (who asks before they submit,
         write and read)

A device runs one submission after the other, so whatever comes after a kernel that does not end would wait for it, too,
until its own deadline. Work is not dropped when the deadline passes: it may be read again, waiting longer, and may
end meanwhile. It is dropped when new work comes that does not need it, unless other work waits behind it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.errors import WaitTimeout
from hcq.lifetime import open_devices

# id of a device -> the device, the last submission whose wait timed out
late: dict[int, tuple[Any, int]] = {}


open_devices.listeners.append(lambda device: late.pop(id(device), None))


def drop(device: Any, buffers: Sequence[Any] = ()) -> None:
    """Before new work: drop what is overdue on the device, unless the new work needs it.

    buffers  what the new work reads or writes
    Raises   WaitTimeout when the device can neither stop the overdue work nor go on without it
    """
    found = late.get(id(device))
    if found is None:
        return
    done, submitted = device.timeline.value, device.timeline.submitted
    if done < found[1]:
        if submitted > found[1] or device.dead or any(_last_use(buffer) > done for buffer in buffers):
            return
        device.reset()
    late.pop(id(device), None)


def read(buffer: Any, place: Any) -> None:
    """`Buffer.read_into` for a tensor: remembers a deadline that passed, and reads what is done past late work."""
    device = buffer.device
    if late:
        found = late.get(id(device))
        if found is not None and max(_last_use(buffer), buffer.fence) <= device.timeline.value < found[1]:
            buffer.check_poison("read")
            device.read_memory_into(buffer.address, place, memoryview(place).nbytes)
            for observer in device.observers:
                observer.saw(buffer.address, place)
            return
    try:
        buffer.read_into(place)
    except WaitTimeout as error:
        late[id(device)] = device, device.timeline.submitted
        raise WaitTimeout(
            f"{error} Read the tensor again to wait longer; other work, when it comes, drops what is late."
        ) from error


def _last_use(buffer: Any) -> int:
    """The last submission that was handed the buffer."""
    whole = buffer.parent or buffer
    return int(buffer.device.timeline.submitted if whole.is_recorded else whole.last)
