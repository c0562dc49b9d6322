"""Staged: in a recording, bytes from one device to another that does not reach its memory, by way of the host's.

In       the tracks of both, and the two buffers
Out      commands: out to memory of the host, across if that is pinned for one of them alone, and in
Changes  the tracks; memory of the host, which the recording keeps
Next     recorded.py (who asks), perform.py (where the program itself carries them), hcq/work/device_track.py (tracks
         and the relay)

    device to CPU      device: copy out, mark     CPU: wait, copy
    CPU to device      CPU: copy, mark            device: wait, copy in
    device to device   device: copy out, mark     relay: wait, copy, mark     other device: wait, copy in

Memory that a kernel driver has pinned for its GPU is the host's, so the CPU device copies there and from there, and a
track of the host's processor goes between two GPUs. The program has no part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.errors import UsageError
from hcq.work.device_track import Track


class Staging:
    """Memory of the host for a recording, pinned for its devices. Between one `begin` and the next nothing has two
    uses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._made: dict[Any, list[Any]] = {}  # by device
        self._taken: dict[Any, int] = {}

    def begin(self) -> None:
        """All that was taken before is free: what is recorded now comes after what used it."""
        self._taken.clear()

    def take(self, device: Any, size_bytes: int) -> Any:
        """A buffer of at least this size that the device and the host reach."""
        made, at = self._made.setdefault(device, []), self._taken.get(device, 0)
        self._taken[device] = at + 1
        if at == len(made):
            made.append(None)
        if made[at] is None or made[at].size_bytes < size_bytes:
            made[at] = device.host_memory(size_bytes, f"{self.name} (staging)")
        return made[at].view(0, size_bytes)


def copy_staged(
    track: Track, to: Any, sender: Track, source: Any, staging: Staging, relay: Callable[[], Track]
) -> None:
    """Record a copy from a buffer of one device to one of another.

    track    of who receives it; sender: of whose it is, where the bytes are there already
    staging  for devices whose memory is not the host's
    relay    the track of the host's processor, asked for where neither of the two can carry the bytes itself
    Raises   UsageError where one of them has no memory that the host's processor reaches
    """
    size = source.size_bytes
    out = source
    if not source.device.is_host_memory:
        out = staging.take(source.device, size)
        sender.graph.copy(out, source)
    if track.device.can_reach(out):
        track.after(sender.mark()).graph.copy(to, out)
        return
    into = to if to.device.is_host_memory else staging.take(to.device, size)
    bearer = sender if sender.device.can_reach(into) else relay().after(sender.mark())
    for each in (out, into):
        if each.device is not bearer.device and not bearer.device.can_reach(each):
            raise UsageError(
                f"[jit] from {source.device.name} to {to.device.name}: neither reaches the other's memory, and the "
                f"host's processor does not reach what {each.device.name} has, so a recording cannot hold that. Call "
                "the function without jit."
            )
    if into is to:
        bearer.after(track.mark())  # what used it before
    bearer.graph.copy(into, out)
    track.after(bearer.mark())
    if into is not to:
        track.graph.copy(to, into)
