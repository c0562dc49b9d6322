"""Checks of an open device: memory, queue, kernel, copy, timestamp, peers. The same for every kind.

In       a Device
Out      what was found and measured; Failure when the device answers, but wrongly
Changes  buffers and submissions of the device; the buffers are freed again
Next     kernels.py (the kernel), examine.py (who asks)
"""

from __future__ import annotations

import struct
import time
import zlib
from typing import TYPE_CHECKING

from hcq.doctor.check import Failure, Found, Skip
from hcq.doctor.kernels import ENTRY, Tiny, expected

if TYPE_CHECKING:
    from hcq.device import Device

ELEMENTS = 1024
ROUND_TRIPS = 100
PAUSE_S = 0.05
RATE_TOLERANCE = 0.01


class Sizes:
    """How much work a check does. An emulated device is a thousand times slower, and its figures mean little."""

    def __init__(self, is_emulated: bool) -> None:
        self.memory_bytes = (64 << 10) if is_emulated else (16 << 20)
        self.round_trips = 5 if is_emulated else ROUND_TRIPS
        self.repeats = 1 if is_emulated else 5


def pattern(size_bytes: int, seed: int) -> bytes:
    """Bytes that no misplaced page or dropped word leaves unnoticed: every 4 KiB block is another one."""
    block = bytes((seed + 7 * index) % 251 for index in range(4096 - 8))
    return b"".join(block + struct.pack("<Q", index) for index in range(size_bytes // 4096))


def memory(device: Device, sizes: Sizes) -> Found:
    """A buffer holds what the host writes there; how fast it is written and read.

    Raises Failure with the first wrong byte.
    """
    buffer = device.alloc(sizes.memory_bytes, "doctor memory")
    try:
        data = pattern(sizes.memory_bytes, 1)
        write_s = read_s = float("inf")
        for _ in range(sizes.repeats):
            start = time.perf_counter()
            buffer.write(data)
            middle = time.perf_counter()
            back = buffer.read()
            write_s, read_s = (min(write_s, middle - start), min(read_s, time.perf_counter() - middle))
            if back != data:
                raise Failure(
                    f"{_difference(back, data)} of {len(data)}: memory does not keep what the host wrote.",
                    "run a memory test; on a GPU: sudo dmesg | grep -iE 'ecc|mce|xid|ras'",
                )
    finally:
        buffer.free()
    write, read = _rate(len(data), write_s), _rate(len(data), read_s)
    return Found(
        f"{_size(len(data))} written and read back by the host: {write:.2f} and {read:.2f} GB/s",
        {"size_bytes": len(data), "write_gb_per_s": round(write, 3), "read_gb_per_s": round(read, 3)},
    )


def queue(device: Device, sizes: Sizes) -> Found:
    """Empty submissions come back, one after the other; how long one takes."""
    times = []
    before = device.timeline.value
    for _ in range(sizes.round_trips):
        start = time.perf_counter()
        device.queue().barrier().submit().wait()
        times.append(1e6 * (time.perf_counter() - start))
    done = device.timeline.value - before
    if done != sizes.round_trips:
        raise Failure(
            f"{sizes.round_trips} submissions were made, and the timeline rose by {done}.",
            "HCQ_DEBUG=push,sync python -m hcq doctor  # and report what it prints",
        )
    best, middle = min(times), sorted(times)[len(times) // 2]
    return Found(
        f"{done} submissions there and back: {middle:.0f} us each, {best:.0f} us at best",
        {"round_trip_us": round(middle, 1), "best_round_trip_us": round(best, 1)},
    )


def kernel(device: Device, small: Tiny | None, sizes: Sizes) -> Found:
    """The device's own small kernel computes what it must.

    Raises Skip when the doctor has none for the architecture.
    """
    if small is None:
        raise Skip(f"no kernel for {device.arch} comes with the doctor")
    program = device.load(small.image, ENTRY)
    values = [index * 2654435761 % 2**32 for index in range(ELEMENTS)]
    out, a = device.alloc(4 * ELEMENTS, "doctor out"), device.alloc(4 * ELEMENTS, "doctor a")
    try:
        a.write(struct.pack(f"<{ELEMENTS}I", *values))
        out.write(bytes(4 * ELEMENTS))
        times = []
        for _ in range(sizes.round_trips):
            start = time.perf_counter()
            device.run(program, **small.launch(out, a, ELEMENTS))
            times.append(1e6 * (time.perf_counter() - start))
        _check_result(out.read(), values, f"kernel {ENTRY}")
    finally:
        out.free()
        a.free()
    middle = sorted(times)[len(times) // 2]
    return Found(
        f"{ENTRY} over {ELEMENTS} elements is right: {middle:.0f} us from launch to result",
        {"launch_us": round(middle, 1), "best_launch_us": round(min(times), 1)},
    )


def copy(device: Device, sizes: Sizes) -> Found:
    """A copy between two buffers arrives whole; how fast it is."""
    size = sizes.memory_bytes
    dst, src = device.alloc(size, "doctor dst"), device.alloc(size, "doctor src")
    try:
        data = pattern(size, 2)
        src.write(data)
        dst.write(bytes(size))
        best_s = float("inf")
        for _ in range(sizes.repeats):
            start = time.perf_counter()
            device.queue().copy(dst, src).submit().wait()
            best_s = min(best_s, time.perf_counter() - start)
        arrived = dst.read()
    finally:
        dst.free()
        src.free()
    sent, got = zlib.crc32(data), zlib.crc32(arrived)
    if sent != got:
        raise Failure(
            f"checksum {got:08x} arrived and {sent:08x} was sent: {_difference(arrived, data)} of {size}.",
            "HCQ_TRACE=doctor.hcqtrace python -m hcq doctor  # and report the trace",
        )
    rate = _rate(size, best_s)
    return Found(
        f"{_size(size)} copied by the device, checksum {got:08x}: {rate:.2f} GB/s",
        {"size_bytes": size, "copy_gb_per_s": round(rate, 3), "crc32": f"{got:08x}"},
    )


def timestamp(device: Device) -> Found:
    """Two stamps with a pause between: how far apart they are is bounded from both sides by the host's clock."""
    signal = device.signal("doctor clock")
    edges, stamps = [], []
    for value in (1, 2):
        edges.append(time.monotonic_ns())
        device.queue().signal(signal, value).submit().wait()
        edges.append(time.monotonic_ns())
        stamps.append(signal.timestamp_ns)
        time.sleep(PAUSE_S if value == 1 else 0)
    between = stamps[1] - stamps[0]
    least, most = edges[2] - edges[1], edges[3] - edges[0]
    if between <= 0:
        raise Failure(
            f"the device's clock stood at {stamps[0]} ns and {PAUSE_S * 1000:.0f} ms later at {stamps[1]}: "
            "it does not rise.",
            "update the kernel driver; sudo dmesg | grep -iE 'clock|tsc|timer'",
        )
    if not least * (1 - RATE_TOLERANCE) <= between <= most * (1 + RATE_TOLERANCE):
        raise Failure(
            f"{between / 1e6:.3f} ms passed on the device and {least / 1e6:.3f} to {most / 1e6:.3f} ms on the host: "
            "the rate of its clock is not what its driver says.",
            "cat /sys/devices/system/clocksource/clocksource0/current_clocksource  # should be tsc or arch_sys_counter",
        )
    offset = stamps[1] - edges[3]
    return Found(
        f"{between / 1e6:.2f} ms on the device, {least / 1e6:.2f} to {most / 1e6:.2f} ms on the host",
        {
            "device_ms": round(between / 1e6, 3),
            "host_ms": round(least / 1e6, 3),
            "offset_us": round(offset / 1e3, 1),
        },
    )


def peers(device: Device, small: Tiny | None, others: list[Device]) -> Found:
    """Let this device's kernel read each neighbour's memory."""
    if not others:
        raise Skip("there is no second device of this kind")
    if not device.shares_memory or small is None:
        raise Skip(f"devices of kind {device.name.partition(':')[0]} do not share memory")
    values = [index * 40503 % 2**32 for index in range(ELEMENTS)]
    program = device.load(small.image, ENTRY)
    for other in others:
        out, theirs = device.alloc(4 * ELEMENTS, "doctor out"), other.alloc(4 * ELEMENTS, "doctor peer")
        try:
            theirs.write(struct.pack(f"<{ELEMENTS}I", *values))
            if not device.can_reach(theirs):
                raise Failure(
                    f"{device.name} cannot be given memory of {other.name}: the kernel driver refuses to map it.",
                    "in the firmware's setup: resizable BAR and above-4G decoding on; on the kernel's command line: "
                    "iommu=pt",
                )
            device.run(program, **small.launch(out, theirs, ELEMENTS))
            _check_result(out.read(), values, f"a kernel of {device.name} that reads memory of {other.name}")
        finally:
            out.free()
            theirs.free()
    names = ", ".join(other.name for other in others)
    return Found(f"reads the memory of {names}", {"peers": len(others)})


def _check_result(got: bytes, values: list[int], what: str) -> None:
    right = struct.pack(f"<{len(values)}I", *expected(values))
    if got == right:
        return
    numbers = struct.unpack(f"<{len(values)}I", got)
    wrong = [index for index, number in enumerate(expected(values)) if numbers[index] != number]
    first = wrong[0]
    raise Failure(
        f"{what}: {len(wrong)} of {len(values)} elements are wrong; the first is [{first}] = {numbers[first]}, not "
        f"{expected(values)[first]}.",
        "HCQ_TRACE=doctor.hcqtrace python -m hcq doctor  # and report the trace",
    )


def _difference(got: bytes, wanted: bytes) -> str:
    wrong = [index for index in range(len(wanted)) if got[index] != wanted[index]]
    return f"{len(wrong)} bytes differ, the first at {wrong[0]},"


def _rate(size_bytes: int, seconds: float) -> float:
    return size_bytes / max(seconds, 1e-9) / 1e9


def _size(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"
