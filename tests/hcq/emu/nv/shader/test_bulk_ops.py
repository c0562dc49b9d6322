"""Bulk copies of bytes, groups of them, arrivals at mbarriers, and clusters of one block."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import KernelFault, MisalignedAccess, PageFault, PtxError
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, run_ptx

HEADER = ".version 8.3\n.target sm_90a\n.address_size 64\n"
HEAD = f"""{HEADER}.visible .entry k(.param .u64 A, .param .u64 B) {{
.shared .align 128 .b8 tile[512]; .shared .align 8 .b64 bar; .reg .b64 %a, %b, %v, %at; .reg .b32 %i, %t, %m, %x, %y;
.reg .pred %first, %p; ld.param.u64 %a, [A]; ld.param.u64 %b, [B]; mov.u32 %i, %tid.x; mov.u32 %t, tile;
mov.u32 %m, bar; setp.eq.u32 %first, %i, 0;
"""
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%t], [%a], 256, [%m];"
TELL = "mbarrier.arrive.expect_tx.shared::cta.b64 %v, [%m], 256;"
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%m], 0; @%p bra D; bra W; D:"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [%b], [%t], 256;"
DONE = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


def run(lines: str, threads: int = 1, a: np.ndarray | None = None) -> np.ndarray:
    a = np.arange(64, dtype=np.uint32) if a is None else a
    b = np.zeros(64, np.uint32)
    run_ptx(f"{HEAD} {lines} ret; }}", "k", 1, threads, a, b)
    return b


def test_bytes_come_and_go():
    lines = f"mbarrier.init.shared::cta.b64 [%m], 1; {TELL} {LOAD} {WAIT} {STORE} {DONE}"
    assert (run(lines) == np.arange(64)).all()
    # the other form of the destination, and the cache's policy
    lines = lines.replace("cluster.global", "cta.global").replace("bytes [%t]", "bytes.L2::cache_hint [%t]")
    assert (run(lines.replace("256, [%m];", "256, [%m], %a;")) == np.arange(64)).all()


def test_a_copy_may_be_expected_after_it_was_issued():
    lines = f"mbarrier.init.shared::cta.b64 [%m], 1; {LOAD} {TELL} {WAIT} {STORE} {DONE}"
    assert (run(lines) == np.arange(64)).all()


def test_shared_memory_that_is_written_before_it_was_read_is_stored_as_it_is_then():
    start = f"mbarrier.init.shared::cta.b64 [%m], 1; {TELL} {LOAD} {WAIT} {STORE} cp.async.bulk.commit_group;"
    early = f"{start} st.shared.u32 [%t], 99; cp.async.bulk.wait_group.read 0;"
    late = f"{start} cp.async.bulk.wait_group.read 0; st.shared.u32 [%t], 99;"
    assert [run(lines)[0] for lines in (early, late)] == [99, 0]


def test_a_wait_leaves_the_latest_groups_pending():
    lines = f"""mov.u32 %x, 1; st.shared.u32 [%t], %x; {STORE} cp.async.bulk.commit_group;
    cp.async.bulk.global.shared::cta.bulk_group [%b+16], [%t], 16; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 1; mov.u32 %x, 2; st.shared.u32 [%t], %x; cp.async.bulk.wait_group 0;"""
    found = run(lines)
    assert (found[0], found[4]) == (1, 2)


@pytest.mark.parametrize(
    "what, type_, scalar, function",
    [
        ("add", "u32", np.uint32, np.add), ("min", "s32", np.int32, np.minimum), ("max", "s64", np.int64, np.maximum),
        ("xor", "b32", np.uint32, np.bitwise_xor), ("add", "f32", np.float32, np.add),
        ("add.noftz", "f16", np.float16, np.add), ("add", "f64", np.float64, np.add),
    ],
)  # fmt: skip
def test_stores_reduce(what, type_, scalar, function):
    rng = np.random.default_rng(1)
    values = rng.integers(0, 100, 256 // np.dtype(scalar).itemsize).astype(scalar)
    before = rng.integers(0, 100, len(values)).astype(scalar)
    goal = before.copy()
    text = f"""{HEAD} mbarrier.init.shared::cta.b64 [%m], 1; {TELL} {LOAD} {WAIT}
    cp.reduce.async.bulk.global.shared::cta.bulk_group.{what}.{type_} [%b], [%t], 256; {DONE} ret; }}"""
    run_ptx(text, "k", 1, 1, values, goal)
    assert (goal == function(before, values)).all()


def test_bytes_move_inside_of_the_blocks_own_cluster():
    move = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%t], [%t+256], 256, [%m];"
    lines = f"mbarrier.init.shared::cta.b64 [%m], 1; {TELL} mov.u32 %x, 5; st.shared.u32 [%t+256], %x; {move} {WAIT} "
    assert run(f"{lines} {STORE} {DONE}")[0] == 5


def test_bytes_are_added_to_shared_memory():
    add = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32"
    lines = f"""mbarrier.init.shared::cta.b64 [%m], 1; {TELL} mov.u32 %x, 5; st.shared.u32 [%t+256], %x;
    mov.u32 %x, 2; st.shared.u32 [%t], %x; {add} [%t], [%t+256], 256, [%m]; {WAIT} {STORE} {DONE}"""
    assert run(lines)[0] == 7


def test_each_thread_has_groups_of_its_own():
    lines = f"""mov.u32 %x, 1; st.shared.u32 [%t], %x; bar.sync 0; @!%first bra O;
    {STORE} cp.async.bulk.commit_group; O: @%first bra Z; cp.async.bulk.wait_group 0;
    mov.u32 %x, 2; st.shared.u32 [%t], %x; Z: bar.sync 0; @%first cp.async.bulk.wait_group 0;"""
    assert run(lines, 32)[0] == 2  # nobody else's wait is a wait for thread 0's store


def test_prefetches_and_fences_change_nothing():
    lines = """cp.async.bulk.prefetch.L2.global [%a], 256; fence.proxy.async; fence.proxy.async.shared::cta;
    fence.mbarrier_init.release.cluster; fence.proxy.async.global; fence.acquire.sync_restrict::shared::cluster.cluster;
    fence.proxy.tensormap::generic.release.gpu;
    fence.proxy.tensormap::generic.acquire.gpu [%a], 128; prefetch.tensormap [%a]; griddepcontrol.wait;"""
    assert not run(lines).any()


@pytest.mark.parametrize(
    "old, new, error, why",
    [
        ("256, [%m]", "250, [%m]", KernelFault, "250 bytes, no multiple of 16"),
        ("[%t], [%a]", "[%t], [%a+8]", KernelFault, "0x10000008 is no multiple of 16"),
        ("[%t], [%a]", "[%t+8], [%a]", KernelFault, "0x8 is no multiple of 16"),
        ("[%t], [%a]", "[%t+384], [%a]", PageFault, "bulk copy in shared memory at 0x"),
        ("256, [%m]", "256, [%m+4]", MisalignedAccess, "access to an mbarrier"),
        ("256, [%m]", "256, [%m+65536]", PageFault, "access to an mbarrier"),
        ("[%t], [%a]", "[%t], [%b+512]", PageFault, "bulk load at"),
        (
            "shared::cluster.global",
            "global.shared::cta",
            PtxError,
            "an mbarrier counts what comes to shared memory",
        ),
        ("shared::cluster.global", "global.global", PtxError, "no bulk copy from .global to .global"),
        (", 256, [%m]", "", PtxError, "operands are missing"),
        (
            "complete_tx::bytes",
            "complete_tx",
            PtxError,
            "expected .mbarrier::complete_tx::bytes or .bulk_group",
        ),
    ],
)
def test_what_a_copy_must_not_say_is_refused_at_the_copy(old, new, error, why):
    assert old in LOAD
    with pytest.raises(error, match=why):
        run(f"mbarrier.init.shared::cta.b64 [%m], 1; {LOAD.replace(old, new)} ")


def test_copies_of_16_bytes_arrive_at_an_mbarrier():
    lines = """mbarrier.init.shared::cta.b64 [%m], {}; cp.async.ca.shared.global [%t], [%a], 16;
    cp.async.mbarrier.arrive{}.shared::cta.b64 [%m]; {} mbarrier.test_wait.parity.shared::cta.b64 %p, [%m], 0;
    selp.u32 %x, 1, 0, %p; st.global.u32 [%b], %x;"""
    assert run(lines.format(1, ".noinc", ""))[0] == 1
    assert (
        run(lines.format(1, "", ""))[0] == 0
    )  # counted up and down: the thread's own arrival is still to come
    assert run(lines.format(1, "", "mbarrier.arrive.shared::cta.b64 %v, [%m];"))[0] == 1


def test_a_cluster_of_one_block_has_rank_0_and_its_own_memory():
    lines = """mapa.shared::cluster.u32 %y, %t, 0; mov.u32 %x, 7; st.shared::cluster.u32 [%y], %x;
    getctarank.shared::cluster.u32 %x, %y; barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned; ld.shared.u32 %y, [%t]; add.u32 %x, %x, %y;
    st.global.u32 [%b], %x; mov.u32 %y, %cluster_ctarank; st.global.u32 [%b+4], %y;"""
    assert run(lines, 64)[:2].tolist() == [7, 0]
    with pytest.raises(KernelFault, match=r"mapa of rank 1 .* its cluster has 1 block, with ranks from 0 on"):
        run(lines.replace("%t, 0;", "%t, 1;"), 64)


def test_directives_of_clusters_of_one_block_are_taken():
    run_ptx(f"{HEADER}.visible .entry k() .explicitcluster .reqnctapercluster 1, 1, 1 {{ ret; }}", "k", 1, 1)


@needs_nvjitlink
def test_the_vendors_assembler_takes_the_text_of_these_tests():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    lines = f"mbarrier.init.shared::cta.b64 [%m], 1; {LOAD} {TELL} {WAIT} {STORE} {DONE}"
    assert link_ptx(f"{HEAD} {lines} ret; }}", "sm_90a")


@pytest.mark.parametrize("mask", [0x0001, 0x8421, 0xFFFF, 0])
def test_a_mask_says_which_bytes_of_each_sixteen_are_stored(mask):
    lines = f"""mbarrier.init.shared::cta.b64 [%m], 1; {TELL} {LOAD} {WAIT} .reg .b16 %h; mov.u16 %h, {mask};
    cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%b], [%t], 256, %h; {DONE}"""
    a = np.random.default_rng(1).integers(0, 256, 256, np.uint8)
    found = run(lines, a=a.view(np.uint32)).view(np.uint8)
    chosen = [mask >> byte % 16 & 1 for byte in range(256)]
    assert np.array_equal(found, np.where(chosen, a, 0))


@pytest.mark.parametrize("left, right", [(3, 0), (0, 15), (7, 9)])
def test_bytes_at_both_ends_are_left_out_where_the_instruction_says_so(left, right):
    """They may be nobody's memory; the mbarrier counts them."""
    load = f"""cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob
    [%t], [%a], 256, {left}, {right}, [%m];"""
    lines = f"mbarrier.init.shared::cta.b64 [%m], 1; {TELL} {load} {WAIT} {STORE} {DONE}"
    a = np.random.default_rng(1).integers(1, 256, 256, np.uint8)
    found = run(lines, a=a.view(np.uint32)).view(np.uint8)
    wanted = a.copy()
    wanted[:left] = wanted[256 - right :] = 0
    assert np.array_equal(found, wanted)


def test_at_most_15_bytes_are_left_out_at_an_end():
    load = LOAD.replace("bytes [%t]", "bytes.ignore_oob [%t]").replace("256, [%m]", "256, 16, 0, [%m]")
    with pytest.raises(KernelFault, match="at most 15"):
        run(f"mbarrier.init.shared::cta.b64 [%m], 1; {TELL} {load}")


def test_masks_are_for_global_memory():
    with pytest.raises(PtxError, match="to global memory"):
        run(LOAD.replace("bytes [%t]", "bytes.cp_mask [%t]").replace("256, [%m]", "256, [%m], %x"))


@needs_nvjitlink
def test_the_vendors_assembler_takes_masks_of_bytes_and_ends_that_are_left_out():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    lines = """.reg .b16 %h; cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%b], [%t], 256, %h;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%t], [%a], 256, %x, %y, [%m];"""
    text = f"{HEAD} {lines} ret; }}".replace("8.3", "9.2").replace("sm_90a", "sm_100a")
    assert link_ptx(text, "sm_100a")
