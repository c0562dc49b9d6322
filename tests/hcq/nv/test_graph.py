"""Recorded work on NVIDIA devices: replays give what a queue gives, whatever changes between them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from hcq.errors import UsageError
from hcq.graph import Symbol
from hcq.nv.device import NvDevice
from tests.hcq.nv.kernels import image

Open = Callable[..., NvDevice]
SCALE = ("buffer", "buffer", "int", "float", "float")


def floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def test_replays_take_new_buffers_and_numbers(nv: NvDevice):
    scale = nv.load(image(nv.arch), "scale", args=SCALE)
    a = nv.alloc(256)
    a.write(struct.pack("<64f", *range(64)))
    outs = [nv.alloc(256) for _ in range(3)]
    graph = nv.graph("scaling")
    args = [Symbol("out"), a, Symbol("n", "int"), Symbol("factor", "float"), 1.0]
    graph.dispatch(scale, args, block=(64, 1, 1))
    for out in outs:
        out.write(bytes(256))
    done = [graph.replay({"out": out, "n": 10 + i, "factor": i + 1}) for i, out in enumerate(outs)]
    done[-1].wait()
    for i, out in enumerate(outs):
        assert floats(out.read()) == tuple(j * (i + 1) + 1 if j < 10 + i else 0 for j in range(64))


def test_a_graph_holds_kernels_copies_fills_and_signals_in_order(nv: NvDevice):
    increment = nv.load(image(nv.arch), "increment")
    a, b = nv.alloc(256), nv.alloc(256)
    signal = nv.signal()
    graph = nv.graph().fill(a, 5, value_bytes=4)
    graph.dispatch(increment, [a], block=(64, 1, 1)).copy(b, a).dispatch(increment, [b], block=(64, 1, 1))
    graph.dispatch(increment, [b], block=(64, 1, 1)).signal(signal, 3)
    for _ in range(5):
        graph.replay().wait()
        assert struct.unpack("<64I", b.read()) == (8,) * 64
        assert signal.value == 3
        signal.set(0)
        b.write(bytes(256))


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


def test_a_replay_with_wrong_keys_or_kinds_says_so(nv: NvDevice):
    increment = nv.load(image(nv.arch), "increment")
    graph = nv.graph("g")
    graph.dispatch(increment, [Symbol("out")], block=(64, 1, 1))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, r"missing \['out'\]"),
        ({"out": 1, "more": 2}, r"unknown \['more'\]"),
        ({"out": 1.5}, "'out' is a buffer, got 1.5"),
    ]
    for values, says in wrong:
        with pytest.raises(UsageError, match=says):
            graph.replay(values)
    with pytest.raises(UsageError, match="nothing was recorded"):
        nv.graph("empty").replay()


def test_nothing_is_recorded_after_the_first_replay(nv: NvDevice):
    a = nv.alloc(64)
    graph = nv.graph("g").fill(a, 1)
    graph.replay().wait()
    with pytest.raises(UsageError, match="was replayed already"):
        graph.fill(a, 2)
