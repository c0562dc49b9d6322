"""Words: what bounds a kernel by the model, as a sentence that says what to do about it.

In       an Estimate, the Counters that it is of
Out      sentences
Next     time.py (Estimate), ../roofline.py (tells users, with what the floor says)
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.performance.counters import Counters
from hcq.performance.model.time import Estimate

MOSTLY = 0.5  # of the time
SLOW_ACCESS = 1.5  # times the clocks of a load whose threads reach neighbours
PIPES = {
    "special pipe": "special functions (exp, log, sine, reciprocals, roots): fewer of them, or a polynomial",
    "convert pipe": "conversions between types: keep values in one type",
    "f64 pipe": "arithmetic in 64-bit floats, of which this chip has few units: f32 where that is enough",
    "alu pipe": "integers, comparisons and addresses: 32-bit indices, unrolled loops, addresses a constant apart",
    "fma pipe": "multiply-adds and addresses: matrix units where these are products, a narrower type, or less of it",
    "vector pipe": "vector instructions: packed or dual ones, matrix units where these are products",
    "memory pipe": "the number of loads and stores: 8 or 16 bytes by each thread at once",
    "shared pipe": "the number of accesses to LDS: 8 or 16 bytes by each thread at once",
    "warp pipe": "exchanges between threads of a warp: let each thread do more before they meet",
}


def explain(found: Estimate, counted: Counters) -> Iterator[str]:
    """What takes the time, and what would change it."""
    if not found.parts:
        return
    first, _ = found.parts[0]
    if found.launch > MOSTLY * found.seconds:
        share = found.launch / found.seconds
        yield f"{share:.0%} of the time is the launch itself: fuse kernels, or launch them in a graph"
    elif first == "waiting":
        yield _waiting(found, counted)
    elif first in ("L1 and shared memory", "L1", "LDS"):
        yield _first_level(counted, first)
    elif first == "atomics":
        yield (
            f"atomics change {counted.hot_words} words of one line: sum in registers, in the warp and in shared memory "
            "first, and spread what is left over several lines"
        )
    elif first == "an L2 channel":
        yield (
            "what runs at once asks the same channel of L2: rows that are no multiple of 8 KB apart, a few elements "
            "longer than the data, or another order of blocks"
        )
    elif first in PIPES:
        yield f"bound by {PIPES[first]}"


def _waiting(found: Estimate, counted: Counters) -> str:
    warps = max(1, counted.warps)
    loads = counted.waits.get("global", 0.0) + counted.waits.get("copy", 0.0)
    clocks = counted.waits.get("clocks", 0.0)
    if loads * found.latency < clocks:
        return (
            f"warps wait for their own arithmetic: {clocks / warps:.4g} clocks of a warp follow one from the other; "
            "several sums instead of one, or more warps"
        )
    room = f"; more warps would help, which {counted.limited_by} limits" if counted.limited_by else ""
    return (
        f"warps wait: each {loads / warps:.3g} times for global memory, {found.latency:.0f} clocks each time, and a "
        f"unit has {found.warps:.0f} warps to fill that time: ask for several elements before the first is used, or "
        f"copy the next tile meanwhile{room}"
    )


def _first_level(counted: Counters, first: str) -> str:
    if counted.l1_requests and counted.l1_clocks >= counted.shared_passes and first != "LDS":
        clocks = counted.l1_clocks / counted.l1_requests
        ideal = max(1.0, counted.bytes_needed / counted.l1_requests / 128)
        if clocks > SLOW_ACCESS * ideal:
            return (
                f"an access of a warp to global memory takes the first-level cache {clocks:.3g} clocks, and "
                f"{ideal:.3g} where neighbouring threads reach neighbouring elements: exchange the loops or the "
                "threads' indices, or go through shared memory"
            )
        return "the first-level cache is asked all the time: values in registers, tiles of registers, 16 bytes at once"
    part = counted.bank_conflicts / max(1, counted.shared_passes)
    if part > 1 - 1 / SLOW_ACCESS:
        return f"{part:.0%} of the visits to shared memory are bank conflicts: pad rows, or swizzle columns by the row"
    return "shared memory is asked all the time: larger tiles of registers, 16 bytes at once, ldmatrix"
