"""A GPU that delays and reorders whatever nothing orders gives the same results: no wait is missing."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from hcq import command
from hcq.nv.device import NvDevice
from hcq.nv.encode import Piece, wait_for_idle
from tests.hcq.nv.conftest import ARCHS
from tests.hcq.nv.kernels import image

Open = Callable[..., NvDevice]


@pytest.mark.parametrize("seed", range(20))
def test_chains_of_copies_and_kernels_give_the_same_results_under_every_seed(open_nv: Open, seed: int):
    arch = ARCHS[seed % len(ARCHS)]
    nv = open_nv(arch, options=f":seed={seed}")
    draw = random.Random(seed)
    increment = nv.load(image(arch), "increment")
    buffers = [nv.alloc(256) for _ in range(4)]
    known = [0] * 4
    for buffer in buffers:
        buffer.write(bytes(256))
    for _ in range(12):
        q = nv.queue()
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
    nv.synchronize()
    for buffer, value in zip(buffers, known):
        assert struct.unpack("<64I", buffer.read()) == (value,) * 64


def test_the_mode_finds_a_missing_wait(open_nv: Open):
    """Without the wait after a launch some seed shows a second kernel that ran before the first."""
    found = False
    for seed in range(20):
        nv = open_nv(options=f":seed={seed}")
        scale = nv.load(image("sm_90"), "scale", args=("buffer", "buffer", "int", "float", "float"))
        a = nv.alloc(256)
        a.write(struct.pack("<64f", *[1.0] * 64))
        pieces = []
        for factor, add in ((2.0, 0.0), (1.0, 5.0)):
            made, _ = scale.dispatch([a, a, 64, factor, add], (1, 1, 1), (64, 1, 1))
            unflushed = Piece(made[: -len(wait_for_idle())])
            unflushed.data_bytes, unflushed.patches = made.data_bytes, made.patches
            pieces.append(unflushed)
        nv.submit(pieces, [command.Barrier()]).wait()
        found = found or struct.unpack("<64f", a.read())[0] == 12.0
    assert found
