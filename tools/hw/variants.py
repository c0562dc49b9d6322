"""Variants: the driver with one thing changed, in a process of its own: does the GPU take it, and what comes of it?

In       the bench, whose item names a variant
Out      Found with what it did beside the driver as it is; Failure where it does not work: which of the two is right is
         then known
Changes  constants of modules in this process; the device
Next     variant.py (what a variant is), nv/variants.py, amd/variants.py (all of them)

A variant that fails is no defect by itself. That the driver as it is works, or does not, is what the ladder says.
"""

from __future__ import annotations

import importlib
import statistics
from typing import Any

from hcq import config
from hcq.doctor.check import Found, Skip
from hcq.tools.hw import kernels
from hcq.tools.hw.bench import Bench
from hcq.tools.hw.checks import same, timed
from hcq.tools.hw.kernels import pack, unpack, words
from hcq.tools.hw.plan import function_at, of_vendor
from hcq.tools.hw.variant import EditingPort, Variant

ROUNDS = 20


def attempt(bench: Bench) -> Found:
    """Open the device with one thing changed, and see whether copies and kernels are right, and how fast."""
    variant = variant_of(bench)
    for place, value in variant.constants.items():
        module, _, name = place.partition(":")
        target = importlib.import_module(module)
        getattr(target, name)  # a constant that is gone is a variant that says nothing
        setattr(target, name, value)
    config.use(None)  # the environment's switches are this variant's
    port = EditingPort(bench.port, variant.edit) if variant.edit is not None else None
    device = bench.open(port, **variant.overriding())
    bench.device = device
    figures = work(bench)
    edited = port.edited if port is not None else getattr(device, "edited", 1)
    if not edited:
        raise Skip("nothing was changed: here the driver does not do what this variant changes")
    figures["edited"] = edited
    text = f"works: open in {figures['open_s']} s, a launch comes back in {figures['latency_us']} us"
    if variant.further:
        more: Found = function_at(variant.further)(bench)
        figures.update(more.figures)
        text += f"; {more.text}"
    return Found(text, figures)


def variant_of(bench: Bench) -> Variant:
    """The one that the bench's item names."""
    found: Variant = next(
        one for one in of_vendor(bench.kind, "variants").VARIANTS if one.name == bench.item.argument
    )
    return found


def work(bench: Bench) -> dict[str, Any]:
    """A copy, dependent launches, shared and local memory: right; how long a launch takes."""
    device, n = bench.device, 256
    x, block = words(n), {"block": (256, 1, 1)}
    source, out = bench.buffer(4 * n, pack(x)), bench.buffer(4 * n)
    device.queue().copy(out, source).submit().wait()
    same(unpack(out.read()), x, "a copy")
    step, sums, local, nothing = bench.programs("step", "block_sums", "local_memory", "nothing")
    out.write(bytes(4 * n))
    signal = device.signal("hw_check")
    signal.set(1)
    queue = device.queue().wait(signal, 1)
    for _ in range(ROUNDS):
        queue.dispatch(step, [out, n], **block)
    queue.submit().wait()
    same(unpack(out.read()), [kernels.stepped(ROUNDS)] * n, f"{ROUNDS} dependent launches")
    device.run(sums, [out, source], **block)
    same(unpack(out.read(0, 4)), [sum(x) & kernels.M32], "shared memory")
    device.run(local, [out, source], **block)
    same(unpack(out.read()), kernels.local_results(x), "local memory")
    times = [1e6 * timed(lambda: device.run(nothing)) for _ in range(bench.sizes.round_trips)]
    return {"open_s": round(bench.open_s, 3), "latency_us": round(statistics.median(times), 2)}
