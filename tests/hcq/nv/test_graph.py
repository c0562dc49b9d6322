"""Recorded work on NVIDIA devices: replays give what a queue gives, whatever changes between them."""

from __future__ import annotations

import struct
from collections.abc import Callable

from hcq.graph import Symbol
from hcq.nv.device import NvDevice
from tests.hcq.nv.kernels import image

Open = Callable[..., NvDevice]
SCALE = ("buffer", "buffer", "int", "float", "float")


def floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def test_replays_in_flight_keep_their_own_arguments(open_nv: Open):
    """The GPU waits while many replays are recorded, each with other arguments."""
    for arch in ("sm_80", "sm_90", "sm_120"):
        nv = open_nv(arch)
        scale = nv.load(image(nv.arch), "scale", args=SCALE)
        a, out = nv.alloc(256), nv.alloc(256)
        a.write(struct.pack("<64f", *[1.0] * 64))
        go = nv.signal("go")
        graph = nv.graph()
        graph.dispatch(scale, [out, a, 64, Symbol("f", "float"), 0.0], block=(64, 1, 1))
        nv.queue().wait(go, 1).submit()
        first, second = graph.replay({"f": 2.0}), graph.replay({"f": 3.0})
        assert not first.is_done
        go.set(1)
        second.wait()
        assert floats(out.read()) == (3.0,) * 64
