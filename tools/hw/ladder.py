"""The ladder: from an empty segment in a ring to a kernel with memory of its own, up to the first rung that fails.

In       the bench; the vendor's rungs, which are words in a ring, and the rungs above, which are the device's own verbs
Out      Found with what each rung took; Failure that names the first that failed, with the rungs below it
Changes  a device that was opened without its first submission; its rings, memory, launches
Next     nv/ladder.py, amd/ladder.py (the lower rungs), hcq/doctor/checks.py (the same questions, coarser)

A rung that is wrong does not end the climb; one that does not come back does, because nothing behind it will.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from hcq.doctor import checks as doctor_checks
from hcq.doctor.check import Failure, Found, Skip
from hcq.errors import DeviceFault, HcqError, WaitTimeout
from hcq.system import native
from hcq.tools.hw import kernels
from hcq.tools.hw.bench import REPORT_IT, Bench
from hcq.tools.hw.kernels import pack, unpack, words
from hcq.tools.hw.plan import of_vendor
from hcq.tools.hw.rung import Rung

LITTLE_S = 1.0  # for what proves little


def ladder(bench: Bench) -> Found:
    """Every rung, what it took, and the first that failed."""
    vendor = of_vendor(bench.kind, "ladder")
    device = vendor.open_quietly(bench)
    bench.device = device  # the one that evidence is about and programs are loaded for
    rows: list[dict[str, Any]] = []
    failed, fatal = "", False
    for name, about, act in (*vendor.rungs(device), *_verbs(bench, device)):
        row: dict[str, Any] = {"rung": name, "about": about}
        rows.append(row)
        if fatal:
            row["result"] = "not tried"
            continue
        row["result"], fatal = climb(act, row)
        if row["result"] != "ok" and not row["result"].startswith("skipped"):
            failed = failed or name
            bench.keep_evidence()
    bench.write("ladder.json", rows)
    reached = sum(row["result"] == "ok" for row in rows)
    if failed:
        why = next(row["result"] for row in rows if row["rung"] == failed)
        good = ", ".join(row["rung"] for row in rows if row["result"] == "ok")
        raise Failure(f"rung {failed!r} failed: {why[:300]}. Rungs that held: {good or 'none'}.", REPORT_IT)
    return Found(
        f"{reached} of {len(rows)} rungs hold", {row["rung"]: row.get("us", row["result"]) for row in rows}
    )


def climb(act: Callable[[], Any], row: dict[str, Any]) -> tuple[str, bool]:
    """One rung: "ok" or why not, and whether the device can be expected to go on. `row` gets the time it took."""
    start = time.perf_counter()
    try:
        act()
    except Skip as reason:
        return f"skipped: {reason}", False
    except (WaitTimeout, DeviceFault) as error:
        return str(error), True
    except Failure as failure:
        return failure.text, False
    except (HcqError, OSError) as error:
        return str(error), True
    row["us"] = round(1e6 * (time.perf_counter() - start), 1)
    return "ok", False


def _verbs(bench: Bench, device: Any) -> Iterator[Rung]:
    """Above the vendor's words: the device's own verbs, and then kernels, one feature at a time."""
    sizes = doctor_checks.Sizes(bench.is_emulated)
    yield "submission", "an empty submission and its timeline", lambda: doctor_checks.queue(device, sizes)
    yield "memory", "what the host writes is there", lambda: doctor_checks.memory(device, sizes)
    yield "copy", "a copy by the device's own words", lambda: doctor_checks.copy(device, sizes)
    yield from _kernels(bench)


def _kernels(bench: Bench) -> Iterator[Rung]:
    n, block = 256, {"block": (256, 1, 1)}
    x = words(n)

    def of(name: str, wanted: Callable[[], list[int]]) -> Callable[[], None]:
        def act() -> None:
            source, out = bench.buffer(4 * n, pack(x)), bench.buffer(4 * n)
            bench.device.run(bench.programs(name), [out, source], **block)
            got = unpack(out.read(0, 4 * len(wanted())))
            if got != wanted():
                wrong = next(at for at, (one, other) in enumerate(zip(got, wanted())) if one != other)
                raise Failure(
                    f"{name}: result {wrong} is {got[wrong]:#x}, not {wanted()[wrong]:#x}", REPORT_IT
                )

        return act

    def store() -> None:
        out = bench.buffer(4 * n)
        bench.device.run(bench.programs("step"), [out, n], **block)
        if unpack(out.read()) != [kernels.stepped(1)] * n:
            raise Failure(f"step stored {unpack(out.read())[:4]}", REPORT_IT)

    def total() -> None:
        source, out = bench.buffer(4 * n, pack(x)), bench.buffer(4)
        bench.device.run(bench.programs("warp_total"), [out, source], **block)
        if unpack(out.read()) != [sum(x) & kernels.M32]:
            raise Failure(f"the sum is {unpack(out.read())[0]:#x}, not {sum(x) & kernels.M32:#x}", REPORT_IT)

    yield "empty kernel", "a launch that does nothing", lambda: bench.device.run(bench.programs("nothing"))
    yield "store", "a kernel that stores", store
    yield "shared", "shared memory and a barrier", of("block_sums", lambda: [sum(x) & kernels.M32])
    yield "atomic", "lanes and an atomic", total
    yield "local", "memory of each thread's own", of("local_memory", lambda: kernels.local_results(x))


def wait_for(device: Any, what: str, is_done: Callable[[], bool], most_s: float = math.inf) -> None:
    """Until something is so. Raises DeviceFault or WaitTimeout with what the rings say."""
    timeout_s = min(device.config.timeout_ms / 1000, most_s)
    end = time.perf_counter() + timeout_s
    while not is_done():
        if why := device.stopped_on():
            raise DeviceFault(f"{what}: {why}.")
        if time.perf_counter() > end:
            rings = "; ".join(
                f"{ring.name}: get {ring.get}, put {ring.put}, {ring.packet}" for ring in device.ring_states()
            )
            raise WaitTimeout(f"{what}: waited {timeout_s:g} s. {rings}")


def follows(device: Any, what: str, is_done: Callable[[], bool]) -> None:
    """Until something is so that proves little by itself. Raises Failure, for what comes next may well hold."""
    try:
        wait_for(device, what, is_done, LITTLE_S)
    except WaitTimeout as late:
        raise Failure(str(late), REPORT_IT) from None


def expect(va: int, wanted: bytes, what: str) -> None:
    """Raise Failure where memory holds something else."""
    got = native.read(va, len(wanted))
    if got != wanted:
        raise Failure(f"{what}: {got.hex()[:64]} is there, not {wanted.hex()[:64]}", REPORT_IT)
