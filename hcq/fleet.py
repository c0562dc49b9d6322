"""The fleet: every device of this process that is open, and what becomes of them at exit and after a fork.

In       devices as they open and close
Out      which are open
Changes  at exit all are closed; in a forked child all are dead, and it may open its own
Next     device.py (who joins and leaves), opening.py (who opens by name)
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hcq.device import Device

by_name: dict[str, Device] = {}  # what opening.py has opened
lock = threading.RLock()  # of `by_name`, and of unmapping
_open: list[Device] = []
_closed: list[Device] = []  # stopped, their memory still mapped


def devices() -> list[Device]:
    """Every device that is open, in the order of opening."""
    return list(_open)


def join(device: Device) -> None:
    """It is open now."""
    _open.append(device)


def leave(device: Device, is_stopped: bool) -> None:
    """It is closed now. Memory of a device that did not stop is left to the end of the process."""
    if device in _open:
        _open.remove(device)
    for name, known in list(by_name.items()):
        if known is device:
            del by_name[name]
    if is_stopped:
        _closed.append(device)
    _unmap_closed()


def _unmap_closed() -> None:
    """Unmap the memory of closed devices, unless another device has work in flight: it may wait on a signal there."""
    with lock:
        if all(device.timeline._cell[0] >= device.timeline.submitted for device in _open):
            while _closed:
                _closed.pop().memory.close()


@atexit.register
def _close_all() -> None:
    error = getattr(sys, "last_value", None)  # set when the program ends with an exception
    for device in devices():
        if error is not None and (device.failures or device.timeline.value < device.timeline.submitted):
            from hcq import report

            title = (
                f"the program ended with {type(error).__name__} while {device.name} had work or had failed"
            )
            report.tell(device, title, ("exit",))
        device.close()


def _after_fork() -> None:
    """The child has our memory but not our threads: its copies of devices are dead, and it may open new ones."""
    global lock
    lock = threading.RLock()
    for device in _open:
        device.dead = "this process was forked from the one that opened it, and threads do not survive a fork"
        device.lock = threading.RLock()
        device.trace = None
        device.validator = None
        device.waits = {}
    if "hcq.validator" in sys.modules:
        sys.modules["hcq.validator"].after_fork()
    for group in (_open, _closed):
        group.clear()
    by_name.clear()


os.register_at_fork(after_in_child=_after_fork)
