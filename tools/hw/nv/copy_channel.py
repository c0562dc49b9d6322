"""A copy channel of its own: copies by an engine that does not share the graphics engine's runlist.

In       the bench, with an open device
Out      Found: which engine, GB/s beside the one channel that carries everything; Failure where bytes are wrong
Changes  a channel group for a copy engine, a channel in it, a copy object: made and freed
Next     variants.py (who asks), hcq/nv/copy_channel.py (the channel), ladder.py (words straight into a ring)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hcq import command
from hcq.doctor.check import Failure, Found, Skip
from hcq.errors import WaitTimeout
from hcq.nv import copy_channel
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.structures import structure
from hcq.nv.fault import describe_ring
from hcq.nv.memory import Place
from hcq.nv.rings import GpFifo
from hcq.tools.hw.bench import REPORT_IT, Bench
from hcq.tools.hw.checks import rate, timed
from hcq.tools.hw.nv.ladder import Raw


def copies(bench: Bench) -> Found:
    """A copy there and back, how fast, and whether it waits for a kernel that runs meanwhile."""
    device, size = bench.device, bench.sizes.rate_bytes
    engine = own_engine(device)
    src, dst = bench.buffer(size, bytes(range(256)) * (size // 256)), bench.buffer(size)
    device.synchronize()
    with opened(device, engine) as raw:

        def copied() -> None:
            raw.done(
                "a copy by its own channel",
                device.encoder.encode(command.Copy(dst.address, src.address, size)),
            )

        copied()
        if dst.read() != src.read():
            raise Failure(f"copy engine {engine:#x}: {size} bytes came wrong.", REPORT_IT)
        own = min(timed(copied) for _ in range(bench.sizes.repeats))
        beside = during_kernel(bench, copied)
    one = min(
        timed(lambda: device.queue().copy(dst, src).submit().wait()) for _ in range(bench.sizes.repeats)
    )
    figures: dict[str, int | float | str] = {
        "copy_engine": engine,
        "own_gb_per_s": rate(size, own),
        "one_channel_gb_per_s": rate(size, one),
        "beside_a_kernel": beside,
    }
    return Found(
        f"{figures['own_gb_per_s']} GB/s by engine type {engine}, {figures['one_channel_gb_per_s']} by the one channel;"
        f" a copy {beside}",
        figures,
    )


def own_engine(device: Any) -> int:
    """The type of the first copy engine with a runlist of its own. Raises Skip where there is none."""
    engine = copy_channel.own_engine(device.rm, device.gpu.subdevice)
    if not engine:
        said = device.rm.control(device.gpu.subdevice, ControlId.NV2080_CTRL_CMD_CE_GET_ALL_CAPS).values
        raise Skip(f"every copy engine shares the graphics runlist: present {said['present']:#x}")
    return engine


@contextmanager
def opened(device: Any, engine: int) -> Iterator[Raw]:
    """The channel, with its first words submitted; everything is freed behind it."""
    memory, gpu = device.gpu_memory, device.gpu
    ring, notifier = (
        memory.alloc(size, Place.SYSTEM)
        for size in (GpFifo.size_bytes(), structure("Notification").size_bytes)
    )
    channel = copy_channel.CopyChannel(
        engine, memory, gpu.subdevice, gpu.vaspace, device.chip, gpu.doorbell, ring, notifier
    )
    raw = Raw(device, channel)
    try:
        raw.done("the copy object", raw.copy_object())
        yield raw
    except WaitTimeout as late:
        raise WaitTimeout(f"{late}. The copy channel: {describe_ring(channel)}") from None
    finally:
        channel.destroy()
        channel.fifo.detach()
        for one in (raw.area, ring, notifier):
            memory.free(one)


def during_kernel(bench: Bench, copied: Callable[[], None]) -> str:
    """Whether a copy is done while a kernel runs that only the host ends."""
    device, flag = bench.device, bench.device.signal("hw_check")
    out = bench.buffer(12 * 256)
    arguments = [out, flag.va, bench.sizes.patience]
    running = device.queue().dispatch(bench.programs("patient"), arguments, block=(256, 1, 1)).submit()
    try:
        copied()
        is_running = not running.is_done
    except WaitTimeout:
        is_running = False
    finally:
        flag.set(1)
        running.wait()
    return "was done while a kernel ran" if is_running else "waited for the kernel"
