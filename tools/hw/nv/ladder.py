"""The lower rungs of NVIDIA's ladder: words that this file puts into the ring itself, one idea more at each rung.

In       a device that has submitted nothing
Out      rungs: a release without and with WFI; GP_GET moves; SET_OBJECT; inline data; a copy; the driver's own setup
Changes  a buffer of pushbuffers and a cell; the channel's ring
Next     ../ladder.py (who climbs), hcq/nv/encode.py (the words that the driver submits)
Source   clc56f.h: SEM_EXECUTE, WFI; clc6c0.h: LOAD_INLINE_DATA
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

from hcq import command
from hcq.device import Steps
from hcq.doctor.check import Failure, Skip
from hcq.gpu.clock import Clock
from hcq.layout import Packet
from hcq.nv.abi import compute_methods as compute
from hcq.nv.abi import host_methods as host
from hcq.nv.abi.methods import COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL, incrementing, non_incrementing
from hcq.nv.device import NvDevice
from hcq.nv.memory import Place
from hcq.nv.rings import segment
from hcq.system import native
from hcq.tools.hw.ladder import expect, follows, wait_for
from hcq.tools.hw.rung import Rung

HOST_SUBCHANNEL = 0
AREA_BYTES, WORDS_AT, TARGET_AT = 1 << 16, 4096, 32768  # cells, then pushbuffers, then what is copied to
PROBE = "probe the channel"
SEM = host.SemExecuteOperation


def open_quietly(bench: Any) -> Any:
    """A device whose opening submits nothing: the first words in its ring are the first rung's."""
    steps = [("read the clock", _ask_rm) if step[0] == PROBE else step for step in NvDevice.steps.steps]
    return bench.open(steps=Steps(NvDevice.steps.title, *steps))


def _ask_rm(device: Any) -> None:
    """The clock as RM tells it, where no submission has shown it."""
    reading = device.read_clock()
    device.clock = Clock(reading.ticks, reading.host_ns)


class Raw:
    """Words straight into a channel's ring, the device's or another, and cells that they write."""

    def __init__(self, device: Any, channel: Any = None) -> None:
        self.device = device
        self.channel = channel or device.channel
        self.area = device.gpu_memory.alloc(AREA_BYTES, Place.SYSTEM)
        native.write(self.area.va, bytes(AREA_BYTES), AREA_BYTES)
        self.value = itertools.count(0x1001)
        self.at = WORDS_AT

    def push(self, *packets: Packet | bytes) -> None:
        """One segment with these methods, and the doorbell."""
        data = b"".join(one if isinstance(one, bytes) else one.to_bytes() for one in packets)
        va = self.area.va + self.at
        native.write(va, data, len(data))
        self.at += -(-len(data) // 256) * 256
        fifo = self.channel.fifo
        fifo.write([segment(va, len(data) // 4)], lambda count: None)
        fifo.commit()

    def copy_object(self) -> Packet:
        """SET_OBJECT of the copy class."""
        return incrementing(COPY_SUBCHANNEL, host.SetObject(nvclass=self.device.chip.engines.copy))

    def release(self, **how: int) -> tuple[int, bytes]:
        """A release of the next value into the cell: the value, and its words."""
        value = next(self.value)
        words = incrementing(
            HOST_SUBCHANNEL,
            host.SemAddrLo(offset=self.area.va & 0xFFFFFFFF),
            self.device.encoder._addr_hi(offset=self.area.va >> 32),
            host.SemPayloadLo(payload=value),
            host.SemPayloadHi(payload=0),
            host.SemExecute(operation=SEM.RELEASE, **how),
        )
        return value, words.to_bytes()

    def done(self, what: str, *packets: Packet | bytes, **how: int) -> None:
        """These methods and a release behind them; back when it is there."""
        value, release = self.release(**how)
        self.push(*packets, release)
        cell = native.view(self.area.va, 4).cast("I")
        wait_for(self.device, what, lambda: cell[0] == value)


def rungs(device: Any) -> Iterator[Rung]:
    """From nothing to what the driver's setup does."""
    raw = Raw(device)
    fifo = device.channel.fifo
    classes = device.chip.engines
    target = raw.area.va + TARGET_AT

    def empty() -> None:
        raw.push(non_incrementing(HOST_SUBCHANNEL, host.Nop, (0, 0)))
        try:
            follows(device, "GP_GET follows GP_PUT", lambda: fifo.get == fifo.put)
        except Failure as late:  # nothing of the driver depends on it
            raise Skip(f"this GPU may write GP_GET back when a channel is saved alone. {late.text}") from None

    def inline() -> None:
        data = bytes(range(64))
        raw.done(
            "inline data",
            incrementing(
                COMPUTE_SUBCHANNEL, compute.LineLengthIn(value=len(data)), compute.LineCount(value=1),
                compute.OffsetOutUpper(value=target >> 32), compute.OffsetOut(value=target & 0xFFFFFFFF),
            ),
            incrementing(COMPUTE_SUBCHANNEL, compute.LaunchDma(dst_memory_layout=1, completion_type=1)),
            non_incrementing(COMPUTE_SUBCHANNEL, compute.LoadInlineData, struct.unpack("<16I", data)),
            release_wfi=1,
        )  # fmt: skip
        expect(target, data, "inline data")

    def copy() -> None:
        data = bytes(range(256)) * 16
        native.write(raw.area.va + TARGET_AT + 8192, data, len(data))
        raw.done("a copy of 4 KiB", device.encoder.encode(command.Copy(target, target + 8192, len(data))))
        expect(target, data, "a copy of 4 KiB")

    yield "release", "a semaphore release without WFI", lambda: raw.done("a release")
    yield (
        "empty segment",
        "GP_GET follows a segment of NOPs, where it is written back while a channel runs",
        empty,
    )
    yield (
        "release 64",
        "64 bits and a timestamp",
        lambda: raw.done("a release", payload_size=1, release_timestamp=1),
    )
    yield (
        "release wfi",
        "a release that waits for idle engines",
        lambda: raw.done("a release with WFI", release_wfi=1),
    )
    yield (
        "compute object",
        "SET_OBJECT of the compute class",
        lambda: raw.done(
            "SET_OBJECT",
            incrementing(COMPUTE_SUBCHANNEL, host.SetObject(nvclass=classes.compute)),
            release_wfi=1,
        ),
    )
    yield (
        "copy object",
        "SET_OBJECT of the copy class",
        lambda: raw.done("SET_OBJECT", raw.copy_object(), release_wfi=1),
    )
    yield (
        "wfi",
        "WFI of all engines",
        lambda: raw.done("WFI", incrementing(HOST_SUBCHANNEL, host.Wfi(scope=host.Scope.ALL))),
    )
    yield (
        "setup",
        "what the driver sets up before its first launch",
        lambda: raw.done("setup", device.encoder.setup(), device.encoder.new_code, release_wfi=1),
    )
    yield "inline data", "LOAD_INLINE_DATA of the compute class", inline
    yield "copy 4 KiB", "the copy engine, its semaphore and the wait for it", copy
    yield PROBE, "the first submissions of opening, which also set the clock", device.probe_channel
