"""A GPU that delays and reorders whatever nothing orders gives the same results: no wait is missing."""

from __future__ import annotations

import random
import struct

import pytest

from hcq import command
from tests.hcq.gpu.conftest import ARCHS, QUEUES, Open
from tests.hcq.gpu.kernels import image
from tests.hcq.gpu.vendors import AMD, Vendor
from tests.turns import seeds


@pytest.mark.parametrize("seed", seeds(8, of=20))
def test_chains_of_copies_and_kernels_give_the_same_results_under_every_seed(
    vendor: Vendor, open_gpu: Open, seed: int
):
    arch, queue = QUEUES[seed % len(QUEUES)] if vendor is AMD else (ARCHS[seed % len(ARCHS)], "")
    gpu = open_gpu(arch, options=f":seed={seed}", **({"queue": queue} if queue else {}))
    draw = random.Random(seed)
    increment = gpu.load(image(gpu), "increment")
    buffers = [gpu.alloc(256) for _ in range(4)]
    known = [0] * 4
    for buffer in buffers:
        buffer.write(bytes(256))
    for _ in range(12):
        q = gpu.queue()
        for _ in range(draw.randrange(1, 6)):
            i, j = draw.sample(range(4), 2)
            what = draw.choice(("kernel", "copy", "fill", "barrier"))
            if what == "kernel":
                q.dispatch(increment, [buffers[i]], block=(64, 1, 1))
                known[i] += 1
            elif what == "copy":
                q.copy(buffers[j], buffers[i])
                known[j] = known[i]
            elif what == "fill":
                known[i] = draw.randrange(1000)
                q.fill(buffers[i], known[i], value_bytes=4)
            else:
                q.barrier()
        q.submit()
    gpu.synchronize()
    for buffer, value in zip(buffers, known):
        assert struct.unpack("<64I", buffer.read()) == (value,) * 64


def test_the_mode_finds_a_missing_wait(vendor: Vendor, open_gpu: Open):
    """Without the wait after a launch some seed shows a second kernel that ran before the first."""
    found = False
    for seed in range(20):
        gpu = open_gpu(options=f":seed={seed}")
        scale = gpu.load(image(gpu), "scale", args=("buffer", "buffer", "int", "float", "float"))
        a = gpu.alloc(256)
        a.write(struct.pack("<64f", *[1.0] * 64))
        pieces = []
        for factor, add in ((2.0, 0.0), (1.0, 5.0)):
            made, _ = scale.dispatch([a, a, 64, factor, add], (1, 1, 1), (64, 1, 1))
            unflushed = type(made)(made[: -vendor.flush_bytes])
            unflushed.__dict__.update(made.__dict__)
            pieces.append(unflushed)
        gpu.submit(pieces, [command.Barrier()]).wait()
        found = found or struct.unpack("<64f", a.read())[0] == 12.0
    assert found
