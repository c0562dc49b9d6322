"""Watched call: a call of an emulated driver, which notifies observers once it has returned.

In       an ioctl, what its argument points to, who answers it
Out      the answer or the refusal, as it was
Next     hcq/events/kernel_observer.py (the observers), amd/kfd.py and nv/rm.py (who answer)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hcq.emu.kernel import Process, Refusal
from hcq.events.kernel_observer import Call, KernelObserver
from hcq.system.ioctl_pointers import Declared, noted


def watched(
    observers: Sequence[KernelObserver],
    path: str,
    pointers: Declared,
    request: int,
    argument: bytearray,
    process: Process,
    answer: Callable[[int, bytearray, Process], int],
) -> int:
    """Answer the call and tell of it. Raises Refusal, as the answer does."""

    def read(va: int, size_bytes: int) -> bytes:
        try:
            return process.read(va, size_bytes)
        except Refusal:
            return b""

    before, error = bytes(argument), 0
    nested = noted(pointers(request, before), before, read)
    try:
        return answer(request, argument, process)
    except Refusal as refusal:
        error = refusal.number
        raise
    finally:
        call = Call(path, request, before, bytes(argument), error, nested())
        for one in observers:
            one.called(process, call)
