"""Recorded work on AMD devices: replays give what a queue gives, whatever changes between them."""

from __future__ import annotations

import struct
from collections.abc import Callable

from hcq.amd.device import AmdDevice
from hcq.graph import Symbol
from tests.hcq.amd.kernels import image

Open = Callable[..., AmdDevice]
SCALE = ("buffer", "buffer", "int", "float", "float")


def floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def test_replays_in_flight_keep_their_own_arguments(open_amd: Open):
    """The GPU waits while many replays are recorded, each with other arguments."""
    for queue in ("pm4", "aql"):
        amd = open_amd(queue=queue)
        scale = amd.load(image(amd.arch), "scale", args=SCALE)
        a, out = amd.alloc(256), amd.alloc(256)
        a.write(struct.pack("<64f", *[1.0] * 64))
        go = amd.signal("go")
        graph = amd.graph()
        graph.dispatch(scale, [out, a, 64, Symbol("f", "float"), 0.0], block=(64, 1, 1))
        amd.queue().wait(go, 1).submit()
        first, second = graph.replay({"f": 2.0}), graph.replay({"f": 3.0})
        assert not first.is_done
        go.set(1)
        second.wait()
        assert floats(out.read()) == (3.0,) * 64
