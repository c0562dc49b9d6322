"""Recorded work on GPUs: replays give what a queue gives, whatever changes between them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from hcq.errors import UsageError
from hcq.gpu.device import GpuDevice
from hcq.graph import Symbol
from tests.hcq.gpu.kernels import image

SCALE = ("buffer", "buffer", "int", "float", "float")


def floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def test_replays_take_new_buffers_and_numbers(gpu: GpuDevice):
    scale = gpu.load(image(gpu), "scale", args=SCALE)
    a = gpu.alloc(256)
    a.write(struct.pack("<64f", *range(64)))
    outs = [gpu.alloc(256) for _ in range(3)]
    graph = gpu.graph("scaling")
    args = [Symbol("out"), a, Symbol("n", "int"), Symbol("factor", "float"), 1.0]
    graph.dispatch(scale, args, block=(64, 1, 1))
    for out in outs:
        out.write(bytes(256))
    done = [graph.replay({"out": out, "n": 10 + i, "factor": i + 1}) for i, out in enumerate(outs)]
    done[-1].wait()
    for i, out in enumerate(outs):
        assert floats(out.read()) == tuple(j * (i + 1) + 1 if j < 10 + i else 0 for j in range(64))


def test_replays_in_flight_keep_their_own_arguments(gpu: GpuDevice):
    """The GPU waits while many replays are recorded, each with other arguments."""
    scale = gpu.load(image(gpu), "scale", args=SCALE)
    a, out = gpu.alloc(256), gpu.alloc(256)
    a.write(struct.pack("<64f", *[1.0] * 64))
    go = gpu.signal("go")
    graph = gpu.graph()
    graph.dispatch(scale, [out, a, 64, Symbol("f", "float"), 0.0], block=(64, 1, 1))
    gpu.queue().wait(go, 1).submit()
    first, second = graph.replay({"f": 2.0}), graph.replay({"f": 3.0})
    assert not first.is_done
    go.set(1)
    second.wait()
    assert floats(out.read()) == (3.0,) * 64


def test_a_graph_holds_kernels_copies_fills_and_signals_in_order(gpu: GpuDevice):
    increment = gpu.load(image(gpu), "increment")
    a, b = gpu.alloc(256), gpu.alloc(256)
    signal = gpu.signal()
    graph = gpu.graph().fill(a, 5, value_bytes=4)
    graph.dispatch(increment, [a], block=(64, 1, 1)).copy(b, a).dispatch(increment, [b], block=(64, 1, 1))
    graph.dispatch(increment, [b], block=(64, 1, 1)).signal(signal, 3)
    for _ in range(5):
        graph.replay().wait()
        assert struct.unpack("<64I", b.read()) == (8,) * 64
        assert signal.value == 3
        signal.set(0)
        b.write(bytes(256))


def test_a_replay_with_wrong_keys_or_kinds_says_so(gpu: GpuDevice):
    increment = gpu.load(image(gpu), "increment")
    graph = gpu.graph("g")
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
        gpu.graph("empty").replay()


def test_nothing_is_recorded_after_the_first_replay(gpu: GpuDevice):
    a = gpu.alloc(64)
    graph = gpu.graph("g").fill(a, 1)
    graph.replay().wait()
    with pytest.raises(UsageError, match="was replayed already"):
        graph.fill(a, 2)
