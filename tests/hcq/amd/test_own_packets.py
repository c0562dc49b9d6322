"""Packets of a program's own on AMD GPUs: PM4, AQL and SDMA between other commands, in graphs and traces, refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hcq.amd.abi import aql, pm4
from hcq.amd.chip import CHIPS
from hcq.amd.device import AmdDevice
from hcq.errors import UsageError
from hcq.layout import bits
from hcq.observe.lint import lint
from hcq.trace.file import Trace

NOWHERE = 0x1000


def store(address: int, *words: int) -> pm4.WriteData:
    return pm4.WriteData(address=address, data=words, wr_confirm=1)


def write(dev: AmdDevice, address: int, *words: int) -> Any:
    return dev.chip.copies.write(dst_addr=address, count=len(words) - 1, data=words)


@pytest.mark.parametrize("options", ["", ":seed=7", ":caches"])
@pytest.mark.parametrize("queue", ["pm4", "aql"])
def test_own_packets_of_both_rings_keep_the_order_of_the_calls(
    open_amd: Callable[..., AmdDevice], queue: str, options: str
) -> None:
    dev = open_amd("gfx1100", queue=queue, options=options, validate=True)
    a, b = dev.alloc(16, "a"), dev.alloc(16, "b")
    queue_of = dev.queue().fill(a, 1).packets(store(a.address, 5, 6)).copy(b, a)
    queue_of.packets(write(dev, b.address + 8, 7), ring="copy").fill(a, 2).submit().wait()
    assert b.read().hex() == "05000000" + "06000000" + "07000000" + "01010101"
    assert a.read() == b"\2" * 16


def test_own_packets_are_right_on_every_chip(amd: AmdDevice) -> None:
    a, b = amd.alloc(8, "a"), amd.alloc(8, "b")
    amd.queue().packets(store(a.address, 40, 2)).copy(b, a).packets(
        write(amd, a.address, 3, 4), ring="copy"
    ).submit().wait()
    assert (a.read().hex(), b.read().hex()) == ("0300000004000000", "2800000002000000")


@pytest.mark.parametrize("queue", ["pm4", "aql"])
def test_a_graph_replays_own_packets_of_both_rings(open_amd: Callable[..., AmdDevice], queue: str) -> None:
    dev = open_amd("gfx1100", queue=queue, options=":seed=3", validate=True)
    a, b = dev.alloc(16, "a"), dev.alloc(16, "b")
    graph = dev.graph("step").fill(b, 0).packets(store(a.address, 9)).copy(b, a)
    graph.packets(write(dev, b.address + 8, 3), ring="copy").fill(a, 0)
    for _ in range(3):
        graph.replay().wait()
        assert (b.read()[:4], b.read()[8:12]) == (b"\x09\0\0\0", b"\3\0\0\0")
        assert a.read() == bytes(16)


def test_an_aql_ring_takes_packets_of_its_own_language(open_amd: Callable[..., AmdDevice]) -> None:
    dev = open_amd("gfx1100", queue="aql", validate=True)
    barrier = aql.BarrierAnd(barrier=1)
    dev.queue().packets(barrier, barrier).submit().wait()
    with pytest.raises(UsageError, match="starts no packet of AQL"):
        dev.queue().packets(aql.Header(type=aql.PacketType.INVALID), *[0] * 15)
    with pytest.raises(UsageError, match="cut off"):
        dev.queue().packets(barrier.to_bytes()[:32])


REFUSED: dict[str, tuple[Callable[[AmdDevice, int], Any], str, str]] = {
    "a store to nowhere": (lambda d, a: store(NOWHERE, 1), "compute", "4 bytes at 0x1000 as its destination"),
    "a short WRITE_DATA": (
        lambda d, a: store(a, 1).to_bytes()[:16],
        "compute",
        "counts 5 words, which are not there, or no length of WriteData",
    ),
    "PM4 on the copy ring": (lambda d, a: store(a, 1), "copy", "copy ring reads SDMA"),
    "SDMA on the compute ring": (lambda d, a: write(d, a, 1), "compute", "starts no packet of PM4"),
    "a write with a word too few": (
        lambda d, a: d.chip.copies.write(dst_addr=a, count=1, data=(1,)),
        "copy",
        "starts no packet of SDMA of gfx1100, which the copy ring reads, or one that is cut off",
    ),
    "a write to nowhere": (lambda d, a: write(d, NOWHERE, 1), "copy", "4 bytes at 0x1000"),
    "an unknown opcode": (lambda d, a: 0xC0001E00, "compute", "starts no packet of PM4"),
    "an unknown ring": (lambda d, a: store(a, 1), "dma", "no ring 'dma'. Its rings: compute, copy"),
    "a block nowhere": (
        lambda d, a: pm4.IndirectBuffer(ib_base=NOWHERE, ib_size=4),
        "compute",
        "as its block",
    ),
    "a wait nowhere": (
        lambda d, a: pm4.WaitRegMem(mem_space=pm4.MemSpace.MEMORY, address=NOWHERE),
        "compute",
        "as its signal",
    ),
}


def test_what_cannot_be_right_is_refused_before_the_doorbell(open_amd: Callable[..., AmdDevice]) -> None:
    dev = open_amd("gfx1100")
    a = dev.alloc(16, "a")
    for what, (make, ring, text) in REFUSED.items():
        queue = dev.queue()
        with pytest.raises(UsageError) as caught:
            queue.packets(make(dev, a.address), ring=ring)
        assert text in str(caught.value), what
        assert queue.commands == []
    dev.queue().packets(store(a.address, 1)).submit().wait()
    assert a.read()[:4] == b"\1\0\0\0"


@pytest.mark.parametrize("offset", [0, 8, 24])
def test_values_in_an_ordinary_buffer_may_fall(open_amd: Callable[..., AmdDevice], offset: int) -> None:
    dev = open_amd("gfx1100", validate=True)
    a = dev.alloc(64, "a")
    for value in (5, 5, 4):
        release = dev.chip.release(
            data_sel=pm4.DataSel.SEND_64_BIT_DATA, address=a.address + offset, data=value
        )
        dev.queue().packets(release).submit().wait()
        assert a.read()[offset] == value
        fence = dev.chip.copies.fence(address=a.address + 40, data=value)
        dev.queue().packets(fence, ring="copy").submit().wait()
        assert a.read()[40] == value
    dev.queue().fill(a, 0).submit().wait()
    gate = dev.signal("gate")
    dev.queue().packets(
        dev.chip.release(data_sel=pm4.DataSel.SEND_64_BIT_DATA, address=gate.va, data=5)
    ).submit()
    with pytest.raises(UsageError, match="signal-backwards"):
        dev.queue().signal(gate, 4).submit()


def test_a_trace_has_own_packets_by_name(open_amd: Callable[..., AmdDevice], tmp_path: Path) -> None:
    path = str(tmp_path / "run.hcqtrace")
    dev = open_amd("gfx1100", trace=path)
    a = dev.alloc(16, "a")
    dev.queue().packets(store(a.address, 1), pm4.NopWord()).submit().wait()
    dev.close()
    trace = Trace.read(path)
    own = [one for made in trace.submissions for one in made.commands if one["verb"] == "packets"]
    assert [one["label"] for one in own] == ["compute: WriteData, NopWord"]
    packets = [packet for made in trace.submissions for packet in made.packets()]
    assert "WriteData" in {type(packet).__name__ for packet in packets}


@pytest.mark.parametrize("queue", ["pm4", "aql"])
def test_lint_finds_nothing_in_a_trace_of_fences_of_ones_own(
    open_amd: Callable[..., AmdDevice], queue: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "run.hcqtrace")
    dev = open_amd("gfx1100", queue=queue, trace=path, validate=True)
    a, b = dev.alloc(64, "a"), dev.alloc(64, "b")
    for value in (5, 4):
        fence = dev.chip.copies.fence(address=a.address + 16, data=value)
        work = dev.queue().fill(a, 1).packets(fence, ring="copy").copy(b, a)
        work.packets(store(b.address, value)).copy(a, b).submit().wait()
        dev.queue().packets(fence, ring="copy").submit().wait()  # it begins and ends on the copy ring
        dev.queue().packets(fence, ring="copy").packets(store(b.address, value)).submit().wait()
    dev.close()
    assert [str(finding) for finding in lint(Trace.read(path))] == []


class AtomicMem(pm4.Pm4, opcode=0x1E, words=9):  # type: ignore[arg-type]
    """A packet that somebody else declares."""

    atomic = bits(38, 32)
    address = bits(127, 64, address="write")
    source = bits(191, 128)


def test_a_packet_declared_outside_is_known_by_name_and_by_its_address(
    open_amd: Callable[..., AmdDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = open_amd("gfx1100", timeout_ms=2000)
    a = dev.alloc(16, "a")
    with pytest.raises(UsageError, match="starts no packet"):
        dev.queue().packets(AtomicMem(address=a.address))
    monkeypatch.setitem(CHIPS["gfx1100"].packets, 0x1E, AtomicMem)
    queue = dev.queue().packets(AtomicMem(address=a.address, source=1))
    assert str(queue.commands[0]) == "packets AtomicMem on the compute ring"
    assert isinstance(dev.decode(memoryview(queue.words).cast("I"))[0], AtomicMem)
    with pytest.raises(UsageError, match="1 bytes at 0x1000 as its address"):
        dev.queue().packets(AtomicMem(address=NOWHERE))
