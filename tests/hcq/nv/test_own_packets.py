"""Packets of a program's own on NVIDIA GPUs: methods between other commands, in graphs and in traces, and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hcq.errors import UsageError
from hcq.nv.abi import copy_methods as copy
from hcq.nv.abi import host_methods as host
from hcq.nv.abi.method import Method
from hcq.nv.abi.methods import incrementing, methods_of, semaphore
from hcq.nv.device import NvDevice
from hcq.trace.file import Trace

NOWHERE = 0x1000


def release(dev: NvDevice, va: int, value: int, **fields: int) -> tuple[Method, ...]:
    execute = host.SemExecute(operation=host.SemExecuteOperation.RELEASE, payload_size=1, **fields)
    return semaphore(va, value, execute, methods_of(dev.chip.engines.gpfifo)[host.SemAddrHi.at])


def transfer(dev: NvDevice, dst: int, src: int, size: int) -> list[Method]:
    methods = methods_of(dev.chip.engines.copy)
    return [
        methods[copy.OffsetInUpper.at](upper=src >> 32),
        copy.OffsetInLower(value=src & 0xFFFFFFFF),
        methods[copy.OffsetOutUpper.at](upper=dst >> 32),
        copy.OffsetOutLower(value=dst & 0xFFFFFFFF),
        copy.LineLengthIn(value=size),
        copy.LineCount(value=1),
        methods[copy.LaunchDma.at](
            data_transfer_type=copy.DataTransferType.NON_PIPELINED,
            src_memory_layout=copy.SrcMemoryLayout.PITCH,
            dst_memory_layout=copy.SrcMemoryLayout.PITCH,
            flush_enable=1,
        ),
    ]


def test_own_methods_run_between_the_commands_around_them(nv: NvDevice) -> None:
    a, b = nv.alloc(16, "a"), nv.alloc(16, "b")
    queue = nv.queue().fill(a, 1).packets(*release(nv, a.address, 40)).copy(b, a)
    queue.packets(*transfer(nv, b.address + 8, a.address, 8), ring="copy").fill(a, 2).submit().wait()
    assert b.read().hex() == "2800000000000000" * 2
    assert a.read() == b"\2" * 16


@pytest.mark.parametrize("options", [":seed=7", ":caches"])
def test_a_graph_replays_own_methods(open_nv: Callable[..., NvDevice], options: str) -> None:
    dev = open_nv(options=options, validate=True)
    a, b = dev.alloc(16, "a"), dev.alloc(16, "b")
    graph = dev.graph("step").packets(incrementing(0, *release(dev, a.address, 9))).copy(b, a)
    graph.packets(*transfer(dev, b.address + 8, a.address, 8), ring="copy").fill(a, 0)
    for _ in range(3):
        graph.replay().wait()
        assert (a.read(), b.read().hex()) == (bytes(16), "0900000000000000" * 2)


REFUSED: dict[str, tuple[Callable[[NvDevice, int], list[Any]], str, str]] = {
    "a store to nowhere": (lambda d, a: release(d, NOWHERE, 1), "compute", "8 bytes at 0x1000 as its store"),
    "a copy from nowhere": (
        lambda d, a: transfer(d, a, NOWHERE, 8),
        "copy",
        "8 bytes at 0x1000 as its source",
    ),
    "copies on the compute subchannel": (lambda d, a: transfer(d, a, a, 8), "compute", "has no method"),
    "a header without its words": (
        lambda d, a: [0x20020017, 0],
        "compute",
        "counts 2 words, and 1 are missing",
    ),
    "a method that nobody has": (lambda d, a: [0x20012FFF, 0], "compute", "has no method 0x3ffc"),
    "compute methods on the copy ring": (
        lambda d, a: [
            incrementing(1, methods_of(d.chip.engines.compute)[0x02B4](qmd_address_shifted8=a & ~255))
        ],
        "copy",
        "copy engine is on subchannel 4",
    ),
    "a QMD nowhere": (
        lambda d, a: [methods_of(d.chip.engines.compute)[0x02B4](qmd_address_shifted8=NOWHERE)],
        "compute",
        "256 bytes at 0x1000 as its QMD",
    ),
    "the end of the segment": (lambda d, a: [7 << 29], "compute", "it ends the segment"),
    "an unknown ring": (lambda d, a: [0], "dma", "no ring 'dma'"),
}


def test_what_cannot_be_right_is_refused_before_the_doorbell(open_nv: Callable[..., NvDevice]) -> None:
    dev = open_nv()
    a = dev.alloc(512, "a")
    for what, (make, ring, text) in REFUSED.items():
        queue = dev.queue()
        with pytest.raises(UsageError) as caught:
            queue.packets(*make(dev, a.address), ring=ring)
        assert text in str(caught.value), what
        assert queue.commands == []
    dev.queue().packets(*release(dev, a.address, 3)).submit().wait()
    assert a.read()[0] == 3


@pytest.mark.parametrize("fields", [{}, {"release_wfi": 1}, {"release_wfi": 1, "release_timestamp": 1}])
@pytest.mark.parametrize("size", [16, 64])
def test_values_in_an_ordinary_buffer_may_fall(
    open_nv: Callable[..., NvDevice], fields: dict[str, int], size: int
) -> None:
    dev = open_nv(validate=True)
    a = dev.alloc(size, "a")
    for value in (5, 5, 4):
        dev.queue().packets(*release(dev, a.address, value, **fields)).submit().wait()
        assert a.read()[0] == value
    dev.queue().fill(a, 0).submit().wait()
    gate = dev.signal("gate")
    dev.queue().packets(*release(dev, gate.va, 5, release_wfi=1, release_timestamp=1)).submit().wait()
    with pytest.raises(UsageError, match="signal-backwards"):
        dev.queue().signal(gate, 4).submit()


def test_a_trace_has_own_methods_by_name(open_nv: Callable[..., NvDevice], tmp_path: Path) -> None:
    path = str(tmp_path / "run.hcqtrace")
    dev = open_nv(trace=path)
    a = dev.alloc(16, "a")
    dev.queue().packets(incrementing(0, *release(dev, a.address, 1))).submit().wait()
    dev.close()
    trace = Trace.read(path)
    (own,) = [one for made in trace.submissions for one in made.commands if one["verb"] == "packets"]
    assert own["label"] == "compute: SEM_ADDR_LO+SEM_ADDR_HI+SEM_PAYLOAD_LO+SEM_PAYLOAD_HI+SEM_EXECUTE"
    assert any("SEM_EXECUTE(operation=RELEASE" in repr(packet) for packet in trace.submissions[-1].packets())
