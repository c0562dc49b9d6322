"""Clusters of several blocks: whose shared memory an address is in, barriers, copies to several blocks, early ends."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest

from hcq.emu.nv.shader.checks import additions_of
from hcq.emu.nv.shader.errors import Deadlock, KernelFault, PageFault, PtxError
from hcq.emu.nv.shader.grids import numbers_of
from hcq.emu.nv.shader.run import Kernel
from hcq.emu.shader.checks import Checks
from hcq.errors import UsageError
from hcq.events.kernel_faults import KernelFault as Finding
from tests.hcq.emu.nv.shader.running import Launch as Launched
from tests.hcq.emu.nv.shader.running import needs_header, needs_nvjitlink, needs_nvrtc, run_cuda, run_ptx

HEADER = ".version 8.3\n.target sm_90a\n.address_size 64\n"
HEAD = f"""{HEADER}.visible .entry k(.param .u64 A, .param .u64 B) {{
.shared .align 128 .b8 pad[64]; .shared .align 128 .b8 tile[512]; .shared .align 8 .b64 bar;
.reg .b64 %a, %b, %v, %at, %g; .reg .b32 %i, %t, %m, %x, %y, %z, %rank, %size, %c; .reg .pred %first, %p, %q;
.reg .b16 %mask; ld.param.u64 %a, [A]; ld.param.u64 %b, [B]; mov.u32 %i, %tid.x; mov.u32 %t, tile; mov.u32 %m, bar;
mov.u32 %rank, %cluster_ctarank; mov.u32 %size, %cluster_nctarank; mov.u32 %c, %ctaid.x;
setp.eq.u32 %first, %i, 0; @%first st.shared.u8 [pad], %x; @%first mbarrier.init.shared::cta.b64 [%m], 1;
mad.wide.u32 %b, %c, 256, %b;
mad.wide.u32 %b, %i, 4, %b;
"""
SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
NEXT = "add.u32 %y, %rank, 1; rem.u32 %y, %y, %size;"  # the rank of the next block
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%m], 0; @%p bra D; bra W; D:"
MULTICAST = """cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
    [%t], [%a], 128, [%m], %mask;"""
PLACES = "cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid"
OUT = "st.global.u32 [%b], %x;"


def run(lines: str, blocks: int = 4, cluster: int = 4, threads: int = 32, **options: object) -> np.ndarray:
    """What each thread of each block stores: (blocks, 64), of which the first `threads` are its."""
    a, b = np.arange(256, dtype=np.uint32), np.zeros((blocks, 64), np.uint32)
    run_ptx(f"{HEAD} {lines} ret; }}", "k", blocks, threads, a, b, cluster=(cluster, 1, 1), **options)
    return b


@pytest.mark.parametrize(
    "grid, cluster", [((8, 6, 4), (2, 3, 2)), ((4, 1, 1), (4, 1, 1)), ((2, 2, 2), (1, 1, 1))]
)
def test_every_block_is_in_one_cluster_whose_blocks_follow_one_another(grid, cluster):
    count, size = int(np.prod(grid)), int(np.prod(cluster))
    numbers = numbers_of(np.arange(count), grid, cluster)
    assert sorted(numbers.tolist()) == list(range(count))
    x, y, z = numbers % grid[0], numbers // grid[0] % grid[1], numbers // (grid[0] * grid[1])
    inner = x % cluster[0] + cluster[0] * (y % cluster[1] + cluster[1] * (z % cluster[2]))
    if size > 1:
        assert (inner == np.arange(count) % size).all()
    for at, width in zip((x, y, z), cluster):
        assert (np.ptp((at // width).reshape(-1, size), axis=1) == 0).all()


def test_special_registers_say_where_a_block_is_in_its_cluster():
    names = [
        *(f"{name}.{axis}" for name in PLACES for axis in "xyz"),
        "cluster_ctarank", "cluster_nctarank", "is_explicit_cluster",
    ]  # fmt: skip
    lines = ["mov.u32 %x, %ctaid.x; mov.u32 %y, %ctaid.y; mad.lo.u32 %x, %y, 4, %x; mov.u32 %y, %ctaid.z;"]
    lines.append("mad.lo.u32 %x, %y, 24, %x; ld.param.u64 %b, [B]; mad.wide.u32 %b, %x, 64, %b;")
    for number, name in enumerate(names):
        read = (
            f"mov.pred %q, %{name}; selp.u32 %x, 1, 0, %q;"
            if name.startswith("is_")
            else f"mov.u32 %x, %{name};"
        )
        lines.append(f"{read} st.global.u32 [%b+{4 * number}], %x;")
    found = np.zeros((2, 6, 4, 16), np.uint32)
    text = f"{HEAD} {' '.join(lines)} ret; }}"
    run_ptx(text, "k", (4, 6, 2), 1, np.zeros(1, np.uint32), found, cluster=(2, 3, 1))
    z, y, x = np.meshgrid(np.arange(2), np.arange(6), np.arange(4), indexing="ij")
    wanted = [x % 2, y % 3, 0 * z, 2, 3, 1, x // 2, y // 3, z, 2, 2, 2, x % 2 + y % 3 * 2, 6, 1]
    for number, (name, value) in enumerate(zip(names, wanted)):
        assert (found[..., number] == value).all(), name


@pytest.mark.parametrize("way", ["shared", "generic", "atomic"])
def test_a_block_reads_and_changes_the_shared_memory_of_another(way):
    lines = {
        "shared": "mapa.shared::cluster.u32 %z, %t, %y; ld.shared::cluster.u32 %x, [%z];",
        "generic": "cvta.shared.u64 %g, %at; mapa.u64 %g, %g, %y; ld.u32 %x, [%g];",
        "atomic": f"""mapa.shared::cluster.u32 %z, %t, %y; atom.shared::cluster.add.u32 %x, [%z], 1000; {SYNC}
                      ld.shared.u32 %x, [%t];""",
    }[way]
    fill = (
        "mad.lo.u32 %t, %i, 4, %t; mad.lo.u32 %x, %c, 100, %i; st.shared.u32 [%t], %x; cvt.u64.u32 %at, %t;"
    )
    found = run(f"{fill} {SYNC} {NEXT} {lines} {OUT} {SYNC}", blocks=8)
    block, thread = np.arange(8)[:, None], np.arange(32)
    source = block // 4 * 4 + (block + 1) % 4
    wanted = 100 * block + thread + 1000 if way == "atomic" else 100 * source + thread
    assert (found[:, :32] == wanted).all()


def test_many_blocks_add_to_one_place():
    lines = f"""mov.u32 %y, 2; mapa.shared::cluster.u32 %z, %t, %y; {SYNC} red.shared::cluster.add.u32 [%z], 1; {SYNC}
    ld.shared::cluster.u32 %x, [%z]; {OUT} {SYNC}"""
    assert (run(lines, blocks=8, cluster=8)[:, :32] == 8 * 32).all()
    assert (run(lines, blocks=16, cluster=8, batch_lanes=1)[:, :32] == 8 * 32).all()


def test_an_address_says_whose_it_is_and_which_window_it_is_in():
    lines = f"""{NEXT} mapa.shared::cluster.u32 %z, %t, %y; getctarank.shared::cluster.u32 %x, %z; shl.b32 %x, %x, 8;
    getctarank.shared::cluster.u32 %y, %t; or.b32 %x, %x, %y; cvt.u64.u32 %at, %z; cvta.shared.u64 %g, %at;
    isspacep.shared::cluster %p, %g; @%p or.b32 %x, %x, 0x10000; isspacep.shared::cta %p, %g;
    @%p or.b32 %x, %x, 0x20000; isspacep.global %p, %g; @%p or.b32 %x, %x, 0x40000; cvt.u64.u32 %at, %t;
    cvta.shared.u64 %g, %at; isspacep.shared %p, %g; @%p or.b32 %x, %x, 0x80000; {OUT}"""
    rank = np.arange(4)
    assert (run(lines)[:, 0] == ((rank + 1) % 4 << 8 | rank | 0x90000)).all()


def test_a_mask_of_the_address_finds_the_even_block_of_a_pair():
    # as CUTLASS does it: bit 24 of an address is the lowest of its block's rank
    lines = f"""st.shared.u32 [%t], %rank; {SYNC} and.b32 %z, %t, 0xfeffffff; ld.shared::cluster.u32 %x, [%z];
    {OUT} {SYNC}"""
    assert run(lines)[:, 0].tolist() == [0, 0, 2, 2]


def test_who_arrives_does_not_wait_and_who_waits_does():
    # block 1 arrives, and ends the wait of block 0 for its mbarrier only after that
    lines = f"""{SYNC} setp.eq.u32 %q, %rank, 0; @%q bra B0; barrier.cluster.arrive; mov.u32 %y, 0;
    mapa.shared::cluster.u32 %z, %m, %y; @%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%z];
    barrier.cluster.wait; bra E; B0: {WAIT} barrier.cluster.arrive; barrier.cluster.wait; E: mov.u32 %x, 7; {OUT}"""
    assert (run(lines, 2, 2)[:, :32] == 7).all()


def test_threads_that_have_ended_count_as_arrived():
    lines = f"setp.gt.u32 %q, %rank, 1; @%q ret; {SYNC} mov.u32 %x, 7; {OUT}"
    assert run(lines)[:, 0].tolist() == [7, 7, 0, 0]


@pytest.mark.parametrize(
    "lines, error, why",
    [
        ("barrier.cluster.arrive; barrier.cluster.arrive;", KernelFault, "arrives twice with no wait between"),
        ("barrier.cluster.wait;", KernelFault, "waits and has not arrived before"),
        ("setp.eq.u32 %q, %rank, 1; @!%q bra C; bar.sync 1, 64; C: barrier.cluster.arrive; barrier.cluster.wait;",
         Deadlock, "wait for the barrier of their cluster"),
        ("mov.u32 %y, 4; mapa.shared::cluster.u32 %z, %t, %y;", KernelFault, "its cluster has 4 blocks"),
        ("mov.u32 %z, 0x4000000; ld.shared::cluster.u32 %x, [%z];", PageFault, "the cluster has 4 blocks"),
        ("mov.u32 %z, 0x1001000; ld.shared::cluster.u32 %x, [%z];", PageFault, "the block's shared memory has"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_fault(lines, error, why):
    with pytest.raises(error, match=why):
        run(lines)


def test_the_shared_memory_of_a_block_that_has_ended_is_gone():
    lines = f"""{SYNC} setp.ne.u32 %q, %rank, 0; @%q ret; mov.u32 %x, 0; L: add.u32 %x, %x, 1; setp.lt.u32 %q, %x, 9000;
    @%q bra L; mov.u32 %y, 3; mapa.shared::cluster.u32 %z, %t, %y; ld.shared::cluster.u32 %x, [%z];"""
    with pytest.raises(PageFault, match="the block of rank 3 has ended, and its shared memory with it"):
        run(lines)


def test_one_bulk_copy_reaches_the_blocks_of_its_mask_and_their_mbarriers():
    copy = MULTICAST
    lines = f"""@%first mbarrier.arrive.expect_tx.shared::cta.b64 %v, [%m], 128; {SYNC} mov.u16 %mask, 13;
    setp.eq.u32 %q, %rank, 2; and.pred %q, %q, %first; @!%q bra N; {copy} N: setp.eq.u32 %q, %rank, 1; @%q bra D;
    {WAIT} mad.lo.u32 %z, %i, 4, %t; ld.shared.u32 %x, [%z]; {OUT} {SYNC}"""
    found = run(lines.replace("D:", "D: mad.lo.u32 %z, %i, 4, %t;", 1))
    assert (found[[0, 2, 3], :32] == np.arange(32)).all() and not found[1].any()
    with pytest.raises(KernelFault, match=r"the mask 0x13 names .* those there are have the mask 0xf"):
        run(lines.replace("%mask, 13", "%mask, 19"))


def test_a_block_copies_its_memory_to_another():
    copy = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%z], [%t], 128, [%y];"
    lines = f"""mad.lo.u32 %z, %i, 4, %t; mad.lo.u32 %x, %c, 100, %i; st.shared.u32 [%z], %x; {NEXT}
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 %v, [%m], 128; fence.proxy.async.shared::cta; {SYNC}
    add.u32 %z, %t, 128; mapa.shared::cluster.u32 %z, %z, %y; mapa.shared::cluster.u32 %y, %m, %y;
    @!%first bra N; {copy} N: {WAIT} mad.lo.u32 %z, %i, 4, %t; ld.shared.u32 %x, [%z+128]; {OUT} {SYNC}"""
    block, thread = np.arange(4)[:, None], np.arange(32)
    assert (run(lines)[:, :32] == 100 * ((block + 3) % 4) + thread).all()


@pytest.mark.parametrize("what", ["st", "v2", "red"])
def test_stores_that_the_other_blocks_mbarrier_counts_are_there_when_it_has_counted_them(what):
    send, size = {
        "st": ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%z], %x, [%y];", 4),
        "v2": ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%z], {%x, %x}, [%y];", 8),
        "red": (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%z], %x, [%y];",
            4,
        ),
    }[what]
    lines = f"""mad.lo.u32 %z, %i, {size}, %t; mov.u32 %x, 5; st.shared.u32 [%z], %x; mad.lo.u32 %x, %c, 100, %i; {NEXT}
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 %v, [%m], {32 * size}; {SYNC}
    mapa.shared::cluster.u32 %z, %z, %y; mapa.shared::cluster.u32 %y, %m, %y; {send} {WAIT}
    mad.lo.u32 %z, %i, {size}, %t; ld.shared.u32 %x, [%z]; {OUT} {SYNC}"""
    block, thread = np.arange(4)[:, None], np.arange(32)
    assert (run(lines)[:, :32] == 100 * ((block + 3) % 4) + thread + 5 * (what == "red")).all()


def test_a_kernel_may_ask_for_clusters_and_its_launch_has_to_fit():
    text = f"{HEADER}.visible .entry k() .explicitcluster .reqnctapercluster 2, 1, 1 {{ ret; }}"
    run_ptx(text, "k", 4, 1)
    with pytest.raises(UsageError, match=r"grid=\(3, 1, 1\) is no multiple of its clusters"):
        run_ptx(text, "k", 3, 1)
    with pytest.raises(UsageError, match="compiled for exactly"):
        run_ptx(text, "k", 4, 1, cluster=(4, 1, 1))
    with pytest.raises(UsageError, match="is not three sizes of 1 to 16 blocks"):
        run_ptx(text.replace("2, 1, 1", "32, 1, 1"), "k", 32, 1)
    with pytest.raises(PtxError, match="grids that are counted in clusters of more than one block"):
        run_ptx(text.replace(".explicitcluster", ".blocksareclusters"), "k", 4, 1)


HISTOGRAM = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void histogram(const int *values, int count, int *bins, int per_block) {
  extern __shared__ int own[];
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) own[i] = 0;
  cluster.sync();
  for (int i = cg::this_grid().thread_rank(); i < count; i += gridDim.x * blockDim.x) {
    int value = values[i], rank = value / per_block;
    atomicAdd(cluster.map_shared_rank(own, rank) + value % per_block, 1);
  }
  cluster.sync();
  int *mine = bins + cluster.block_rank() * per_block;
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) atomicAdd(mine + i, own[i]);
}
extern "C" __global__ void __cluster_dims__(2, 2, 1) ring(float *out) {
  __shared__ float mine[64];
  cg::cluster_group cluster = cg::this_cluster();
  dim3 at = cluster.block_index(), size = cluster.dim_blocks();
  int rank = cluster.block_rank();
  mine[threadIdx.x] = rank * 1000 + threadIdx.x + 0.5f;
  auto token = cluster.barrier_arrive();
  float sum = at.x + 10 * at.y + 100 * size.x + 1000 * size.y;
  cluster.barrier_wait(static_cast<decltype(token) &&>(token));
  for (int i = 0; i < cluster.num_blocks(); i++) sum += cluster.map_shared_rank(mine, i)[63 - threadIdx.x] * (i + 1);
  cluster.sync();
  out[(blockIdx.y * gridDim.x + blockIdx.x) * 64 + threadIdx.x] = sum;
}
"""


@needs_nvrtc
@needs_header("cooperative_groups.h")
def test_a_histogram_over_the_memory_of_a_cluster_is_numpys():
    values = np.random.default_rng(3).integers(0, 1000, 20_000).astype(np.int32)
    bins = np.zeros(1000, np.int32)
    run_cuda(HISTOGRAM, "histogram", 8, 128, values, len(values), bins, 250, shared=1000, cluster=(4, 1, 1))
    assert (bins == np.bincount(values, minlength=1000)).all()


@needs_nvrtc
@needs_header("cooperative_groups.h")
def test_cooperative_groups_of_a_cluster_of_two_dimensions_are_numpys():
    out = np.zeros((4, 6, 64), np.float32)
    run_cuda(HISTOGRAM, "ring", (6, 4), 64, out)
    thread, x, y = np.arange(64), np.arange(6)[:, None], np.arange(4)[:, None, None]
    sums = sum((rank * 1000 + 63 - thread + 0.5) * (rank + 1) for rank in range(4))
    assert (out == x % 2 + 10 * (y % 2) + 200 + 2000 + sums).all()


@needs_nvjitlink
def test_the_vendors_assembler_takes_the_text_of_these_tests():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    lines = f"""{SYNC} {NEXT} mapa.shared::cluster.u32 %z, %t, %y; mapa.shared::cluster.u32 %y, %m, %y;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%z], {{%x, %x}}, [%y];
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%z], %x, [%y];
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%y]; cvt.u64.u32 %at, %t; isspacep.shared::cluster %p, %at;
    {MULTICAST}"""
    assert link_ptx(f"{HEAD} {lines} ret; }}", "sm_90a")


def found_in(lines: str, words: str, blocks: int = 4, cluster: int = 4, threads: int = 32) -> list[Finding]:
    """What is found under these words of HCQ_SANITIZE, also if the kernel is stopped."""
    checks, launch = Checks(frozenset(words.split())), Launched()
    text = f"{HEAD} {lines} ret; }}".replace("; ", ";\n")
    kernel = Kernel(text, "k", additions=additions_of(checks))
    arrays = np.zeros(256, np.uint32), np.zeros((blocks, 64), np.uint32)
    with contextlib.suppress(KernelFault):
        launch.run(kernel, blocks, threads, *arrays, cluster=(cluster, 1, 1), checks=checks)
    return list(checks.found.values())


COUNT = "@%first mbarrier.arrive.expect_tx.shared::cta.b64 %v, [%m], 128;"
TO_ALL = f"""{COUNT} {SYNC} setp.eq.u32 %q, %rank, 0; and.pred %q, %q, %first; mov.u16 %mask, 15; @!%q bra N;
{MULTICAST} N:"""
WRITE = "@%first st.shared.u32 [%t], %rank;"
ADD = f"{NEXT} mapa.shared::cluster.u32 %z, %t, %y; red.shared::cluster.add.u32 [%z], 1;"
READ = f"{NEXT} mapa.shared::cluster.u32 %z, %t, %y; ld.shared::cluster.u32 %x, [%z];"
SEND = f"{NEXT} mapa.shared::cluster.u32 %z, %m, %y;"
ARRIVE = "@%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%z];"
# each block asks the one before it, and the flag of the last one is in global memory
FLAG = "ld.param.u64 %g, [A]; fence.acq_rel.gpu; @%first red.relaxed.gpu.global.add.u32 [%g], 1; bar.sync 0;"
ALL = "L: ld.acquire.gpu.global.u32 %x, [%g]; setp.ne.u32 %p, %x, 4; @%p bra L;"


@pytest.mark.parametrize(
    "right, wrong",
    [
        (f"{SYNC} {READ} {SYNC}", f"{SYNC} {READ}"),
        (f"{SYNC} {READ} {SYNC}", f"{SYNC} {READ} barrier.cluster.arrive;"),
        (f"{SYNC} {READ} {SYNC}", f"{SYNC} barrier.cluster.arrive; {READ} barrier.cluster.wait;"),
        (f"{SYNC} {READ} {SEND} {ARRIVE} {WAIT}", f"{SYNC} {READ} {SEND} {ARRIVE}"),
        (f"{SYNC} {READ} {FLAG} {ALL}", f"{SYNC} {READ} {FLAG}"),
        (f"{SYNC} setp.eq.u32 %q, %rank, 0; @!%q bra E; {READ} E: {SYNC}",
         f"{SYNC} setp.eq.u32 %q, %rank, 0; @!%q bra E; {READ} E: bar.sync 0;"),
        (f"{TO_ALL} {WAIT}", TO_ALL),
    ],
    ids=["read", "arrive alone", "between the halves", "mbarrier", "flag", "one block", "multicast"],
)  # fmt: skip
def test_a_block_that_ends_while_others_may_access_its_memory_is_found(right, wrong):
    assert found_in(right, "sync") == []
    found = found_in(wrong, "sync")
    assert {one.rule for one in found} == {"cluster-left"}
    assert all("before it ends" in one.why or "has ended" in one.why for one in found)
    assert all(one.sites[0].place > 0 and one.sites[0].who.startswith("thread (") for one in found)


def test_an_access_to_a_block_that_is_gone_is_found_where_it_is():
    lines = f"""{SYNC} setp.ne.u32 %q, %rank, 0; @%q ret; mov.u32 %x, 0; L: add.u32 %x, %x, 1; setp.lt.u32 %q, %x, 9000;
    @%q bra L; {READ}"""
    (found,) = found_in(lines, "sync")
    assert found.rule == "cluster-left" and found.why == "block (1, 0, 0) has ended"
    assert "ld.shared::cluster" in found.sites[0].text


@pytest.mark.parametrize(
    "right, wrong",
    [
        (f"{WRITE} {SYNC} {READ} {SYNC}", f"{WRITE} bar.sync 0; {READ} {SYNC}"),
        (f"{WRITE} {SYNC} {READ} {SYNC} {WRITE}", f"{WRITE} {SYNC} {READ} bar.sync 0; {WRITE} {SYNC}"),
        (f"{ADD} {SYNC} ld.shared.u32 %x, [%t];", f"{ADD} bar.sync 0; ld.shared.u32 %x, [%t];"),
        (f"{WRITE} {SYNC} {READ} {SEND} {ARRIVE} {WAIT} {WRITE}",
         f"{WRITE} {SYNC} {READ} {SEND} {ARRIVE} {WRITE} {WAIT}"),
    ],
    ids=["before", "after", "atomic", "mbarrier"],
)  # fmt: skip
def test_races_in_the_memory_of_a_cluster_are_found(right, wrong):
    assert found_in(right, "race", blocks=8) == []
    found = found_in(wrong, "race", blocks=8)
    assert found and {one.rule for one in found} == {"shared-race"}
    blocks = {re.search(r"block \((\d+),", site.who)[1] for site in found[0].sites}
    assert len(blocks) == 2
