"""Work that gives wrong results behind caches when one invalidation or write-back is missing; each asserts its own.

In       a device
Out      WORKLOADS, that all GPUs run; chain(), the same at random
Next     test_caches.py, ../amd/test_caches.py and ../nv/test_caches.py (what happens without one of them)
"""

from __future__ import annotations

import random
import struct

from hcq.gpu.device import GpuDevice
from tests.hcq.gpu.kernels import image

WORDS = 64
BYTES = 4 * WORDS


def numbers(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def filled(value: int) -> bytes:
    return struct.pack("<I", value) * WORDS


def host_to_kernel(gpu: GpuDevice) -> None:
    """The host writes between two submissions of a kernel."""
    program, a = gpu.load(image(gpu), "increment"), gpu.alloc(BYTES)
    for start in (10, 20, 30):
        a.write(filled(start))
        gpu.run(program, [a], block=(WORDS, 1, 1))
        assert numbers(a.read()) == (start + 1,) * WORDS


def kernel_to_kernel(gpu: GpuDevice) -> None:
    """A kernel reads what the one before it wrote, in the same submission."""
    program, a = gpu.load(image(gpu), "increment"), gpu.alloc(BYTES)
    a.write(filled(5))
    q = gpu.queue()
    for _ in range(4):
        q.dispatch(program, [a], block=(WORDS, 1, 1))
    q.submit().wait(timeout_ms=50_000)
    assert numbers(a.read()) == (9,) * WORDS


def kernel_to_copy(gpu: GpuDevice) -> None:
    """A copy takes what a kernel wrote, again and again."""
    program, a, b = gpu.load(image(gpu), "increment"), gpu.alloc(BYTES), gpu.alloc(BYTES)
    a.write(filled(1))
    for turn in range(3):
        gpu.queue().dispatch(program, [a], block=(WORDS, 1, 1)).copy(b, a).submit().wait(timeout_ms=50_000)
        assert numbers(b.read()) == (2 + turn,) * WORDS


def copy_to_kernel(gpu: GpuDevice) -> None:
    """A kernel reads what a copy brought."""
    program, a, b = gpu.load(image(gpu), "increment"), gpu.alloc(BYTES), gpu.alloc(BYTES)
    q = gpu.queue()
    for value in (3, 7):
        q.fill(b, value, value_bytes=4).copy(a, b).dispatch(program, [a], block=(WORDS, 1, 1))
    q.submit().wait(timeout_ms=50_000)
    assert numbers(a.read()) == (8,) * WORDS


def host_to_copy(gpu: GpuDevice) -> None:
    """The host writes between two submissions that only copy."""
    a, b = gpu.alloc(BYTES), gpu.alloc(BYTES)
    for value in (1, 2, 3):
        a.write(filled(value))
        gpu.queue().copy(b, a).submit().wait(timeout_ms=50_000)
        assert numbers(b.read()) == (value,) * WORDS


def signal_to_kernel(gpu: GpuDevice) -> None:
    """The queue waits for a signal; before it comes, the host writes what the kernel will read."""
    program, a, b = gpu.load(image(gpu), "increment"), gpu.alloc(BYTES), gpu.alloc(BYTES)
    a.write(filled(1))
    ready, running = gpu.signal("ready"), gpu.signal("running")
    q = gpu.queue().dispatch(program, [a], block=(WORDS, 1, 1)).signal(running, 1).wait(ready, 1)
    done = q.dispatch(program, [a], block=(WORDS, 1, 1)).submit()
    running.wait(1, timeout_ms=50_000)
    a.host[:BYTES] = filled(50)
    ready.set(1)
    done.wait(timeout_ms=50_000)
    assert numbers(a.read()) == (51,) * WORDS
    del b


def results_of_a_signal(gpu: GpuDevice) -> None:
    """A signal in the middle of a submission: what was written before it can be read."""
    program, a = gpu.load(image(gpu), "increment"), gpu.alloc(BYTES)
    a.write(filled(1))
    halfway, go = gpu.signal("halfway"), gpu.signal("go")
    q = gpu.queue().dispatch(program, [a], block=(WORDS, 1, 1)).signal(halfway, 1).wait(go, 1)
    done = q.submit()
    halfway.wait(1, timeout_ms=50_000)
    seen = numbers(bytes(a.host[:BYTES]))
    go.set(1)
    done.wait(timeout_ms=50_000)
    assert seen == (2,) * WORDS


def replays(gpu: GpuDevice) -> None:
    """A recorded block is replayed over data that the host changes."""
    program, a, b = gpu.load(image(gpu), "increment"), gpu.alloc(BYTES), gpu.alloc(BYTES)
    graph = gpu.graph("pair").dispatch(program, [a], block=(WORDS, 1, 1)).copy(b, a)
    for start in (100, 200, 300):
        a.write(filled(start))
        graph.replay().wait(timeout_ms=50_000)
        assert numbers(b.read()) == (start + 1,) * WORDS


WORKLOADS = [
    host_to_kernel,
    kernel_to_kernel,
    kernel_to_copy,
    copy_to_kernel,
    host_to_copy,
    signal_to_kernel,
    results_of_a_signal,
    replays,
]


def chain(gpu: GpuDevice, seed: int) -> tuple[list[int], list[int]]:
    """Kernels, copies, fills and writes of the host in random order: what the buffers hold, and what they should."""
    draw = random.Random(seed)
    increment = gpu.load(image(gpu), "increment")
    buffers = [gpu.alloc(256) for _ in range(3)]
    known = [0] * 3
    for buffer in buffers:
        buffer.write(bytes(256))
    for _ in range(24):
        i, j = draw.sample(range(3), 2)
        what = draw.choice(("kernel", "kernel", "copy", "fill", "host"))
        if what == "kernel":
            gpu.run(increment, [buffers[i]], block=(64, 1, 1))
            known[i] += 1
        elif what == "copy":
            gpu.queue().copy(buffers[j], buffers[i]).submit()
            known[j] = known[i]
        elif what == "fill":
            known[i] = draw.randrange(1000)
            gpu.queue().fill(buffers[i], known[i], value_bytes=4).submit()
        else:
            known[i] = draw.randrange(1000)
            gpu.synchronize()
            buffers[i].write(struct.pack("<64I", *[known[i]] * 64))
    gpu.synchronize()
    return [struct.unpack("<64I", buffer.read())[5] for buffer in buffers], known
