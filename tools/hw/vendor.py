"""The vendor's figures: launches and copies through libcuda or HIP, measured as checks.py measures ours.

In       the vendor's library, where it is installed; kernels of kernels.tar.xz
Out      figures under the names that checks.py gives its own
Changes  makes a context in this process, which is a process of its own
Next     checks.py (our figures), driver_api.py (how the library is called), watch.py (the same library, watched)

NVIDIA's library runs on NVIDIA's GPUs alone, as its licence wants it: on an emulated GPU this is left out.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from hcq.doctor.check import Found, Skip
from hcq.tools.hw import kernels
from hcq.tools.hw.bench import HARDWARE, Bench
from hcq.tools.hw.checks import timed
from hcq.tools.hw.driver_api import API, DriverApi


class Work(NamedTuple):
    """How much to measure."""

    round_trips: int
    launches: int
    rate_bytes: int
    repeats: int


def vendor(bench: Bench) -> Found:
    """The vendor's figures for the same work, where its runtime is installed."""
    if bench.is_emulated:
        raise Skip("the device is emulated; the vendor's runtime would measure another one")
    api = DriverApi(API[bench.kind])  # nothing of ours is open: the library has this process for itself
    arch = api.open(bench.number)
    work = Work(HARDWARE.round_trips, HARDWARE.launches, HARDWARE.rate_bytes, HARDWARE.repeats)
    return figures(api, kernels.machine_code(arch), work)


def figures(api: DriverApi, image: bytes, work: Work) -> Found:
    """Latency of a launch, launches in a row, and bandwidths. Raises Failure naming the call that failed."""
    module = api.load(image)
    nothing, stream = api.function(module, "nothing"), api.function(module, "stream")

    def run() -> None:
        api.launch(nothing, 1, 1, ())
        api.synchronize()

    run()
    latency = sorted(timed(run) for _ in range(work.round_trips))
    start = time.perf_counter()
    for _ in range(work.launches):
        api.launch(nothing, 1, 1, ())
    api.synchronize()
    launch_s = (time.perf_counter() - start) / work.launches
    size = work.rate_bytes
    src, dst = api.alloc(size), api.alloc(size)
    host = (ctypes.c_char * size)()
    count = ctypes.c_uint(size // 16)

    def done(act: Callable[[], None]) -> Callable[[], None]:
        def go() -> None:
            act()
            api.synchronize()

        return go

    def gb_per_s(act: Callable[[], None], moved: int) -> float:
        go = done(act)
        return round(moved / min(timed(go) for _ in range(work.repeats)) / 1e9, 2)

    through = (ctypes.c_void_p(dst), ctypes.c_void_p(src), count)
    found: dict[str, int | float | str] = {
        "runtime": api.version(),
        "latency_us": round(1e6 * median(latency), 2),
        "best_us": round(1e6 * latency[0], 2),
        "launch_us": round(1e6 * launch_s, 3),
        "to_device_gb_per_s": gb_per_s(lambda: api.copy_in(src, host, size), size),
        "from_device_gb_per_s": gb_per_s(lambda: api.copy_out(host, dst, size), size),
        "copy_gb_per_s": gb_per_s(lambda: api.copy(dst, src, size), size),
        "kernel_gb_per_s": gb_per_s(
            lambda: api.launch(stream, -(-(size // 16) // 256), 256, through), 2 * size
        ),
    }
    return Found(
        f"{api.title} {found['runtime']}: launch to done {found['latency_us']} us, {found['launch_us']} us a "
        f"launch, {found['to_device_gb_per_s']} GB/s in, {found['from_device_gb_per_s']} out, "
        f"{found['copy_gb_per_s']} across",
        found,
    )
