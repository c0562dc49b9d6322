"""Barriers of a block: numbers in registers, another in each warp, counts, votes, warps of fewer threads."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import Deadlock, KernelFault, PtxError
from tests.hcq.emu.nv.shader.running import needs_nvrtc, run_cuda, run_ptx
from tests.hcq.emu.nv.shader.test_machine import MY_OUT, kernel

TILE = ".shared .align 4 .b8 tile[4096];"
# %r1: the warp; %r9: the thread's word of shared memory
MY_WARP = MY_OUT + "shr.u32 %r1, %r0, 5; mov.u32 %r9, tile; shl.b32 %r8, %r0, 2; add.u32 %r9, %r9, %r8;"


@pytest.mark.parametrize("opcode", ["bar.sync", "barrier.sync", "barrier.cta.sync.aligned"])
@pytest.mark.parametrize("count", [", 64", ", %r7"])
def test_pairs_of_warps_meet_at_barriers_of_their_own(opcode: str, count: str) -> None:
    """Eight warps: pairs (0, 4), (1, 5), ... exchange values; a pair's barrier has its number, from 1 on."""
    body = (
        MY_WARP
        + f"""
    mov.u32 %r7, 64; and.b32 %r2, %r1, 3; add.u32 %r2, %r2, 1; st.shared.u32 [%r9], %r0;
    {opcode} %r2{count};
    xor.b32 %r3, %r0, 128; shl.b32 %r3, %r3, 2; mov.u32 %r4, tile; add.u32 %r3, %r3, %r4; ld.shared.u32 %r5, [%r3];
    st.global.u32 [%d1], %r5; ret;"""
    )
    out = np.zeros(256, np.uint32)
    run_ptx(kernel(body, before=TILE), "k", 1, 256, out)
    assert out.tolist() == [t ^ 128 for t in range(256)]


