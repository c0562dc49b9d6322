"""Prepared launches: a program over a grid, whose packet is made once and gets addresses and a number each time.

In       a program that takes buffers alone, a grid; then buffers, again and again
Out      a function that launches it on such buffers
Changes  as Device.launch: the ring, the timeline, the notes of what was submitted
Next     device.py (the way of everything else), encode.py (how a packet is laid out),
         hcq/work/interrupted_submission.py

The launch and the signal that ends its submission are one record here, packed straight into the ring. Whatever is out
of the ordinary (observers, a failed submission, a full ring, a freed buffer) goes the way of `Device.launch`, which
knows what to say.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hcq.base import Grid
from hcq.command import Dispatch
from hcq.cpu import packets
from hcq.cpu.encode import argument_shape, pack_dispatch
from hcq.cpu.launch import refuse_launch
from hcq.memory import Buffer
from hcq.program import Program
from hcq.queue import ONE
from hcq.system.call_site import EVERY, site
from hcq.work.interrupted_submission import settle

if TYPE_CHECKING:
    from hcq.cpu.device import CpuDevice

_new_tuple = tuple.__new__


def prepare(
    device: CpuDevice, program: Program, grid: Grid, ring_words: int
) -> Callable[[Sequence[Buffer]], object]:
    """A function that launches `program`, which takes nothing but buffers, on as many as it takes."""
    refuse_launch(device, program, grid, ONE)
    count = len(program.args or ())
    shape = argument_shape(device.machine, "i" * count)
    words = pack_dispatch(shape, Dispatch(program, (0,) * count, grid, ONE, 0)) + device.finish(0)
    # what is always the same, the addresses in their order, what is always the same, the timeline's value
    start = 4 * packets.Dispatch.length_words
    first, rest = words[:start], words[start + 8 * count : -8]
    pack_into = struct.Struct(f"<{len(first)}s{count}q{len(rest)}sQ").pack_into
    size = len(words) // 4
    timeline, doorbell_ring, note = device.timeline, device.code.doorbell_ring, device.recent.append

    def launch(buffers: Sequence[Buffer]) -> object:
        with device.lock:
            put = device._put
            at = put & ring_words - 1
            addresses = [buffer.va for buffer in buffers if buffer.device is device]
            if (
                None in addresses
                or len(addresses) != count
                or at + size > ring_words
                or put + size - device._get > ring_words
                or device.failures
                or device.observers
                or device.dead
            ):
                return device.launch(program, buffers, grid)
            value = timeline.submitted + 1
            line = site() if value < EVERY or not value & device._sites else None
            commands = (_new_tuple(Dispatch, (program, tuple(addresses), grid, ONE, 0, 0)),)
            last = 0
            try:
                pack_into(device._ring, 4 * at, first, *addresses, rest, value)
                device._put = put = put + size
                doorbell_ring(device._control_pointer, put)
                device._sent = put
                timeline.submitted = last = value
                note((value, commands, line))
            except BaseException:
                settle(device, value, commands, buffers, line)
                raise
            finally:
                if not last:  # it may have been sent: the host waits for all before it writes there
                    last = timeline.submitted
                for buffer in buffers:
                    (buffer.parent or buffer).last = last
        return None

    return launch
