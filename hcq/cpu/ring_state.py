"""Ring state: what the command processor is at, read from its control block and the ring, for reports.

In       a CPU device with work in flight, its ring and its control block
Out      `ring_states`; `current_command`, the number of the command that it executes
Next     device.py (who writes the ring), packets.py (the words), hcq/observe/report.py (who asks)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hcq.base import RingState
from hcq.command import Indirect
from hcq.cpu import packets
from hcq.device import Device
from hcq.system import native

Field = Callable[[str], int]  # a number of the control block, by its name


def ring_states(device: Device, ring: memoryview, field: Field) -> list[RingState]:
    """For reports: how far the command processor is in the ring, and at which packet."""
    get, put = field("get"), field("put")
    shown = "nothing: all packets are done"
    if get != put:
        packet = device.decode(_waiting(ring, get, put))[0]
        shown = repr(packet)
    asleep = ", asleep" if field("asleep") else ""
    return [RingState(f"main (words{asleep})", put, get, len(ring) // 4, shown)]


def current_command(device: Device, ring: memoryview, field: Field) -> int | None:
    """Which command of the first submission that is not done is being executed; None where nobody can say."""
    done = device.timeline.value
    entry = device.submission(done + 1)
    get, put = field("get"), field("put")
    if entry is None or get == put:
        return None
    left = 0  # packets from the current one up to the signal that ends the submission
    for packet in device.decode(_waiting(ring, get, put)):
        if isinstance(packet, packets.Signal) and packet.signal == device.timeline.va:
            break
        left += not isinstance(packet, packets.Nop)
    commands = entry[1]
    index = len(commands) - left + sum(observer.packets_after for observer in device.observers)
    if not 0 <= index < len(commands):
        return None
    before = sum(len(what.commands) if isinstance(what, Indirect) else 1 for what in commands[:index])
    what = commands[index]
    offset = field("packet") - what.address if isinstance(what, Indirect) else 0
    if not isinstance(what, Indirect) or not 0 <= offset < 4 * what.size_words:
        return before
    return before + len(device.decode(native.view(what.address, offset).cast("I")))


def _waiting(ring: memoryview, get: int, put: int) -> Sequence[int]:
    """What the command processor has still to read, as words."""
    words = ring.cast("I")
    start, size = get % len(words), put - get
    return [*words[start : start + size], *words[: max(0, start + size - len(words))]]
