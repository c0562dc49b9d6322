"""Experiments with NVIDIA GPUs alone: what manuals leave open and the driver does not depend on.

In       the bench
Out      Found with what the hardware said; Failure where it is not what the driver counts on
Changes  a device: launches, channels that are made and ended
Next     ../experiments.py (those of all vendors), ../plan.py (their order), docs/hardware.md (what each settles)
Source   dev_ram.ref, dev_pbdma.ref (GA100): GP_GET, CONFIG_USERD_WRITEBACK; clc361.h: TIME_0
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from hcq import command
from hcq.doctor.check import Failure, Found
from hcq.errors import DeviceFault, DriverError
from hcq.nv import channel
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.gpfifo import USERMODE_DOORBELL, USERMODE_TIME_0
from hcq.nv.channel import Channel
from hcq.nv.memory import Place
from hcq.nv.rings import GpFifo
from hcq.tools.hw.bench import REPORT_IT, Bench
from hcq.tools.hw.checks import timed
from hcq.tools.hw.nv.variants import with_qmd

PATIENCE_S = 0.2
BUSY_ENTRIES, MANY_ENTRIES, MANY_EMULATED = 20, 5_000, 300
ACCESSES = 1_000
FAR = 1 << 36  # from any buffer
ENGINE = re.compile(r"\b(?:ENGINE |HUBCLIENT_)?(CE\d+)\b")


def bare_kernel(bench: Bench) -> Found:
    """A launch description that binds nothing, for a kernel that is one EXIT: QMD and code, and no constant bank."""
    bench.device = device = bench.open(**with_qmd(constant_buffer_valid_0=0)())
    device.run(bench.programs("nothing"))
    return Found(
        "a lone EXIT ran without constant bank 0: launch descriptions are taken, whatever banks say", {}
    )


def gp_get(bench: Bench) -> Found:
    """How long after its work is done GP_GET says that entries were read, if it says so at all."""
    device = bench.device
    fifo = device.channel.fifo

    def says() -> int:
        return int(fifo._get[0])

    def followed(place: Callable[[], int]) -> float:
        """Microseconds until GP_GET is at a place of the ring; -1 where it does not get there."""
        start = time.perf_counter()
        while says() != place() % fifo.entries:
            if time.perf_counter() - start > PATIENCE_S:
                return -1.0
        return round(1e6 * (time.perf_counter() - start), 1)

    device.queue().submit().wait()
    figures: dict[str, int | float | str] = {"idle_us": followed(lambda: fifo.put)}
    flag, out = device.signal("hw_check"), bench.buffer(12 * 256)
    before = fifo.put
    arguments = [out, flag.va, bench.sizes.patience]
    device.queue().dispatch(bench.programs("patient"), arguments, block=(256, 1, 1)).submit()
    for _ in range(BUSY_ENTRIES):
        device.queue().submit()
    time.sleep(PATIENCE_S)
    figures["busy_entries"] = (says() - before) % fifo.entries
    flag.set(1)
    device.synchronize()
    figures["after_busy_us"] = followed(lambda: fifo.put)
    many = MANY_EMULATED if bench.is_emulated else MANY_ENTRIES
    for _ in range(many):
        device.queue().submit()
    device.synchronize()
    figures["after_many_us"] = followed(lambda: fifo.put)
    figures.update(many=many, says=says(), put=fifo.put % fifo.entries)
    late = [name for name in ("idle_us", "after_busy_us", "after_many_us") if float(figures[name]) < 0]
    how = (
        f"does not follow ({', '.join(late)})"
        if late
        else f"follows {figures['idle_us']} us behind the timeline"
    )
    return Found(
        f"GP_GET {how}; beside a kernel it moved by {figures['busy_entries']} of {BUSY_ENTRIES + 1} entries; "
        "the driver counts by its timeline",
        figures,
    )


def copy_fault(bench: Bench) -> Found:
    """A copy from where nothing is: the error says by which engine, and the device works again."""
    device, x = bench.device, bench.buffer(4096)
    lost = device.encode(command.Copy(x.address, x.address + FAR, 4096))
    try:
        device.submit([lost], []).wait()
    except DeviceFault as fault:
        said = str(fault)
    else:
        raise Failure("a copy from where nothing is was not noticed; a page fault was due.", REPORT_IT)
    bench.keep_evidence()
    again = bench.buffer(4096, bytes(range(256)) * 16)
    device.queue().copy(x, again).submit().wait()
    if x.read() != again.read():
        raise Failure(f"a copy after the fault is wrong. The fault: {said[:300]}", REPORT_IT)
    engines = sorted(set(ENGINE.findall(said)))
    who = (
        ", ".join(engines)
        or "an engine that is not named where this process may read it: see the kernel's log"
    )
    return Found(
        f"reported and recovered from; the copy was done by {who}", {"engines": who, "report": said[:2000]}
    )


def doorbell(bench: Bench) -> Found:
    """A page with a cache would give an old time, and take no time for it. The stores ring for what is there anyway."""
    device = bench.device
    page = device.gpu.doorbell.cast("I")
    at, clock = USERMODE_DOORBELL // 4, USERMODE_TIME_0 // 4
    token = device.channel.fifo.token
    plain = memoryview(bytearray(4096)).cast("I")

    def each_ns(words: Any, place: int, is_load: bool) -> float:
        def act() -> None:
            for _ in range(ACCESSES):
                if is_load:
                    words[place]
                else:
                    words[place] = token

        return round(1e9 * timed(act) / ACCESSES, 1)

    figures: dict[str, int | float | str] = {
        "store_ns": each_ns(page, at, False), "store_in_memory_ns": each_ns(plain, at, False),
        "load_ns": each_ns(page, clock, True), "load_in_memory_ns": each_ns(plain, clock, True),
        "through_bar0": device.channel.fifo.reads_put_back, "memory": device.facts()["memory"],
    }  # fmt: skip
    device.queue().submit().wait()
    first = page[clock]
    time.sleep(PATIENCE_S)
    figures["clock_ns"] = (page[clock] - first) & 0xFFFFFFFF
    if not figures["clock_ns"]:
        raise Failure(
            f"TIME_0 stood still for {PATIENCE_S} s at {first:#x}: the page is read from a cache.", REPORT_IT
        )
    return Found(
        f"a store to the doorbell takes {figures['store_ns']} ns and a load {figures['load_ns']}; in memory they take "
        f"{figures['store_in_memory_ns']} and {figures['load_in_memory_ns']}; its clock runs",
        figures,
    )


def copy_engines(bench: Bench) -> Found:
    """Of each number whether RM makes a copy object of it on the graphics runlist; ours is among them."""
    device = bench.device
    gpu, memory = device.gpu, device.gpu_memory
    channels: Any = channel  # whose number is another one in each round
    caps = device.rm.control(gpu.subdevice, ControlId.NV2080_CTRL_CMD_CE_GET_ALL_CAPS).values
    usual = channels.GRAPHICS_COPY_ENGINE
    ring = memory.alloc(GpFifo.size_bytes(), Place.SYSTEM)
    notifier = memory.alloc(4096, Place.SYSTEM)
    said: dict[str, int | float | str] = {
        "present": hex(caps["present"]),
        "caps": hex(caps["capstbl"]),
        "ours": usual,
    }
    taken = []
    try:
        for number in range(int(caps["present"]).bit_length()):
            channels.GRAPHICS_COPY_ENGINE = number
            try:
                made = Channel(memory, gpu.subdevice, gpu.vaspace, device.chip, gpu.doorbell, ring, notifier)
            except DriverError as refusal:
                said[f"engine_{number}"] = str(refusal)[:200]
                continue
            made.destroy()
            made.fifo.detach()
            said[f"engine_{number}"] = "taken"
            taken.append(number)
    finally:
        channels.GRAPHICS_COPY_ENGINE = usual
        for one in (ring, notifier):
            memory.free(one)
    return Found(
        f"copy engines {taken} are taken on the graphics runlist, of {caps['present']:#x}; ours is {usual}",
        said,
    )
