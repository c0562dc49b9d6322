"""Shared memory of three sizes: none, the 48 KiB that a kernel can declare, and 200 KiB that a launch asks for.

In       the bench, whose device a variant has made
Out      Found: microseconds of each size; Failure that says of each whether it was right
Changes  the device: launches
Next     variants.py (which words of the launch description are otherwise meanwhile), hcq/nv/chip.py (what they are)
Source   CUDA C Programming Guide: more than 48 KiB for a block is dynamic shared memory

A size that a launch description does not provide for stops the channel: the smallest is asked first.
"""

from __future__ import annotations

import functools
from typing import Any

from hcq.doctor.check import Failure, Found
from hcq.tools.hw import kernels
from hcq.tools.hw.bench import REPORT_IT, Bench
from hcq.tools.hw.checks import same
from hcq.tools.hw.kernels import M32, MIX, unpack
from hcq.tools.hw.ladder import climb

THREADS = 256
STATIC_BYTES = 48 << 10  # of the kernel shared_static
MOST_BYTES = 200 << 10  # of what is asked for: GPUs of fewer give all that they have


def sizes(bench: Bench) -> Found:
    """Each size: what it took. Raises Failure where one is not right."""
    most = min(MOST_BYTES, bench.device.chip.max_shared_bytes) >> 10 << 10
    asked = (("shared_none", 0, 0), ("shared_static", STATIC_BYTES, 0), ("shared_dynamic", most, most))
    results: dict[str, str] = {}
    figures: dict[str, int | float | str] = {}
    fatal = False
    for kernel, size, dynamic in asked:
        row: dict[str, Any] = {}
        said = "not tried"
        if not fatal:
            said, fatal = climb(functools.partial(_launch, bench, kernel, size, dynamic), row)
        results[f"{size >> 10} KiB"] = said
        figures[f"shared_{size >> 10}_kib_us"] = row.get("us", 0)
    if any(said != "ok" for said in results.values()):
        raise Failure(
            "; ".join(f"{size} of shared memory: {said[:300]}" for size, said in results.items()), REPORT_IT
        )
    return Found(f"{', '.join(results)} of shared memory: right", figures)


def _launch(bench: Bench, kernel: str, size_bytes: int, dynamic_bytes: int) -> None:
    """One block, whose threads read what the others wrote."""
    device, words = bench.device, size_bytes // 4
    program = device.load(kernels.image(device.arch, "shared"), kernel)
    program.dynamic_shared_bytes = dynamic_bytes
    out = bench.buffer(4 * THREADS)
    device.run(program, [out, words], block=(THREADS, 1, 1))
    same(unpack(out.read()), expected(words), f"{kernel} of {size_bytes >> 10} KiB")


def expected(words: int) -> list[int]:
    """What the kernels of shared.cu leave."""
    if not words:
        return [thread * MIX & M32 for thread in range(THREADS)]
    each = words // THREADS
    return [sum(range(each * thread, each * (thread + 1))) * MIX & M32 for thread in range(THREADS)]
