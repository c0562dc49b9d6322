"""Graphs: recorded once, replayed with one packet; only changed words are written, and never under running work."""

from __future__ import annotations

import struct

import pytest

from hcq.cpu.device import CpuDevice
from hcq.errors import UsageError
from hcq.graph import Graph, Symbol


def record(device: CpuDevice, llvm_object: bytes, count: int = 3) -> Graph:
    step = device.load(llvm_object, "step", args=("buffer", "int"))
    graph = device.graph("steps")
    for _ in range(count):
        graph.dispatch(step, [Symbol("out"), Symbol("k", "int")])
    return graph


def value(buffer: object) -> int:
    return int(struct.unpack("<q", buffer.read(0, 8))[0])  # type: ignore[attr-defined]


def test_a_replay_runs_what_was_recorded_with_the_values_given(cpu: CpuDevice, llvm_object: bytes) -> None:
    graph = record(cpu, llvm_object)
    one, two = cpu.alloc(8), cpu.alloc(8)
    one.write(bytes(8))
    two.write(bytes(8))
    graph.replay({"out": one, "k": 1})
    graph.replay({"out": two, "k": 2})
    done = graph.replay({"out": one, "k": -5})
    done.wait()
    assert value(one) == ((13 * 3 - 5) * 3 - 5) * 3 - 5
    assert value(two) == 26


def test_a_graph_is_one_packet_and_patches_only_its_patch_points(cpu: CpuDevice, llvm_object: bytes) -> None:
    graph = record(cpu, llvm_object, 100)
    out = cpu.alloc(8)
    out.write(bytes(8))
    assert [len(points) for points in graph.patch_points.values()] == [100, 100]
    before = cpu._put
    graph.replay({"out": out, "k": 0}).wait()
    assert cpu._put - before == 12  # one Indirect, one Signal
    assert {point.argument_index for point in graph.patch_points["k"]} == {1}


def test_a_replay_never_writes_words_of_one_in_flight(cpu: CpuDevice, llvm_object: bytes) -> None:
    step = cpu.load(llvm_object, "step", args=("buffer", "int"))
    graph = cpu.graph()
    gate = cpu.signal("gate")
    outs = [cpu.alloc(8) for _ in range(2)]
    for out in outs:
        out.write(bytes(8))
    graph.dispatch(step, [Symbol("out"), Symbol("k", "int")])
    graph.replay({"out": outs[0], "k": 0}).wait()
    cpu.queue().wait(gate, 1).submit()
    graph.replay({"out": outs[0], "k": 7})
    last = graph.replay({"out": outs[1], "k": 9})
    assert not last.is_done
    gate.set(1)
    third = graph.replay({"out": outs[0], "k": 1})
    third.wait()
    assert [value(out) for out in outs] == [22, 9]


def test_a_new_signal_takes_no_memory_of_a_graph_that_was_dropped_and_is_in_flight(cpu: CpuDevice) -> None:
    gate, out = cpu.signal("gate"), cpu.alloc(8)
    cpu.queue().wait(gate, 1).submit()
    cpu.graph("dropped").fill(out, 7).submit()
    signals = [cpu.signal() for _ in range(20)]
    gate.set(1)
    assert out.read() == b"\7" * 8
    assert [signal.value for signal in signals] == [0] * 20


def test_hundreds_of_replays_stay_in_order(cpu: CpuDevice, llvm_object: bytes) -> None:
    graph = record(cpu, llvm_object)
    out = cpu.alloc(8)
    out.write(bytes(8))
    expected = 0
    for k in range(300):
        graph.replay({"out": out, "k": k})
        for _ in range(3):
            expected = (expected * 3 + k) % 2**64
    assert value(out) % 2**64 == expected


