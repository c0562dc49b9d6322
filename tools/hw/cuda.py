"""The vendor's figures: launches and copies through libcuda, measured as checks.py measures ours.

In       the driver library, where it is installed; a cubin of kernels.py
Out      figures under the names that checks.py gives its own
Changes  makes a CUDA context in this process: hw_check runs this in a process of its own
Next     checks.py (our figures), hcq/native.py (how a library is called)
Source   CUDA Driver API: cuLaunchKernel, cuMemcpyHtoD_v2, ...
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

from hcq import native
from hcq.doctor.check import Failure, Found, Skip

KERNELS = ("nothing", "stream")  # of kernels.py
NAMES = ("libcuda.so.1", "libcuda.so")
PROTOTYPES = {
    "cuInit": "int(*)(unsigned int)",
    "cuDriverGetVersion": "int(*)(int *)",
    "cuDeviceGet": "int(*)(int *, int)",
    "cuDevicePrimaryCtxRetain": "int(*)(uintptr_t *, int)",
    "cuCtxSetCurrent": "int(*)(uintptr_t)",
    "cuCtxSynchronize": "int(*)(void)",
    "cuModuleLoadData": "int(*)(uintptr_t *, void *)",
    "cuModuleGetFunction": "int(*)(uintptr_t *, uintptr_t, char *)",
    "cuMemAlloc_v2": "int(*)(uintptr_t *, size_t)",
    "cuMemcpyHtoD_v2": "int(*)(uintptr_t, void *, size_t)",
    "cuMemcpyDtoH_v2": "int(*)(void *, uintptr_t, size_t)",
    "cuMemcpyDtoD_v2": "int(*)(uintptr_t, uintptr_t, size_t)",
    "cuLaunchKernel": "int(*)(uintptr_t, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,"
    " unsigned int, unsigned int, uintptr_t, void **, void **)",
}


class Work(NamedTuple):
    """How much to measure."""

    round_trips: int
    launches: int
    rate_bytes: int
    repeats: int


def library() -> Mapping[str, Any]:
    """libcuda's functions. Raises Skip where it is not installed."""
    for name in NAMES:
        handle = native.library(name)
        if handle:
            return {
                one: native.function(native.library_symbol(handle, one), how)
                for one, how in PROTOTYPES.items()
            }
    raise Skip("libcuda is not installed: the CUDA driver's figures are left out")


def figures(cuda: Mapping[str, Any], cubin: bytes, work: Work) -> Found:
    """Latency of a launch, launches in a row, and bandwidths. Raises Failure naming the call that failed."""

    def call(name: str, *given: Any) -> None:
        status = cuda[name](*given)
        if status:
            raise Failure(
                f"{name} -> CUDA error {status}.", "nvidia-smi  # does the vendor's driver work at all?"
            )

    call("cuInit", 0)
    version, device = native.new("int[1]"), native.new("int[1]")
    call("cuDriverGetVersion", version)
    call("cuDeviceGet", device, 0)
    context, module = native.new_handle(), native.new_handle()
    call("cuDevicePrimaryCtxRetain", context, device[0])
    call("cuCtxSetCurrent", context[0])
    image = native.new("char[]", cubin)
    call("cuModuleLoadData", module, image)
    nothing = _function(call, module[0], "nothing")
    stream = _function(call, module[0], "stream")

    def launch(function: int, blocks: int, threads: int, params: Any) -> None:
        call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, 0, params, native.pointer(0))

    def run() -> None:
        launch(nothing, 1, 1, native.pointer(0))
        call("cuCtxSynchronize")

    run()
    latency = sorted(_timed(run) for _ in range(work.round_trips))
    start = time.perf_counter()
    for _ in range(work.launches):
        launch(nothing, 1, 1, native.pointer(0))
    call("cuCtxSynchronize")
    launch_s = (time.perf_counter() - start) / work.launches
    size = work.rate_bytes
    src, dst = native.new_handle(), native.new_handle()
    call("cuMemAlloc_v2", src, size)
    call("cuMemAlloc_v2", dst, size)
    host = native.new("char[]", size)
    count = native.new("unsigned int[1]", [size // 16])
    params = native.new("void *[3]", [dst, src, count])

    def done(name: str, *given: Any) -> Callable[[], None]:
        def go() -> None:
            call(name, *given)
            call("cuCtxSynchronize")

        return go

    def through() -> None:
        launch(stream, -(-(size // 16) // 256), 256, params)
        call("cuCtxSynchronize")

    def gb_per_s(go: Callable[[], None], moved: int) -> float:
        return round(moved / min(_timed(go) for _ in range(work.repeats)) / 1e9, 2)

    found: dict[str, int | float | str] = {
        "cuda": int(version[0]),
        "latency_us": round(1e6 * median(latency), 2),
        "best_us": round(1e6 * latency[0], 2),
        "launch_us": round(1e6 * launch_s, 3),
        "to_device_gb_per_s": gb_per_s(done("cuMemcpyHtoD_v2", src[0], host, size), size),
        "from_device_gb_per_s": gb_per_s(done("cuMemcpyDtoH_v2", host, dst[0], size), size),
        "copy_gb_per_s": gb_per_s(done("cuMemcpyDtoD_v2", dst[0], src[0], size), size),
        "kernel_gb_per_s": gb_per_s(through, 2 * size),
    }
    return Found(
        f"CUDA {found['cuda']}: launch to done {found['latency_us']} us, {found['launch_us']} us a launch, "
        f"{found['to_device_gb_per_s']} GB/s in, {found['from_device_gb_per_s']} out, {found['copy_gb_per_s']} across",
        found,
    )


def _function(call: Callable[..., None], module: int, name: str) -> int:
    found = native.new_handle()
    call("cuModuleGetFunction", found, module, native.new("char[]", name.encode()))
    return int(found[0])


def _timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
