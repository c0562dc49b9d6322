"""Our kernels stay beside Triton's, by the model: nothing is timed, and Triton need not be installed."""

from __future__ import annotations

import pytest

from hcq.tools import bench_gpu_model
from hcq.tools.bench.triton import count
from hcq.tools.bench.triton.rows import ROWS
from tests.hcq.emu.nv.shader.running import needs_nvjitlink

# Triton's time over ours, at least
KEPT = {
    ("sm_90", "matmul f16 1024"): 0.99,
    ("sm_90", "softmax 4096x4096"): 0.99,
    ("sm_90", "layer norm f16 4096x4096"): 1.0,
    ("sm_90", "attention 1024"): 1.02,
    ("sm_90", "cumsum 4096x4096"): 0.99,
    ("sm_90", "transpose f32 4096"): 0.99,
    ("sm_90", "gather 16384x512"): 0.97,
    ("sm_90", "attention 1024 causal"): 1.01,
    ("sm_100", "attention 1024"): 0.99,
    ("sm_100", "attention 1024 causal"): 1.0,
    ("sm_80", "attention 1024"): 0.99,
    ("sm_80", "matmul f16 1000x1100x900"): 1.05,
    ("gfx942", "attention 1024"): 0.95,
    ("gfx942", "matmul f16 1024"): 0.99,
    ("gfx942", "matmul f16 1000x1100x900"): 2.0,
}


@needs_nvjitlink  # whose registers decide how many warps an SM has
@pytest.mark.own_devices
@pytest.mark.parametrize(("arch", "name"), KEPT)
def test_ours_is_not_further_behind_than_it_was(arch: str, name: str) -> None:
    theirs = count.load()[f"{arch} {name}"]
    assert theirs is not None
    with count.emulated(arch) as device:
        ours = count.ours(device, ROWS[name])
    assert theirs.seconds(arch) >= KEPT[arch, name] * ours.seconds(arch)


def test_what_was_kept_of_triton_is_of_rows_that_there_are() -> None:
    assert {key.partition(" ")[2] for key in count.load()} <= set(ROWS)
    assert {key.partition(" ")[0] for key in count.load()} <= set(bench_gpu_model.ARCHS)


def test_a_line_of_the_table_says_both_times_and_their_ratio() -> None:
    kept = count.load()["sm_90 softmax 4096x4096"]
    assert kept is not None
    cells = bench_gpu_model.line("sm_90", "softmax", kept, kept).split(" | ")
    assert cells[2] == cells[3]
    assert cells[4] == "1.00"
