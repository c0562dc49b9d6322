"""The checks: what a GPU driven by hcq must do, each in a process of its own, with figures.

In       the bench
Out      Found with text and figures; Failure when the device answers wrongly, Skip when it cannot be asked
Changes  the device: memory, launches; two checks make it fault on purpose and see it come back
Next     plan.py (their order), kernels.py (what is launched), vendor.py (the vendor's figures), experiments.py
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from statistics import median
from typing import Any

import hcq
from hcq import config
from hcq.doctor import report
from hcq.doctor.check import Failure, Found, Skip
from hcq.doctor.examine import examine
from hcq.tools.hw import kernels
from hcq.tools.hw.bench import REPORT_IT, Bench
from hcq.tools.hw.kernels import pack, unpack, words


def same(got: list[Any], wanted: list[Any], what: str) -> None:
    """Raise Failure that says where the first difference is."""
    wrong = [index for index, (a, b) in enumerate(zip(got, wanted)) if a != b]
    if wrong or len(got) != len(wanted):
        first = (
            f"number {wrong[0]} is {got[wrong[0]]!r}, not {wanted[wrong[0]]!r}"
            if wrong
            else f"{len(got)} came"
        )
        raise Failure(f"{what}: {len(wrong)} of {len(wanted)} results are wrong; {first}.", REPORT_IT)


def rate(size_bytes: int, seconds: float) -> float:
    """GB/s."""
    return round(size_bytes / seconds / 1e9, 2)


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# ------------------------------------------------------------ what works


def doctor(bench: Bench) -> Found:
    """The doctor's checks: can the device be reached and opened, is its memory sound."""
    found = examine(device=bench.name, emulated=config.current().emulate)
    text = report.as_text(found)
    if not found.is_well:
        raise Failure(text, "do what the first failed check of the doctor says")
    checks = [check for run in found.runs for check in run.checks]
    return Found(
        f"{len(checks)} checks, {sum(check.status.value == 'ok' for check in checks)} ok",
        {"text": text, "json": report.as_json(found)},
    )


def opening(bench: Bench) -> Found:
    """Which device, driver and interface; one submission comes back, without which nothing else is worth its wait."""
    facts = {
        key: value for key, value in bench.device.facts().items() if isinstance(value, (int, float, str))
    }
    driver = facts.get("driver", facts.get("kfd_version", ""))
    took = timed(lambda: bench.device.queue().submit().wait())
    note = getattr(getattr(bench.device, "abi", None), "note", "")
    text = (
        f"{facts.get('model', bench.device.arch)}, driver {driver}, open in {bench.open_s:.2f} s, the first submission "
        f"back in {1e6 * took:.0f} us"
    )
    figures = {"open_s": round(bench.open_s, 3), "submission_us": round(1e6 * took, 1), "note": note}
    return Found(f"{text}. {note}".rstrip(), {**facts, **figures})


