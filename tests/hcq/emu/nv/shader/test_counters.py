"""What a launch of PTX does, counted: laws of copies and strides, conflicts, branches. Counting changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq.emu.nv.shader.counters import class_of, counted
from hcq.emu.nv.shader.memory import AddressSpace
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.run import Kernel
from hcq.emu.shader.traffic import Tally
from hcq.performance.counters import Counters
from tests.hcq.emu.nv.shader.running import HEADER, compile_cuda, needs_nvrtc

BUFFERS = 0x1000_0000
STEP = 0x100_0000


def kernel(body: str, params: int = 2) -> str:
    """PTX: %rd1 and %rd2 are the parameters, %r1 the thread in its block, %r4 in the grid."""
    names = ", ".join(f".param .u64 p{i}" for i in range(params))
    loads = "\n".join(f"ld.param.u64 %rd{i + 1}, [p{i}];" for i in range(params))
    return (
        HEADER
        + f""".visible .entry k({names}) {{
        .reg .b64 %rd<20>; .reg .b32 %r<20>; .reg .f32 %f<20>; .reg .pred %p<4>;
        .shared .align 16 .b8 tile[16384];
        {loads}
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.s32 %r4, %r2, %r3, %r1;
        {body}
        ret; }}"""
    )


def launch(
    ptx: str,
    grid: int,
    block: int,
    *arrays: np.ndarray[Any, Any],
    counts: bool = True,
    name: str = "k",
    local_bytes: int = 0,
    sample: int = 0,
) -> Counters:
    memory = AddressSpace()
    places = [BUFFERS + STEP * i for i in range(len(arrays))]
    for place, array in zip(places, arrays):
        memory.map(place, array)
    made = Kernel(ptx, name, additions=(counted,) * counts)
    tally = Tally(
        "sm_80", 0, name, (grid, 1, 1), (block, 1, 1), 32, 32, made.static_shared_bytes, local_bytes, sample
    )
    params = np.array(places, np.uint64).tobytes()
    made.run((grid, 1, 1), (block, 1, 1), memory, params, tally=tally if counts else None, sample=sample)
    return tally.record


COPY = kernel("""
    mul.wide.s32 %rd3, %r4, {size}; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.{type} {to}, [%rd4];
    st.global.{type} [%rd5], {to};""")


def copy(type_: str, size: int, to: str = "%f1") -> str:
    return COPY.replace("{size}", str(size)).replace("{type}", type_).replace("{to}", to)


@pytest.mark.parametrize(
    ("type_", "size", "to"),
    [("f32", 4, "%f1"), ("v2.f32", 8, "{%f1, %f2}"), ("v4.f32", 16, "{%f1, %f2, %f3, %f4}")],
)
def test_a_copy_of_n_bytes_asks_for_n_over_32_sectors(type_: str, size: int, to: str) -> None:
    threads = 8 * 128
    source = np.arange(threads * size, dtype=np.uint32).astype(np.uint8)
    goal = np.zeros_like(source)
    found = launch(copy(type_, size, to), 8, 128, source, goal)
    assert (goal == source).all()
    assert found.load_sectors == found.store_sectors == source.nbytes // 32
    assert found.bytes_needed == found.l2_bytes == found.dram_bytes == 2 * source.nbytes
    assert found.dram_read_bytes == found.dram_write_bytes == source.nbytes
    assert found.sector_ratio == 1


def test_a_strided_copy_asks_for_as_many_sectors_as_there_are_threads() -> None:
    threads = 256
    source, goal = np.arange(threads * 16, dtype=np.uint32), np.zeros(threads * 16, np.uint32)
    body = """mul.wide.s32 %rd3, %r4, 64; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
        ld.global.u32 %r5, [%rd4]; st.global.u32 [%rd5], %r5;"""
    found = launch(kernel(body), 2, 128, source, goal)
    assert found.load_sectors == found.store_sectors == threads
    assert found.sector_ratio == 8


SHARED = """
    mul.lo.s32 %r5, %r1, {stride}; mov.u32 %r6, tile; add.s32 %r6, %r6, %r5;
    st.shared.u32 [%r6], %r1; ld.shared.u32 %r7, [%r6];
    mul.wide.s32 %rd3, %r4, 4; add.s64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r7;"""


@pytest.mark.parametrize(("stride", "ways"), [(4, 1), (8, 2), (16, 4), (64, 16), (128, 32), (132, 1), (0, 1)])
def test_threads_of_a_warp_wait_for_a_bank_as_often_as_their_stride_says(stride: int, ways: int) -> None:
    out = np.zeros(32, np.uint32)
    found = launch(kernel(SHARED.replace("{stride}", str(stride))), 1, 32, np.zeros(4, np.uint32), out)
    assert found.shared_passes == 2 * ways
    assert found.bank_conflicts == 2 * (ways - 1)


def test_generic_addresses_count_where_they_lead() -> None:
    body = """cvta.shared.u64 %rd6, tile; mul.wide.s32 %rd3, %r1, 128; add.s64 %rd6, %rd6, %rd3;
        st.u32 [%rd6], %r1; ld.u32 %r7, [%rd6];
        mul.wide.s32 %rd3, %r4, 4; add.s64 %rd4, %rd2, %rd3; st.u32 [%rd4], %r7;"""
    out = np.zeros(32, np.uint32)
    ptx = kernel(body).replace(
        "cvta.shared.u64 %rd6, tile;", "mov.u64 %rd7, tile; cvta.shared.u64 %rd6, %rd7;"
    )
    found = launch(ptx, 1, 32, np.zeros(4, np.uint32), out)
    assert (out == np.arange(32)).all()
    assert (found.bank_conflicts, found.load_sectors, found.store_sectors) == (62, 0, 4)


LOCAL = """
    .local .align 16 .b8 mine[64];
    mov.u64 %rd6, mine; {generic}
    st.{space}v4.u32 [%rd6+16], {%r1, %r1, %r1, %r1}; ld.{space}v2.u32 {%r7, %r8}, [%rd6+24];
    mul.wide.s32 %rd3, %r4, 4; add.s64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r7;"""


@pytest.mark.parametrize("space", ["local.", ""])
def test_local_memory_asks_for_a_word_of_all_threads_at_once(space: str) -> None:
    generic = "" if space else "cvta.local.u64 %rd6, %rd6;"
    out = np.zeros(4 * 96, np.uint32)
    text = kernel(LOCAL.replace("{space}", space).replace("{generic}", generic))
    found = launch(text, 4, 96, np.zeros(4, np.uint32), out, local_bytes=64)
    assert (out.reshape(4, 96) == np.arange(96)).all()
    assert found.local_sectors == (4 + 2) * out.nbytes // 32
    assert found.bytes_needed == out.nbytes
    # what was stored goes through L2 to DRAM; what is loaded is in L1 still
    assert (found.l2_bytes, found.dram_read_bytes, found.dram_write_bytes) == (
        5 * out.nbytes, 0, 5 * out.nbytes,
    )  # fmt: skip


DIVERGENT = """
    setp.lt.s32 %p1, %r1, {limit}; mov.u32 %r7, 1;
    @%p1 bra THERE; mov.u32 %r7, 2; add.s32 %r7, %r7, %r1;
    THERE: mul.wide.s32 %rd3, %r4, 4; add.s64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r7;"""


@pytest.mark.parametrize(("limit", "divergent"), [(0, 0), (5, 1), (32, 0), (40, 1), (128, 0)])
def test_a_branch_diverges_in_the_warps_of_which_only_some_threads_take_it(
    limit: int, divergent: int
) -> None:
    out = np.zeros(3 * 128, np.uint32)
    found = launch(kernel(DIVERGENT.replace("{limit}", str(limit))), 3, 128, np.zeros(4, np.uint32), out)
    assert found.branches == 3 * 4
    assert found.divergent_branches == 3 * divergent
    # those that do not take it, by warps: the two instructions between
    waiting = 3 * sum(32 * warp + 31 >= limit for warp in range(4))
    assert found.instructions["integer"] == 3 * 4 * 4 + waiting


def test_a_text_without_branches_is_counted_as_it_stands_there() -> None:
    text = copy("f32", 4)
    function = parse(text).functions["k"]
    expected: dict[str, int] = {}
    for one in function.body:
        expected[class_of(one)] = expected.get(class_of(one), 0) + 1
    grid, block = 5, 96
    data = np.zeros(grid * block, np.float32)
    found = launch(text, grid, block, data, np.zeros_like(data))
    warps = grid * block // 32
    assert found.instructions == {name: count * warps for name, count in expected.items()}
    assert found.thread_instructions == sum(expected.values()) * grid * block
    assert found.warps == warps


@pytest.mark.parametrize("sample", [1, 3, 8, 100])
def test_of_a_launch_only_a_sample_of_blocks_may_run(sample: int) -> None:
    data, out = np.arange(8 * 64, dtype=np.uint32), np.zeros(8 * 64, np.uint32)
    found = launch(copy("u32", 4, "%r5"), 8, 64, data, out, sample=sample)
    ran = min(sample, 8)
    assert (out[: ran * 64] == data[: ran * 64]).all()
    assert not out[ran * 64 :].any()
    assert (found.blocks, found.warps, found.grid_blocks) == (ran, 2 * ran, 8)
    assert found.whole() == launch(copy("u32", 4, "%r5"), 8, 64, data, out)


def test_a_block_that_is_no_whole_warp_counts_its_last_warp() -> None:
    data = np.zeros(3 * 40, np.float32)
    found = launch(copy("f32", 4), 3, 40, data, np.zeros_like(data))
    assert found.warps == found.instructions["global load"] == 6
    assert found.bytes_needed == 2 * data.nbytes


def test_barriers_are_counted_for_each_warp() -> None:
    found = launch(kernel("bar.sync 0; bar.sync 0;"), 3, 64, np.zeros(4), np.zeros(4))
    assert found.barriers == found.instructions["barrier"] == 2 * 3 * 2


MMA = """
    mov.u32 %r5, 0; mov.f32 %f1, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {%f1,%f1,%f1,%f1}, {%r5,%r5,%r5,%r5}, {%r5,%r5}, {%f1,%f1,%f1,%f1};
    mov.u32 %r6, tile; and.b32 %r7, %r1, 15; mul.lo.s32 %r7, %r7, {stride}; add.s32 %r6, %r6, %r7;
    ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r8, %r9}, [%r6];
    fma.rn.f32 %f2, %f1, %f1, %f1; add.f32 %f2, %f1, %f1;"""


@pytest.mark.parametrize(("stride", "conflicts"), [(128, 14), (144, 0), (16, 0)])
def test_matrix_instructions_count_products_and_the_rows_that_they_read(stride: int, conflicts: int) -> None:
    found = launch(kernel(MMA.replace("{stride}", str(stride))), 2, 64, np.zeros(4), np.zeros(4))
    warps = 4
    assert found.matrix_flops == {"f16": warps * 2 * 16 * 8 * 16}
    assert found.instructions["matrix"] == warps
    assert found.flops == {"f32": 3 * 128}
    assert (found.shared_passes, found.bank_conflicts) == (warps * (2 + conflicts), warps * conflicts)


def test_an_asynchronous_copy_reads_global_and_writes_shared_memory() -> None:
    body = """mov.u32 %r6, tile; mul.lo.s32 %r7, %r1, 16; add.s32 %r6, %r6, %r7; mul.wide.s32 %rd3, %r1, 16;
        add.s64 %rd4, %rd1, %rd3; setp.lt.s32 %p1, %r1, 8; selp.u32 %r8, 16, 0, %p1;
        cp.async.cg.shared.global [%r6], [%rd4], 16, %r8; cp.async.wait_all;"""
    found = launch(kernel(body), 1, 32, np.zeros(128, np.uint32), np.zeros(4))
    assert (found.load_sectors, found.bytes_needed) == (4, 8 * 16)
    assert (found.shared_passes, found.bank_conflicts) == (4, 0)


WMMA = """
    mov.u32 %r6, tile; mov.u32 %r5, {stride};
    wmma.load.a.sync.aligned.row.m16n16k16.{space}.f16 {%r7,%r8,%r9,%r10,%r11,%r12,%r13,%r14}, [{from}], %r5;
    wmma.store.d.sync.aligned.row.m16n16k16.global.f32
        [%rd2], {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, %r5;"""


@pytest.mark.parametrize(("stride", "conflicts"), [(16, 4), (24, 0), (64, 28)])
def test_a_fragment_in_shared_memory_is_read_eight_lines_at_once(stride: int, conflicts: int) -> None:
    text = kernel(WMMA.replace("{stride}", str(stride)).replace("{space}", "shared").replace("{from}", "%r6"))
    found = launch(text, 1, 32, np.zeros(4), np.zeros(16 * stride, np.float32))
    # 16 lines of 32 bytes: four times eight pieces
    assert (found.shared_passes, found.bank_conflicts) == (4 + conflicts, conflicts)
    assert found.store_sectors == 16 * 64 // 32
    assert not found.uncounted


@pytest.mark.parametrize("stride", [16, 24, 32])
def test_a_fragment_in_global_memory_asks_for_each_sector_once(stride: int) -> None:
    text = kernel(
        WMMA.replace("{stride}", str(stride)).replace("{space}", "global").replace("{from}", "%rd1")
    )
    source = np.zeros(16 * stride, np.float16)
    found = launch(text, 1, 32, source, np.zeros(16 * stride, np.float32))
    starts = [2 * stride * line for line in range(16)]
    assert found.load_sectors == len({at // 32 for start in starts for at in (start, start + 31)})
    assert found.bytes_needed == 16 * 32 + 16 * 64


def test_what_no_model_knows_is_named() -> None:
    body = """mov.u64 %rd6, tile; mov.u32 %r5, 1;
        tensormap.replace.tile.rank.shared::cta.b1024.b32 [%rd6], %r5;"""
    found = launch(kernel(body).replace("sm_90\n", "sm_90a\n"), 1, 1, np.zeros(4), np.zeros(4))
    assert list(found.uncounted.values()) == [1]


ATOMIC = """
    mul.wide.s32 %rd3, %r1, 0; add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r10, [%rd4];
    AGAIN: add.s32 %r11, %r10, %r1; atom.global.cas.b32 %r12, [%rd4], %r10, %r11;
    setp.ne.s32 %p1, %r12, %r10; mov.u32 %r10, %r12; @%p1 bra AGAIN;"""
PROGRAMS = {
    "copy": copy("f32", 4),
    "shared": kernel(SHARED.replace("{stride}", "64")),
    "divergent": kernel(DIVERGENT.replace("{limit}", "45")),
    "matrix": kernel(MMA.replace("{stride}", "128")),
    "retry": kernel(ATOMIC),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_counting_changes_no_result(name: str) -> None:
    results = []
    for counts in (False, True):
        first = np.random.default_rng(3).integers(0, 1000, 4096, np.uint32)
        second = np.zeros_like(first)
        launch(PROGRAMS[name], 4, 128, first, second, counts=counts)
        results.append((first, second))
    for plain, both in zip(*results):
        assert (plain == both).all()


@needs_nvrtc
def test_a_kernel_in_cuda_c_is_counted_through_its_ptx() -> None:
    source = """extern "C" __global__ void k(const float *in, float *out) {
      __shared__ float tile[32][32];
      int t = threadIdx.x, x = t % 32, y = t / 32;
      tile[y][x] = in[t]; __syncthreads(); out[t] = tile[x][y]; }"""
    x, out = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    found = launch(compile_cuda(source), 1, 1024, x, out)
    assert (out.reshape(32, 32) == x.reshape(32, 32).T).all()
    assert (found.load_sectors, found.store_sectors, found.barriers) == (128, 128, 32)
    assert found.bank_conflicts == 32 * 31
