"""Packets of a program's own on the CPU device: between other commands, in graphs, in traces; refused in a sentence."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hcq
from hcq import config
from hcq.cpu import packets
from hcq.cpu.device import CpuDevice
from hcq.errors import UsageError
from hcq.layout import Packet, bits
from hcq.trace.file import Trace


@contextmanager
def opened(**switches: Any) -> Iterator[CpuDevice]:
    device = CpuDevice("CPU", None, dataclasses.replace(config.current(), **switches))
    yield device
    device.close(timeout_ms=1000)


def fill(buffer: hcq.Buffer, pattern: int, size_bytes: int = 8) -> packets.Fill:
    return packets.Fill(dst=buffer.address, pattern=pattern, size_bytes=size_bytes)


def test_own_packets_run_between_the_commands_around_them(cpu: CpuDevice) -> None:
    a, b, c = (cpu.alloc(8, name) for name in "abc")
    copy = packets.Copy(dst=b.address, src=a.address, size_bytes=8)
    cpu.queue().fill(a, 1).packets(copy).fill(a, 2).packets(fill(c, 3), ring="copy").submit().wait()
    assert (a.read(), b.read(), c.read()) == (b"\2" * 8, b"\1" * 8, b"\3" + bytes(7))


def test_layouts_words_and_bytes_make_one_call(cpu: CpuDevice) -> None:
    a = cpu.alloc(8, "a")
    made = fill(a, 7)
    queue = cpu.queue().packets(made, *packets.Nop().words, made.to_bytes())
    assert queue.words == made.to_bytes() + packets.Nop().to_bytes() + made.to_bytes()
    assert str(queue.commands[0]) == "packets Fill, Nop, Fill on the compute ring"


def test_a_buffer_that_a_packet_names_is_kept_and_read_after_it(cpu: CpuDevice) -> None:
    gate, a = cpu.signal("gate"), cpu.alloc(8, "a")
    a.write(bytes(8))
    queue = cpu.queue().wait(gate, 1).packets(fill(a, 5))
    done = queue.submit()
    assert a.last == done.value
    gate.set(1)
    assert a.read() == b"\5" + bytes(7)


def test_buffers_in_uses_live_until_the_work_is_done(cpu: CpuDevice) -> None:
    gate = cpu.signal("gate")
    done = cpu.queue().wait(gate, 1).packets(packets.Nop(), uses=[held := cpu.alloc(4096, "held")]).submit()
    assert held.last == done.value
    va = held.address
    del held
    gc.collect()
    assert cpu.is_mapped(va, 4096, "write")
    gate.set(1)
    done.wait()


def test_a_graph_runs_own_packets_at_each_replay(cpu: CpuDevice) -> None:
    a, b = cpu.alloc(8, "a"), cpu.alloc(8, "b")
    graph = cpu.graph("step").packets(fill(a, 9)).copy(b, a).fill(a, 0)
    for _ in range(3):
        b.write(bytes(8))
        graph.replay().wait()
        assert (a.read(), b.read()) == (bytes(8), b"\x09" + bytes(7))
    with pytest.raises(UsageError, match="replayed already"):
        graph.packets(packets.Nop())


def launch(queue: Any, groups: int, entry: int) -> packets.Dispatch:
    slots = queue.device.machine.integer_registers
    return packets.Dispatch(
        length=12 + 2 * slots,
        entry=entry,
        groups=groups,
        grid_x=1,
        grid_y=1,
        grid_z=1,
        arguments=[0] * 2 * slots,
    )


NOWHERE = 0x1000
REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "an unknown ring": (
        lambda q, a: q.packets(packets.Nop(), ring="dma"),
        r"no ring 'dma'\. Its rings: compute, copy",
    ),
    "nothing": (lambda q, a: q.packets(), "no packet was given"),
    "half a packet": (lambda q, a: q.packets(fill(a, 1).to_bytes()[:12]), "word 0 of 3 on the compute ring"),
    "odd bytes": (lambda q, a: q.packets(b"\0\0\2"), "3 bytes are no whole number of 32-bit words"),
    "a long packet": (
        lambda q, a: q.packets(packets.Fill(length=10, dst=a.address), 0, 0),
        "are no whole packets",
    ),
    "an unknown opcode": (lambda q, a: q.packets(0x20099, 0), "knows no opcode 153"),
    "a string": (
        lambda q, a: q.packets("nop"),
        "takes layouts of hcq.layout, 32-bit words or bytes, not 'nop'",
    ),
    "a negative word": (lambda q, a: q.packets(-1), "takes layouts"),
    "a buffer for a list of them": (
        lambda q, a: q.packets(packets.Nop(), uses=a),
        "uses takes a list of buffers",
    ),
    "the timeline": (
        lambda q, a: q.packets(packets.Signal(signal=q.device.timeline.va, value=9)),
        "writes to the timeline of the device",
    ),
    "a number for a buffer": (lambda q, a: q.packets(packets.Nop(), uses=[3]), "takes a Buffer, not 3"),
    "a fill of nowhere": (
        lambda q, a: q.packets(packets.Fill(dst=NOWHERE, size_bytes=8)),
        "8 bytes at 0x1000 as its dest",
    ),
    "a fill past all memory": (
        lambda q, a: q.packets(fill(a, 0, 1 << 46)),
        "not all mapped for this device to write",
    ),
    "a copy from nowhere": (
        lambda q, a: q.packets(packets.Copy(dst=a.address, src=NOWHERE, size_bytes=8)),
        "as its source",
    ),
    "a launch without its slots": (
        lambda q, a: q.packets(packets.Dispatch(length=14, entry=a.address, arguments=(0, 0))),
        "it has 2 argument words, and its header says",
    ),
    "a launch of more groups than its grid": (
        lambda q, a: q.packets(launch(q, groups=2, entry=a.address)),
        "its grid has 1 groups, and groups says 2",
    ),
    "a launch of what is no code": (
        lambda q, a: q.packets(launch(q, groups=1, entry=a.address)),
        "not all mapped for this device to run",
    ),
    "a block nowhere": (
        lambda q, a: q.packets(packets.Indirect(address=NOWHERE, size_words=2)),
        "as its block",
    ),
    "a signal nowhere": (lambda q, a: q.packets(packets.Signal(signal=NOWHERE, value=1)), "as its signal"),
}


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_right_is_one_sentence_before_the_doorbell(what: str, validate: bool) -> None:
    call, text = REFUSED[what]
    with opened(validate=validate) as dev:
        a = dev.alloc(8, "a")
        queue = dev.queue()
        with pytest.raises(UsageError, match=text):
            call(queue, a)
        assert queue.commands == []
        queue.packets(fill(a, 1)).submit().wait()
        assert a.read() == b"\1" + bytes(7)


def test_memory_that_may_only_be_read_is_not_filled(cpu: CpuDevice) -> None:
    with open("/proc/self/maps", encoding="utf-8") as lines:
        only_read = next(line for line in lines if line.split()[1].startswith("r--"))
    va = int(only_read.split("-")[0], 16)
    with pytest.raises(UsageError, match="not all mapped for this device to write"):
        cpu.queue().packets(packets.Fill(dst=va, size_bytes=8))


def test_a_trace_names_own_packets(tmp_path: Path) -> None:
    path = tmp_path / "run.hcqtrace"
    with opened(trace=str(path)) as dev:
        a = dev.alloc(8, "a")
        dev.queue().packets(fill(a, 1), packets.Nop(), ring="copy").submit().wait()
    trace = Trace.read(str(path))
    (made,) = [one for one in trace.submissions if one.commands]
    own = next(command for command in made.commands if command["verb"] == "packets")
    assert (own["label"], own["size_words"]) == ("copy: Fill, Nop", 10)
    assert "Fill" in [type(packet).__name__ for packet in made.packets()]


class Stored(Packet, words=4):
    """Somebody's own packet."""

    opcode = bits(7, 0, default=0x55)
    length = bits(31, 16, default=4)
    place = bits(127, 64, address="write")


def test_a_declared_address_of_a_packet_from_outside_is_checked(
    cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(packets.PACKETS, 0x55, Stored)
    a = cpu.alloc(8, "a")
    queue = cpu.queue().packets(Stored(place=a.address))
    assert str(queue.commands[0]) == "packets Stored on the compute ring"
    with pytest.raises(UsageError, match="1 bytes at 0x1000 as its place"):
        cpu.queue().packets(Stored(place=NOWHERE))


def test_a_field_is_an_address_to_read_or_to_write() -> None:
    with pytest.raises(UsageError, match="say what is done there, read or write"):
        bits(31, 0, address="both")