def launches(bench: Bench) -> Found:
    """Thousands of launches in order, each needing the one before it."""
    sizes, count, threads = bench.sizes, bench.sizes.launches, 4096
    program = bench.programs("step")
    x = bench.buffer(4 * threads)
    launch = {"args": [x, threads], "grid": (threads // 256, 1, 1), "block": (256, 1, 1)}
    single = count // 2
    start = time.perf_counter()
    for _ in range(single):
        bench.device.queue().dispatch(program, **launch).submit()
    bench.device.synchronize()
    one_s = (time.perf_counter() - start) / single
    start = time.perf_counter()
    for _ in range((count - single) // sizes.batch):
        queue = bench.device.queue()
        for _ in range(sizes.batch):
            queue.dispatch(program, **launch)
        queue.submit()
    bench.device.synchronize()
    done = single + (count - single) // sizes.batch * sizes.batch
    batch_s = (time.perf_counter() - start) / (done - single)
    same(unpack(x.read()), [kernels.stepped(done)] * threads, f"{done} launches")
    return Found(
        f"{done} launches in order: {1e6 * one_s:.2f} us each, {1e6 * batch_s:.2f} us in submissions of {sizes.batch}",
        {"launches": done, "launch_us": round(1e6 * one_s, 3), "batched_launch_us": round(1e6 * batch_s, 3)},
    )


def latency(bench: Bench) -> Found:
    """From a launch to knowing that it is done."""
    program = bench.programs("nothing")
    times = sorted(1e6 * timed(lambda: bench.device.run(program)) for _ in range(bench.sizes.round_trips))
    slow = times[int(0.99 * (len(times) - 1))]
    return Found(
        f"launch to done: median {median(times):.1f} us, best {times[0]:.1f}, one in a hundred over {slow:.1f}",
        {"latency_us": round(median(times), 2), "best_us": round(times[0], 2), "p99_us": round(slow, 2)},
    )


def arguments(bench: Bench) -> Found:
    """Every size of argument, by value, and a structure."""
    out = bench.buffer(64)
    given = (-5, -300, -70_000, -(1 << 40), 0.1, -2.5)
    pair = struct.pack("<dc7x", 6.25, b"z")
    bench.device.run(bench.programs("arguments"), [out, *given, pair])
    wanted = [
        -5.0,
        -300.0,
        -70000.0,
        -float(1 << 40),
        struct.unpack("<f", struct.pack("<f", 0.1))[0],
        -2.5,
        6.25,
        122.0,
    ]
    same(list(struct.unpack("<8d", out.read())), wanted, "arguments")
    return Found("signed char to double and a structure arrive as they were passed", {"arguments": 8})


def features(bench: Bench) -> Found:
    """What kernels are made of: shared memory, barriers, warps, atomics, divergence, local and constant memory."""
    n = bench.sizes.elements
    x = words(n)
    block_sums, warp_total, collatz, local_memory, precise = bench.programs(
        "block_sums", "warp_total", "collatz", "local_memory", "precise"
    )
    source, out, total = bench.buffer(4 * n, pack(x)), bench.buffer(4 * n), bench.buffer(4)
    run, grid = bench.device.run, {"grid": (n // 256, 1, 1), "block": (256, 1, 1)}
    run(block_sums, [out, source], **grid)
    sums = [sum(x[at : at + 256]) & kernels.M32 for at in range(0, n, 256)]
    same(unpack(out.read(0, 4 * len(sums))), sums, "shared memory and barriers")
    run(warp_total, [total, source], **grid)
    same(unpack(total.read()), [sum(x) & kernels.M32], "lanes and atomics")
    run(collatz, [out, n], **grid)
    same(unpack(out.read()), kernels.collatz_steps(n), "divergence")
    run(local_memory, [out, source], **grid)
    same(unpack(out.read())[:2048], kernels.local_results(x[:2048]), "local and constant memory")
    numbers = [index / 7 - 3 for index in range(32)]
    doubles, results = bench.buffer(256, struct.pack("<32d", *numbers)), bench.buffer(256)
    run(precise, [results, doubles], block=(32, 1, 1))
    # one rounding for the product and the sum, as exact rationals know it
    from fractions import Fraction

    wanted = [float(Fraction(value) ** 2 - 2) / 3.0 for value in numbers]
    same(list(struct.unpack("<32d", results.read())), wanted, "double precision and FMA")
    return Found(
        "barriers, shared memory, lanes, atomics, divergence, local and constant memory, float64: all right",
        {"elements": n},
    )


def copies(bench: Bench) -> Found:
    """Bytes to the device, on the device and back, of many sizes and alignments, with checksums."""
    checked = 0
    for size in bench.sizes.copies:
        block = bytes((7 * index + size) % 251 for index in range(4093))
        data = (block * (size // len(block) + 1))[:size]
        src, dst = (
            bench.device.alloc(size + 64, "hw_check src"),
            bench.device.alloc(size + 64, "hw_check dst"),
        )
        for src_offset, dst_offset in ((0, 0), (1, 0), (3, 17), (64, 5)):
            dst.write(b"\xee" * 96 if size > 32 else bytes(b"\xee" * (size + 64)))
            src.write(data, src_offset)
            bench.device.queue().copy(dst, src, size, dst_offset, src_offset).submit()
            back = dst.read(dst_offset, size)
            if zlib.crc32(back) != zlib.crc32(data):
                same(
                    list(back[:4096]),
                    list(data[:4096]),
                    f"copy of {size} bytes from +{src_offset} to +{dst_offset}",
                )
                raise Failure(f"copy of {size} bytes: another checksum behind the first 4096.", REPORT_IT)
            checked += 1
        before = dst.read(0, min(5, size))
        if before[:5] != b"\xee" * len(before):
            raise Failure(
                f"copy of {size} bytes to +5 changed bytes before its place: {before.hex()}.", REPORT_IT
            )
        src.free()
        dst.free()
    largest = bench.sizes.copies[-1]
    return Found(f"{checked} copies of up to {largest >> 20} MiB arrive whole", {"copies": checked})


def bandwidth(bench: Bench) -> Found:
    """How fast bytes go in, across and out; and through a kernel."""
    size = bench.sizes.rate_bytes
    src, dst = bench.device.alloc(size, "hw_check src"), bench.device.alloc(size, "hw_check dst")
    data, back = bytearray(size), bytearray(size)
    repeats = bench.sizes.repeats
    program = bench.programs("stream")
    count = size // 16
    threads = {"args": [dst, src, count], "grid": (-(-count // 256), 1, 1), "block": (256, 1, 1)}

    def best(work: Callable[[], object]) -> float:
        return min(timed(work) for _ in range(repeats))

    figures = {
        "size_bytes": size,
        "to_device_gb_per_s": rate(size, best(lambda: src.write(data))),
        "from_device_gb_per_s": rate(size, best(lambda: dst.read_into(back))),
        "copy_gb_per_s": rate(size, best(lambda: bench.device.queue().copy(dst, src).submit().wait())),
        "kernel_gb_per_s": rate(2 * size, best(lambda: bench.device.run(program, **threads))),
    }
    return Found(
        f"{size >> 20} MiB: {figures['to_device_gb_per_s']} GB/s in, {figures['from_device_gb_per_s']} out, "
        f"{figures['copy_gb_per_s']} copied on the device, a kernel reads and writes {figures['kernel_gb_per_s']}",
        figures,
    )


def timestamps(bench: Bench) -> Found:
    """Stamps between launches rise, and what lies between the first and the last is within the host's measure."""
    count = 20
    program, stamps = bench.programs("nothing"), bench.buffer(8 * (count + 1))
    queue = bench.device.queue().timestamp(stamps, 0)
    for index in range(count):
        queue.dispatch(program).timestamp(stamps, 8 * (index + 1))
    start = time.monotonic_ns()
    queue.submit().wait()
    host_ns = time.monotonic_ns() - start
    seen = list(struct.unpack(f"<{count + 1}Q", stamps.read()))
    gaps = [bench.device.duration_ns(after - before) for before, after in zip(seen, seen[1:])]
    if min(gaps) < 0 or 0 in seen:
        raise Failure(f"stamps around {count} launches do not rise: {seen}.", REPORT_IT)
    whole = bench.device.duration_ns(seen[-1] - seen[0])
    if whole > host_ns * 1.02:
        raise Failure(
            f"{whole} ns between stamps, and the host saw {host_ns} ns pass around them.", REPORT_IT
        )
    return Found(
        f"{count} launches between stamps: {median(gaps) / 1000:.2f} us each on the device",
        {"device_launch_us": round(median(gaps) / 1000, 3), "whole_us": round(whole / 1000, 1)},
    )


def graphs(bench: Bench) -> Found:
    """Recorded launches, replayed with one doorbell."""
    program, x = bench.programs("step"), bench.buffer(4096)
    graph = bench.device.graph("hw_check")
    steps = 20
    for _ in range(steps):
        graph.dispatch(program, [x, 1024], grid=(4, 1, 1), block=(256, 1, 1))
    graph.replay().wait()
    replays = bench.sizes.replays
    start = time.perf_counter()
    for _ in range(replays):
        graph.replay()
    bench.device.synchronize()
    each = 1e6 * (time.perf_counter() - start) / replays
    same(unpack(x.read()), [kernels.stepped(steps * (replays + 1))] * 1024, f"{replays + 1} replays")
    return Found(
        f"{replays} replays of {steps} launches: {each:.1f} us each, {each / steps:.2f} us a launch",
        {"replays": replays, "replay_us": round(each, 2), "graph_launch_us": round(each / steps, 3)},
    )


# ------------------------------------------------------------ what goes wrong


def _must_stop(
    bench: Bench, name: str, args: list[Any], wanted: str, timeout_ms: float | None = None
) -> Found:
    """A kernel that goes wrong is reported by its name, and the device works again, or says that it cannot.

    timeout_ms  of a kernel that never ends; an error must come by itself, before the wait's own limit
    """
    device = bench.device
    program, good = bench.programs(name, "step")
    start = time.perf_counter()
    message, lost, ended_by_host = "", "", False
    try:
        device.queue().dispatch(program, args).submit().wait(timeout_ms=timeout_ms)
    except hcq.DeviceFault as fault:
        message = str(fault)
    except hcq.WaitTimeout as late:
        message, ended_by_host = str(late), True
        device.reset()
    if not message:
        raise Failure(f"{name}: nothing was noticed; {wanted} was due.", REPORT_IT)
    bench.keep_evidence()
    if ended_by_host and timeout_ms is None:
        raise Failure(
            f"{name}: {wanted} was due, and only the host's patience ended: {message[:300]}", REPORT_IT
        )
    if name not in message:
        raise Failure(f"{name}: the message does not name the kernel: {message[:300]}", REPORT_IT)
    try:
        x = bench.buffer(1024, name="hw_check after")
        device.run(good, [x, 256], block=(256, 1, 1))
        same(unpack(x.read()), [kernels.stepped(1)] * 256, f"a launch after {name}")
    # a kernel driver may want another process after a fault: the device says so
    except hcq.HcqError as refusal:
        if not device.dead and not isinstance(refusal, hcq.UsageError):
            raise
        lost = str(refusal)
    took = round(time.perf_counter() - start, 2)
    how = f"reported, and this process cannot go on ({lost[:150]})" if lost else "reported and recovered from"
    return Found(
        f"{how} in {took} s: {message[:150]}", {"report": message[:2000], "lost": lost, "took_s": took}
    )


def fault(bench: Bench) -> Found:
    """A store far outside of every buffer."""
    x = bench.buffer(4096, name="hw_check near")
    return _must_stop(bench, "stray", [x, 1 << 34], "a page fault")


def trap(bench: Bench) -> Found:
    """A trap instruction."""
    return _must_stop(bench, "trap", [], "an exception")


def hang(bench: Bench) -> Found:
    """A kernel that never ends: the wait ends at its deadline, and the device works again."""
    flag = bench.buffer(4, name="hw_check flag")
    return _must_stop(bench, "forever", [flag], "a timeout", bench.sizes.hang_ms)


def after(bench: Bench) -> Found:
    """Another process after faults and hangs: it opens the GPU, and a kernel is right."""
    x = bench.buffer(1024)
    bench.device.run(bench.programs("step"), [x, 256], block=(256, 1, 1))
    same(unpack(x.read()), [kernels.stepped(1)] * 256, "a launch of another process")
    return Found(f"open in {bench.open_s:.2f} s, and a launch is right", {"open_s": round(bench.open_s, 3)})


def capture(bench: Bench) -> Found:
    """A small run for the trace recorder: ioctls, pushbuffers, descriptions of launches. The parent names its file."""
    if bench.device.config.trace is None:
        raise Skip("nothing records here: hw_check sets HCQ_TRACE for this one")
    program, sums = bench.programs("step", "block_sums")
    x, out = bench.buffer(4096, pack(words(1024)), "x"), bench.buffer(4096, name="out")
    queue = bench.device.queue().dispatch(program, [x, 1024], grid=(4, 1, 1), block=(256, 1, 1))
    queue.dispatch(sums, [out, x], grid=(4, 1, 1), block=(256, 1, 1)).copy(x, out).submit().wait()
    graph = bench.device.graph("captured")
    graph.dispatch(program, [x, 1024], grid=(4, 1, 1), block=(256, 1, 1))
    for _ in range(2):
        graph.replay().wait()
    return Found("recorded", {"value": bench.device.timeline.value})
