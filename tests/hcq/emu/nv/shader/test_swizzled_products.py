"""The law of swizzles: what a copy writes with a swizzle, a product reads with the same, and with no other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hcq.nv.abi.tensor_map import ElementType, Swizzle
from hcq.nv.tensor_map import tiled
from tests.hcq.emu.nv.shader.running import Launch

NUMBERS = {Swizzle.B128: 1, Swizzle.B64: 2, Swizzle.B32: 3}
SPANS = {Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}
ROWS, DEPTH = 64, 16


def kernel(boxes: list[tuple[int, int]], box_bytes: int, descriptor: int, turned: bool) -> str:
    """A * A^T of 64 rows of 16 halves; boxes: the coordinates of the copies that bring A, one behind the other."""
    d = ", ".join(f"%d{i}" for i in range(32))
    lines = [".version 8.3\n.target sm_90a\n.address_size 64"]
    lines.append(".visible .entry k(.param .align 64 .b8 MAP[128], .param .u64 D) {")
    lines.append(
        f".shared .align 1024 .b8 tile[{len(boxes) * box_bytes}]; .shared .align 8 .b64 bar; .reg .b32 %d<32>;"
    )
    lines.append(".reg .b32 %i, %t, %m, %x, %y; .reg .b64 %map, %l, %p, %v; .reg .pred %q, %not;")
    lines.append(
        "mov.u32 %i, %tid.x; mov.u32 %t, tile; mov.u32 %m, bar; ld.param.u64 %p, [D]; mov.b64 %map, MAP;"
    )
    lines.append(
        "cvta.param.u64 %map, %map; setp.ne.u32 %not, %i, 0; setp.ne.u32 %q, %i, %i; @%not bra READY;"
    )
    lines.append("mbarrier.init.shared::cta.b64 [%m], 1; fence.mbarrier_init.release.cluster;")
    lines.append(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%m], {len(boxes) * box_bytes};")
    for number, (x, y) in enumerate(boxes):
        lines.append(f"mov.u32 %x, {x}; mov.u32 %y, {y};")
        lines.append("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes")
        lines.append(f"[%t+{number * box_bytes}], [%map, {{%x, %y}}], [%m];")
    lines.append(
        "READY: bar.sync 0; { .reg .pred %p; W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%m], 0;"
    )
    lines.append("@%p bra GO; bra W; GO: } shr.u32 %x, %t, 4; cvt.u64.u32 %l, %x;")
    lines.append(f"or.b64 %v, %l, {descriptor:#x}; wgmma.fence.sync.aligned;")
    lines.append(
        f"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{d}}}, %v, %v, %q, 1, 1, {turned:d}, {turned:d};"
    )
    lines.append(
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; mul.wide.u32 %l, %i, 128;"
    )
    lines.append("add.u64 %p, %p, %l;")
    lines += [f"st.global.u32 [%p+{4 * i}], %d{i};" for i in range(32)]
    return "\n".join([*lines, "ret; }"])


def product(copied: Swizzle, read: Swizzle, turned: bool) -> bool:
    """Whether a matrix that a copy brought with one swizzle is what a product reads with the other."""
    rng = np.random.default_rng(2)
    launch = Launch()
    span = SPANS[copied]
    if turned:  # halves of a row of the tensor are rows of the matrix
        whole = rng.integers(-4, 5, (DEPTH, ROWS)).astype(np.float16)
        matrix, box = whole.T, (span // 2, DEPTH)
        boxes = [(x, 0) for x in range(0, ROWS, span // 2)]
    else:
        whole = rng.integers(-4, 5, (ROWS, span // 2)).astype(np.float16)
        matrix, box = whole[:, :DEPTH], (span // 2, ROWS)
        boxes = [(0, 0)]
    box_bytes = 2 * box[0] * box[1]
    leading = box_bytes if turned else 16
    descriptor = leading >> 4 << 16 | 8 * span >> 4 << 32 | NUMBERS[read] << 62
    va = launch.buffer(whole)
    dims, pitch = whole.shape[::-1], 2 * whole.shape[1]
    found = np.zeros((128, 32), np.float32)
    tensor_map = tiled(va, ElementType.F16, dims, (pitch,), box, swizzle=copied)
    launch.run(launch.load(kernel(boxes, box_bytes, descriptor, turned), "k"), 1, 128, tensor_map, found)
    wanted = matrix.astype(np.float32) @ matrix.astype(np.float32).T
    places = itertools.product(range(128), range(32))
    return all(
        found[t, i]
        == wanted[16 * (t // 32) + t % 32 // 4 + (8 if i % 4 >= 2 else 0), i // 4 * 8 + t % 4 * 2 + i % 2]
        for t, i in places
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("copied", list(SPANS))
def test_what_a_copy_writes_with_a_swizzle_a_product_reads_with_the_same(copied, turned):
    assert product(copied, copied, turned)


def test_another_swizzle_reads_something_else():
    assert not product(Swizzle.B128, Swizzle.B64, False)