def test_graphs_hold_copies_fills_floats_and_more_arguments_than_registers(
    cpu: CpuDevice, llvm_object: bytes
) -> None:
    mixed = cpu.load(llvm_object, "mixed")
    out, copy = cpu.alloc(32), cpu.alloc(32)
    graph = cpu.graph("mixed")
    graph.fill(out, 0).dispatch(
        mixed,
        [Symbol("o"), Symbol("a", "float"), 2, 3.5, 4, 5, 6, 7, Symbol("h", "int"), Symbol("i", "float")],
        grid=(4, 1, 1),
        groups_per_claim=4,
    ).copy(copy, out)
    for a, h, i in ((1.5, 88, 9.25), (2, -3, -0.125)):
        graph.replay({"o": out, "a": a, "h": h, "i": i}).wait()
        assert struct.unpack("<2dqq", copy.read()) == (a, i, h, 4)


def test_a_graph_without_symbols_is_submitted_like_a_queue(cpu: CpuDevice) -> None:
    out = cpu.alloc(8)
    graph = cpu.graph().fill(out, 5)
    graph.submit().wait()
    cpu.queue().fill(out, 0).submit()
    graph.submit()
    assert out.read() == b"\5" * 8


def test_buffers_recorded_in_a_graph_stay_alive_with_it(cpu: CpuDevice) -> None:
    source = cpu.alloc(64)
    source.write(b"g" * 64)
    target = cpu.alloc(64)
    graph = cpu.graph().copy(target, source)
    del source
    other = cpu.alloc(64)
    other.write(b"x" * 64)
    graph.submit()
    assert target.read() == b"g" * 64


def test_the_first_replay_value_may_be_the_stand_ins_address(cpu: CpuDevice, llvm_object: bytes) -> None:
    graph = record(cpu, llvm_object, 1)
    assert graph._stand_in_buffer is not None
    stand_in = graph._stand_in_buffer
    stand_in.write(bytes(64))
    graph.replay({"out": stand_in, "k": 6}).wait()
    assert value(stand_in) == 6


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"k": 1}, r"missing \['out'\], unknown \[\]"),
        ({}, r"missing \['out', 'k'\]"),
        ({"out": "buffer", "k": 1, "z": 2}, r"unknown \['z'\]"),
        ({"out": 5, "k": 1}, r"'out' is a buffer, got 5"),
        ({"out": "buffer", "k": 1.5}, r"'k' is a int, got 1.5"),
        ({"out": "buffer", "k": "buffer"}, r"'k' is a int, got Buffer"),
        ({"out": "buffer", "k": 2**64}, r"'k' is 18446744073709551616; it does not fit 64 bits"),
        ({"out": "freed", "k": 1}, "was freed"),
        ({"out": "foreign", "k": 1}, "is not on CPU"),
    ],
)
def test_a_replay_with_wrong_values_is_refused(
    cpu: CpuDevice, four_threads: CpuDevice, llvm_object: bytes, values: dict[str, object], message: str
) -> None:
    graph = record(cpu, llvm_object)
    out, freed = cpu.alloc(8), cpu.alloc(8)
    freed.free()
    named = {"buffer": out, "freed": freed, "foreign": four_threads.alloc(8)}
    with pytest.raises(UsageError, match=message):
        graph.replay({key: named.get(v, v) if isinstance(v, str) else v for key, v in values.items()})


def test_what_cannot_be_recorded_is_refused(cpu: CpuDevice, llvm_object: bytes) -> None:
    graph = record(cpu, llvm_object)
    step = cpu.load(llvm_object, "step", args=("buffer", "int"))
    with pytest.raises(UsageError, match=r"Symbol\('out', 'int'\) was a buffer in an earlier dispatch"):
        graph.dispatch(step, [Symbol("b"), Symbol("out", "int")])
    with pytest.raises(UsageError, match=r"argument 0 of step is a buffer, got Symbol\('k', 'int'\)"):
        cpu.graph().dispatch(step, [Symbol("k", "int"), 1])
    with pytest.raises(UsageError, match="unknown kind 'bufer'"):
        Symbol("x", "bufer")
    with pytest.raises(UsageError, match="nothing was recorded"):
        cpu.graph().replay()
    out = cpu.alloc(8)
    graph.replay({"out": out, "k": 1})
    with pytest.raises(UsageError, match="was replayed already; record into a new one"):
        graph.fill(out)