def test_a_producer_arrives_and_consumers_wait_each_at_the_barrier_of_its_turn() -> None:
    """Warp 0 fills slot after slot and only arrives; warp 1 + s waits for slot s at barrier 1 + s."""
    body = (
        MY_WARP
        + """
    setp.ne.u32 %p0, %r1, 0; @%p0 bra TAKE;
    mov.u32 %r2, 0; mov.u32 %r4, tile; add.u32 %r4, %r4, %r8;
    FILL: mad.lo.u32 %r3, %r2, 1000, %r0; st.shared.u32 [%r4], %r3; add.u32 %r4, %r4, 128; add.u32 %r2, %r2, 1;
    bar.arrive %r2, 64; setp.lt.u32 %p1, %r2, 7; @%p1 bra FILL;
    st.global.u32 [%d1], %r2; ret;
    TAKE: bar.sync %r1, 64;
    sub.u32 %r5, %r0, 32; shl.b32 %r5, %r5, 2; mov.u32 %r4, tile; add.u32 %r5, %r5, %r4; ld.shared.u32 %r6, [%r5];
    st.global.u32 [%d1], %r6; ret;"""
    )
    out = np.zeros(256, np.uint32)
    run_ptx(kernel(body, before=TILE), "k", 1, 256, out)
    assert out.tolist() == [7] * 32 + [(t // 32 - 1) * 1000 + t % 32 for t in range(32, 256)]


def test_counts_differ_between_barriers_and_blocks_do_not_mix() -> None:
    """Warps 0 to 2 meet at barrier 3, warps 3 and 4 at barrier 9; a warp that comes first waits for the others."""
    body = (
        MY_WARP
        + """
    setp.lt.u32 %p0, %r1, 3; selp.u32 %r2, 3, 9, %p0; selp.u32 %r3, 96, 64, %p0; mov.u32 %r5, %ctaid.x;
    @%p0 bra COUNT; mov.u32 %r6, 0; SPIN: add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r0; @%p1 bra SPIN;
    COUNT: mov.u32 %r4, tile; mad.lo.u32 %r4, %r2, 4, %r4; atom.shared.add.u32 %r6, [%r4], 1;
    barrier.sync %r2, %r3; ld.shared.u32 %r6, [%r4]; mad.lo.u32 %r6, %r5, 1000, %r6;
    mad.lo.u32 %r5, %r5, 640, 0; cvt.u64.u32 %d2, %r5; add.u64 %d1, %d1, %d2; st.global.u32 [%d1], %r6; ret;"""
    )
    out = np.zeros((3, 160), np.uint32)
    run_ptx(kernel(body, before=TILE), "k", 3, 160, out)
    assert out.tolist() == [[1000 * block + (96 if t < 96 else 64) for t in range(160)] for block in range(3)]


@pytest.mark.parametrize("how, meaning", [
    ("popc.u32 %r3, ", lambda votes: sum(votes)), ("and.pred %p1, ", all), ("or.pred %p1, ", any),
])  # fmt: skip
def test_threads_vote_at_the_barrier_that_their_warp_names(how: str, meaning) -> None:
    body = (
        MY_WARP
        + f"""
    and.b32 %r2, %r1, 1; add.u32 %r2, %r2, 4; mul.lo.u32 %r5, %r0, %r0; rem.u32 %r5, %r5, 7; and.b32 %r6, %r1, 1;
    add.u32 %r5, %r5, %r6; setp.lt.u32 %p0, %r5, 5; mov.u32 %r3, 0;
    bar.red.{how} %r2, 64, %p0;
    {"selp.u32 %r3, 1, 0, %p1;" if "pred" in how else ""} st.global.u32 [%d1], %r3; ret;"""
    )
    out = np.zeros(128, np.uint32)
    run_ptx(kernel(body, before=TILE), "k", 1, 128, out)
    votes = [t * t % 7 + (t // 32 & 1) < 5 for t in range(128)]
    for odd in (0, 1):
        mine = [t for t in range(128) if (t // 32 & 1) == odd]
        assert [out[t] for t in mine] == [int(meaning([votes[t] for t in mine]))] * 64


def test_threads_of_one_warp_may_meet_at_different_barriers() -> None:
    """As since Volta: even threads of both warps at one, odd ones at another; each counts half of each warp."""
    body = (
        MY_WARP
        + """
    and.b32 %r2, %r0, 1; st.shared.u32 [%r9], %r0; barrier.sync %r2, 32;
    xor.b32 %r3, %r0, 32; shl.b32 %r3, %r3, 2; mov.u32 %r4, tile; add.u32 %r3, %r3, %r4; ld.shared.u32 %r5, [%r3];
    st.global.u32 [%d1], %r5; ret;"""
    )
    out = np.zeros(64, np.uint32)
    run_ptx(kernel(body, before=TILE), "k", 1, 64, out)
    assert out.tolist() == [t ^ 32 for t in range(64)]


def test_a_warp_counts_as_32_threads_also_if_it_has_fewer_or_some_have_ended() -> None:
    body = (
        MY_WARP
        + """
    st.shared.u32 [%r9], %r0; setp.eq.u32 %p0, %r0, 5; @%p0 exit; bar.sync 2, 64;
    mov.u32 %r4, tile; ld.shared.u32 %r5, [%r4+156]; st.global.u32 [%d1], %r5; ret;"""
    )
    out = np.zeros(40, np.uint32)
    run_ptx(kernel(body, before=TILE), "k", 1, 40, out)
    assert out.tolist() == [39 if t != 5 else 0 for t in range(40)]


def test_a_barrier_that_too_few_come_to_is_a_report() -> None:
    body = MY_WARP + "add.u32 %r2, %r1, 1; bar.sync %r2, 64; ret;"
    with pytest.raises(Deadlock, match=r"no thread can go on: .*barrier of their block"):
        run_ptx(kernel(body, before=TILE), "k", 1, 64, np.zeros(64, np.uint32))


def test_there_are_sixteen_barriers() -> None:
    with pytest.raises(PtxError, match="numbers from 0 to 15"):
        run_ptx(kernel("bar.sync 16; ret;"), "k", 1, 64, np.zeros(64, np.uint32))
    body = MY_WARP + "add.u32 %r2, %r1, 15; bar.sync %r2, 32; ret;"
    with pytest.raises(
        KernelFault, match=r"PTX line \d+: thread \(32, 0, 0\) of block \(0, 0, 0\) names barrier 16"
    ):
        run_ptx(kernel(body, before=TILE), "k", 1, 64, np.zeros(64, np.uint32))


@needs_nvrtc
def test_a_warp_specialised_kernel_of_cuda_hands_over_by_named_barriers() -> None:
    """Two groups take turns, as CUTLASS orders its warpgroups: each waits at its own number for the other's arrival."""
    source = r"""
    __device__ void wait(int id) { asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(128) : "memory"); }
    __device__ void arrive(int id) { asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(128) : "memory"); }
    extern "C" __global__ void k(int *order) {
        __shared__ int next;
        int group = threadIdx.x / 64;
        if (threadIdx.x == 0) next = 0;
        __syncthreads();
        if (group == 1) arrive(8);
        for (int turn = 0; turn < 6; turn++) {
            wait(8 + group);
            if (threadIdx.x % 64 == 0) { order[next] = group; next = next + 1; }
            asm volatile("bar.sync %0, 64;" : : "r"(2 + group) : "memory");
            if (group == 0 || turn < 5) arrive(8 + (1 - group));
        }
    }"""
    order = np.full(12, -1, np.int32)
    run_cuda(source, "k", 1, 128, order)
    assert order.tolist() == [0, 1] * 6
