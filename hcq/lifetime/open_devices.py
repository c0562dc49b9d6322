"""Open devices: the list of this process's open devices, and what happens to them at exit and around a fork.

In       devices as they open and close
Out      the open devices; `listeners` are called for each one that is gone
Changes  at exit it closes all, without a long wait for work whose result nobody will read; before a fork they pause
Next     dead_device.py (a device in the child), hcq/device.py (registers itself), opening.py (opens by name)
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from hcq.base import Base
from hcq.errors import HcqError
from hcq.lifetime import dead_device

by_name: dict[str, Base] = {}  # what opening.py has opened
lock = threading.RLock()  # of `by_name`, and of unmapping
listeners: list[Callable[[Base], object]] = []  # called with a device whose memory is gone
in_child: list[Callable[[], object]] = []  # called in a child of fork, before anything of a device is
is_ending = False  # the process is: nothing opens any more

FORK_MS = 2000  # before a fork: so long for work in flight, and for other threads that are submitting
LLVM_S = 60  # before a fork: so long for the call of LLVM that another thread is in
QUIET_MS = 300  # at exit: from here on a line says what the exit waits for
EXIT_MS = 2000  # at exit: work that is not done by then is left unfinished

_open: list[Base] = []
_closed: list[Base] = []  # stopped, and what nobody uses of their memory is to be unmapped
_finalized: list[Base] = []  # nobody holds them any more, and all of their memory is to be unmapped


def devices() -> list[Base]:
    """Every device that is open, in the order of opening."""
    return list(_open)


def signal_at(va: int) -> Any:
    """The signal of an open device at an address; None when there is none."""
    return next((found for device in _open if (found := device.signals.get(va)) is not None), None)


def register(device: Base) -> None:
    """A device opened: it is closed when the process ends, if nobody closes it before."""
    _open.append(device)
    unmap_closed()


def unregister(device: Base) -> None:
    """A device closed. Memory of one that did not stop is left to the end of the process."""
    if device in _open:
        _open.remove(device)
    for name, known in list(by_name.items()):
        if known is device:
            del by_name[name]
    if is_ending:
        return
    for listener in listeners:
        listener(device)
    if device.is_stopped:
        device.memory.retire()
        _closed.append(device)
    unmap_closed()


def finalize(device: Base, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
    """The last reference of a stopped device is gone: all of its memory is unmapped. For destructors."""
    if not is_finalizing():
        _finalized.append(device)
        unmap_in_destructor()


def retired(device: Base) -> None:
    """Something of a closed device can be unmapped. For destructors."""
    _closed.append(device)
    unmap_in_destructor()


def unmap_in_destructor() -> None:
    """Destructors run at any moment, inside a call of a driver, too: what is behind a kernel driver waits for a better
    one, which is when a device opens or closes, or maps memory."""
    if all(device.unmaps_anywhere for device in (*_closed, *_finalized)):
        unmap_closed()


def unmap_closed() -> None:
    """Unmap memory of closed devices, unless an open one has work in flight: it may wait on a signal there."""
    if not (_closed or _finalized) or not lock.acquire(blocking=False):
        return
    try:
        if all(each.timeline.has_all_done for each in _open):
            while _closed:
                _closed.pop().memory.close()
            while _finalized:
                gone = _finalized.pop()
                gone.give_back()
                gone.memory.close(is_last=True)
    except HcqError as error:
        print(f"hcq: unmapping memory of a closed device: {error}", file=sys.stderr)
    finally:
        lock.release()


# ------------------------------------------------------------ exit


@atexit.register
def _close_all() -> None:
    global is_ending
    is_ending = True
    error = getattr(sys, "last_value", None)  # set when the program ends with an exception
    try:
        for device in devices():
            is_busy = device.timeline.value < device.timeline.submitted
            if error is not None and is_busy and not device.hangs_as_told():
                title = f"the program ended with {type(error).__name__} while {device.name} had work"
                device.report(title, ("exit",))
            _close_at_exit(device)
    except KeyboardInterrupt:
        return  # at once: what still runs goes with the process


def _close_at_exit(device: Base) -> None:
    """Nobody can see results any more, so work that does not end is not worth a long wait; a trace may be."""
    known = len(device.failures)  # faults that were already reported
    is_told = device.hangs_as_told()
    is_awaited = not is_told and any(observer.is_awaited for observer in device.observers)
    limit_ms = device.config.timeout_ms if is_awaited else min(EXIT_MS, device.config.timeout_ms)
    quiet_ms = min(QUIET_MS, limit_ms)
    is_done = device.is_lost or device.rests_within(quiet_ms)
    if not is_done and not is_told:
        late = device.describe(device.timeline.value + 1)
        print(
            f"hcq: {device.name} has not finished submission {late}. The exit leaves it unfinished "
            f"{limit_ms / 1000:g} s after it began, or at once on Ctrl-C.",
            file=sys.stderr,
        )
    if not is_done:
        is_done = device.rests_within(limit_ms - quiet_ms)
    if is_done and not device.is_lost:
        try:
            device.note_fault()
        except HcqError as error:  # its driver is gone; other devices are closed all the same
            print(f"hcq: closing {device.name}: {error}", file=sys.stderr)
    for _, _, why in device.failures[known:]:
        print(f"hcq: closing {device.name}: {why}", file=sys.stderr)
    device.end(dead_device.ENDING, 5000 if is_done else 100)


# ------------------------------------------------------------ fork


_llvm: Any = None  # the lock of llvmlite, while the process forks


def _before_fork() -> None:
    """A child inherits locks as they are, so nobody may be inside: neither a device nor LLVM, whose calls all end."""
    global _llvm
    ffi = sys.modules.get("llvmlite.binding.ffi")
    lock = getattr(getattr(getattr(ffi, "lib", None), "_lock", None), "_lock", None)
    if lock is not None and lock.acquire(timeout=LLVM_S):
        _llvm = lock
    end = time.monotonic() + FORK_MS / 1000
    for device in _open:
        device.hold_still(end)


def _release_llvm() -> None:
    global _llvm
    if _llvm is not None:
        _llvm.release()
        _llvm = None


def _after_fork_in_parent() -> None:
    for device in reversed(_open):
        device.let_go()
    _release_llvm()


def _after_fork_in_child() -> None:
    """The child has our memory but not our threads, and no part in the queues of a GPU."""
    global lock
    lock = threading.RLock()
    _release_llvm()
    inherited, names = list(_open), dict(by_name)
    for group in (_open, _closed, _finalized):
        group.clear()
    for forget in in_child:
        forget()
    for device in inherited:
        try:
            is_of_use = device.inherit()
        except Exception as error:
            # a hook's error would be printed and forgotten, and the next wait would never end
            device.die(f"{dead_device.FORKED}, and: {error}")
            is_of_use = False
        if not is_of_use:
            for name in [name for name, known in names.items() if known is device]:
                del by_name[name]
            for listener in listeners:
                listener(device)


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
