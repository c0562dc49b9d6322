"""Threads that part, meet, wait, fault and hang: PTX written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.errors import Deadlock, KernelFault, MisalignedAccess, PageFault, PtxError, StepLimit
from hcq.emu.nv.shader.memory import AddressSpace
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.run import Kernel
from hcq.errors import DeviceFault, UsageError
from tests.hcq.emu.nv.shader.running import HEADER, Launch, run_ptx


def kernel(body: str, params: str = ".param .u64 out", before: str = "") -> str:
    registers = ".reg .b32 %r<20>; .reg .b64 %d<10>; .reg .pred %p<5>; .reg .b16 %h<5>;"
    return f"{HEADER}{before}\n.visible .entry k({params}) {{\n{registers}\n{body}\n}}\n"


MY_OUT = "ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;"


# -- re-convergence


def test_branches_meet_at_the_immediate_post_dominator():
    body = """setp.eq.u32 %p0, %r0, 0; @%p0 bra A;
    mov.u32 %r1, 1; bra B;
    A: mov.u32 %r1, 2;
    B: mov.u32 %r2, %r1; ret;"""
    branch, other, taken, meeting = flow.blocks_of(parse(kernel(body)).functions["k"])[:4]
    assert branch.next == [taken.number, other.number]
    assert {branch.rejoin, other.rejoin, taken.rejoin} == {meeting.number}


def test_a_loop_whose_threads_leave_at_different_times_meets_behind_it():
    """Behind the loop all threads vote together: a thread that went on alone would see another ballot."""
    body = (
        MY_OUT
        + """
    mov.u32 %r1, 0;
    LOOP: add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, %r0; @%p0 bra LOOP;
    vote.sync.ballot.b32 %r2, 1, -1;
    activemask.b32 %r3; and.b32 %r2, %r2, %r3; add.u32 %r2, %r2, %r1; st.global.u32 [%d1], %r2; ret;"""
    )
    out = np.zeros(64, np.uint32)
    run_ptx(kernel(body), "k", 1, 64, out)
    assert out.tolist() == [(0xFFFFFFFF + max(t, 1)) & 0xFFFFFFFF for t in range(64)]


def test_threads_that_go_around_a_long_loop_meet_those_that_wait_for_them_behind_two_branches():
    """Those that skip the loop go on when it takes long, take a second branch, and wait in a shuffle."""
    body = (
        MY_OUT
        + """
    mov.u32 %r1, 0; mov.u32 %r2, 5; setp.ge.u32 %p0, %r0, 12; @%p0 bra NEXT;
    LOOP: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 10000; @%p1 bra LOOP;
    NEXT: @%p0 bra MEET;
    mov.u32 %r2, %r1;
    MEET: add.u32 %r3, %r2, 1; shfl.sync.bfly.b32 %r4, %r3, 16, 31, -1; st.global.u32 [%d1], %r4; ret;"""
    )
    out = np.zeros(64, np.uint32)
    run_ptx(kernel(body), "k", 1, 64, out)
    assert out.tolist() == [10001 if 16 <= t < 28 else 6 for t in range(64)]


def test_short_circuits_run_their_common_body_once_for_all():
    """Threads come to BODY from two branches; shfl.sync there names them all."""
    body = (
        MY_OUT
        + """
    mov.u32 %r5, 0;
    and.b32 %r1, %r0, 1; setp.ne.u32 %p0, %r1, 0; @%p0 bra BODY;
    and.b32 %r1, %r0, 2; setp.ne.u32 %p0, %r1, 0; @%p0 bra BODY;
    bra END;
    BODY: shfl.sync.idx.b32 %r5, %r0, 1, 31, 0xEEEEEEEE; add.u32 %r5, %r5, 7;
    END: st.global.u32 [%d1], %r5; ret;"""
    )
    out = np.zeros(32, np.uint32)
    run_ptx(kernel(body), "k", 1, 32, out)
    assert out.tolist() == [8 if t & 3 else 0 for t in range(32)]


def test_threads_that_exited_early_are_not_waited_for():
    body = (
        MY_OUT
        + """
    setp.gt.u32 %p0, %r0, 40; @%p0 exit;
    bar.sync 0;
    shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; st.global.u32 [%d1], %r1; ret;"""
    )
    out = np.full(64, 99, np.uint32)
    run_ptx(kernel(body), "k", 1, 64, out)
    assert out.tolist() == [0] * 32 + [32] * 9 + [99] * 23


def test_warp_barriers_in_both_branches_pair_up():
    body = (
        MY_OUT
        + """
    setp.lt.u32 %p0, %r0, 16; mov.u32 %r9, buffer; shl.b32 %r1, %r0, 2; add.u32 %r9, %r9, %r1; @%p0 bra FIRST;
    bar.warp.sync -1; ld.shared.u32 %r2, [%r9+-64]; bra END;
    FIRST: add.u32 %r3, %r0, 100; st.shared.u32 [%r9], %r3;
    bar.warp.sync -1; mov.u32 %r2, 0;
    END: st.global.u32 [%d1], %r2; ret;"""
    )
    out = np.zeros(32, np.uint32)
    run_ptx(kernel(body, before=".shared .align 4 .b8 buffer[256];"), "k", 1, 32, out)
    assert out.tolist() == [0] * 16 + [100 + t for t in range(16)]


def test_a_register_keeps_its_value_in_threads_that_did_not_write_it():
    body = (
        MY_OUT
        + """
    mov.u32 %r1, 5; setp.lt.u32 %p0, %r0, 3; @%p0 bra A; bra B;
    A: mov.u32 %r1, 9; mov.u32 %r2, 11; add.u32 %r1, %r1, %r2;
    B: st.global.u32 [%d1], %r1; ret;"""
    )
    out = np.zeros(8, np.uint32)
    run_ptx(kernel(body), "k", 1, 8, out)
    assert out.tolist() == [20] * 3 + [5] * 5


def test_indirect_calls_go_where_each_thread_points():
    functions = "".join(
        f".func (.param .b32 r) f{i}(.param .b32 a) {{ .reg .b32 %x; ld.param.u32 %x, [a];"
        f" mad.lo.u32 %x, %x, {i + 2}, {i}; st.param.u32 [r], %x; ret; }}\n"
        for i in range(3)
    )
    body = (
        MY_OUT
        + """
    .param .b32 arg; .param .b32 res;
    rem.u32 %r1, %r0, 3; mov.u64 %d3, f0; mov.u64 %d4, f1; mov.u64 %d5, f2;
    setp.eq.u32 %p0, %r1, 1; selp.b64 %d3, %d4, %d3, %p0; setp.eq.u32 %p0, %r1, 2; selp.b64 %d3, %d5, %d3, %p0;
    st.param.u32 [arg], %r0;
    proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (res), %d3, (arg), proto;
    ld.param.u32 %r2, [res]; st.global.u32 [%d1], %r2; ret;"""
    )
    out = np.zeros(30, np.uint32)
    run_ptx(kernel(body, before=functions), "k", 1, 30, out)
    assert out.tolist() == [t * (t % 3 + 2) + t % 3 for t in range(30)]


def test_a_jump_table_sends_threads_apart():
    body = (
        MY_OUT
        + """
    and.b32 %r1, %r0, 3; table: .branchtargets A, B, C, B; brx.idx %r1, table;
    A: mov.u32 %r2, 10; bra END; B: mov.u32 %r2, 20; bra END; C: mov.u32 %r2, 30;
    END: st.global.u32 [%d1], %r2; ret;"""
    )
    out = np.zeros(8, np.uint32)
    run_ptx(kernel(body), "k", 1, 8, out)
    assert out.tolist() == [10, 20, 30, 20] * 2


def test_results_do_not_depend_on_how_many_blocks_run_at_once():
    body = """ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d1, %r3, 4; add.u64 %d1, %d0, %d1;
    mov.u32 %r4, tile; shl.b32 %r5, %r0, 2; add.u32 %r4, %r4, %r5; st.shared.u32 [%r4], %r3; bar.sync 0;
    setp.ge.u32 %p0, %r0, %r1; @%p0 bra END; ld.shared.u32 %r3, [tile+4];
    atom.shared.add.u32 %r6, [tile], 1; add.u32 %r3, %r3, %r6;
    END: st.global.u32 [%d1], %r3; ret;"""
    text = kernel(body, before=".shared .align 4 .b8 tile[128];")
    found = []
    for lanes in (1, 64, 100, 8192):
        out = np.zeros(40 * 20, np.uint32)
        run_ptx(text, "k", 40, 20, out, batch_lanes=lanes)
        found.append(out.tolist())
    assert all(result == found[0] for result in found)


# -- atomics


@pytest.mark.parametrize("op, function", [
    ("add.u32", lambda old, b: old + b), ("min.s32", min), ("max.u32", max), ("and.b32", lambda old, b: old & b),
    ("or.b32", lambda old, b: old | b), ("xor.b32", lambda old, b: old ^ b), ("exch.b32", lambda old, b: b),
    ("inc.u32", lambda old, b: 0 if old >= b else old + 1),
    ("dec.u32", lambda old, b: b if old == 0 or old > b else old - 1),
])  # fmt: skip
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_serve_threads_in_order_of_their_numbers(op, function, space):
    copy = (
        "mov.u32 %r6, cells; ld.global.u32 %r7, [%d2]; st.shared.u32 [%r6], %r7; ld.global.u32 %r7, [%d2+4];"
    )
    copy += "st.shared.u32 [%r6+4], %r7; ld.global.u32 %r7, [%d2+8]; st.shared.u32 [%r6+8], %r7; cvt.u64.u32 %d2, %r6;"
    body = MY_OUT + "ld.param.u64 %d2, [cell];" + (copy if space == "shared" else "")
    body += f"""
    mul.lo.u32 %r1, %r0, 7; and.b32 %r1, %r1, 31; rem.u32 %r2, %r0, 3; mul.wide.u32 %d3, %r2, 4; add.u64 %d3, %d2, %d3;
    atom.{space}.{op} %r3, [%d3], %r1; st.global.u32 [%d1], %r3; ret;"""
    start = [5, 20, 9]
    cells, out = np.array(start, np.uint32), np.zeros(50, np.uint32)
    run_ptx(
        kernel(body, ".param .u64 out, .param .u64 cell", ".shared .align 4 .b8 cells[16];"),
        "k",
        1,
        50,
        out,
        cells,
    )
    for t in range(50):
        assert out[t] == start[t % 3]
        start[t % 3] = function(start[t % 3], t * 7 & 31)
    if space == "global":
        assert cells.tolist() == start


def test_reductions_without_results_and_compare_and_swap():
    body = (
        MY_OUT
        + """ld.param.u64 %d2, [cell];
    red.global.add.f32 [%d2], 0f3F800000; red.global.max.s32 [%d2+4], %r0; red.global.add.u64 [%d2+8], 3;
    atom.global.cas.b32 %r3, [%d2+16], 0, %r0; atom.global.add.f64 %d5, [%d2+24], 0d3FF8000000000000;
    st.global.u32 [%d1], %r3; ret;"""
    )
    cells, out = np.zeros(8, np.uint32), np.zeros(40, np.uint32)
    run_ptx(kernel(body, ".param .u64 out, .param .u64 cell"), "k", 1, 40, out, cells)
    assert cells[:1].view(np.float32)[0] == 40
    assert cells[1] == 39
    assert cells[2:4].view(np.uint64)[0] == 120
    assert cells[4] == 1  # thread 0 wrote 0, so thread 1 still found 0
    assert cells[6:8].view(np.float64)[0] == 60
    assert out.tolist() == [0, 0] + [1] * 38


# -- faults


def test_a_stray_store_names_address_line_block_and_thread():
    body = MY_OUT + "\nst.global.u32 [%d1], %r0; ret;"
    out = np.zeros(20, np.uint32)
    with pytest.raises(PageFault, match=r"store of 4 bytes at 0x10000050 by thread \(20, 0, 0\)") as fault:
        run_ptx(kernel(body), "k", 1, 64, out)
    assert "PTX line 8 `st.global.u32 [%d1], %r0`" in str(fault.value)
    assert "0 bytes past its end" in str(fault.value)
    assert (fault.value.address, fault.value.line) == (0x10000050, 8)
    assert isinstance(fault.value, DeviceFault)


def test_reading_nothing_and_writing_what_is_read_only_are_faults():
    body = "ld.param.u64 %d0, [out]; st.global.u32 [%d0], 1; ret;"
    launch = Launch()
    va = launch.buffer(np.zeros(4, np.uint32), is_writable=False)
    with pytest.raises(PageFault, match="is read-only"):
        launch.run(launch.load(kernel(body), "k"), 1, 1, np.uint64(va))
    with pytest.raises(PageFault, match="load of 8 bytes at 0x0 by thread"):
        run_ptx(kernel("ld.global.u64 %d0, [0]; ret;"), "k", 1, 1, np.zeros(1, np.uint32))


def test_accesses_beyond_shared_memory_and_parameters_are_faults():
    with pytest.raises(PageFault, match="the block's shared memory has 64 bytes"):
        run_ptx(
            kernel("mov.u32 %r0, s; ld.shared.u32 %r1, [%r0+64]; ret;", before=".shared .b8 s[64];"),
            "k",
            1,
            1,
            0,
        )
    with pytest.raises(PageFault, match="the kernel's parameters have"):
        run_ptx(kernel("mov.u64 %d0, out; ld.param.u32 %r1, [%d0+400]; ret;"), "k", 1, 1, 0)


def test_an_address_that_is_not_a_multiple_of_the_size_is_a_fault():
    body = "ld.param.u64 %d0, [out]; ld.global.v2.u32 {%r0, %r1}, [%d0+4]; ret;"
    with pytest.raises(MisalignedAccess, match=r"load of 8 bytes at 0x10000004 .* not a multiple of 8"):
        run_ptx(kernel(body), "k", 1, 1, np.zeros(8, np.uint32))


def test_an_endless_loop_is_a_report():
    with pytest.raises(StepLimit, match=r"1000 instructions were not enough; 4 threads, .* at PTX line 7"):
        run_ptx(kernel("L: bra L;"), "k", 1, 4, 0, step_limit=1000)


def test_a_barrier_that_some_threads_never_reach_is_a_report():
    body = MY_OUT + "setp.lt.u32 %p0, %r0, 10; @%p0 bra A; bar.sync 1, 64; A: bar.sync 0; ret;"
    with pytest.raises(Deadlock, match=r"no thread can go on: .*barrier of their block"):
        run_ptx(kernel(body), "k", 1, 64, np.zeros(64, np.uint32))


def test_a_shuffle_that_names_absent_threads_is_a_report():
    body = (
        MY_OUT
        + "setp.lt.u32 %p0, %r0, 10; @%p0 bra A; bar.sync 0; ret;"
        + "A: shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; bar.sync 0; ret;"
    )
    with pytest.raises(Deadlock, match="threads that the instruction's mask names"):
        run_ptx(kernel(body), "k", 1, 32, np.zeros(64, np.uint32))


def test_a_trap_is_a_fault():
    with pytest.raises(KernelFault, match="trap by 4 threads"):
        run_ptx(kernel("trap;"), "k", 1, 4, 0)


def test_a_breakpoint_is_a_fault_where_no_debugger_is():
    with pytest.raises(KernelFault, match=r"brkpt by 4 threads.*no debugger"):
        run_ptx(kernel("brkpt; ret;"), "k", 1, 4, 0)


def test_a_failed_assert_is_a_fault_only_when_it_is_reached():
    before = ".extern .func __assertfail(.param .b64 a);"
    call = ".param .b64 x; call.uni __assertfail, (x);"
    body = f"ld.param.u64 %d0, [out]; setp.eq.u64 %p0, %d0, 0; @%p0 bra END; {call} END: ret;"
    run_ptx(kernel(body, before=before), "k", 1, 1, 0)
    with pytest.raises(KernelFault, match="a failed assert by 1 threads, thread"):
        run_ptx(kernel(body, before=before), "k", 1, 1, 1)


@pytest.mark.parametrize("name, why", [
    ("cudaLaunchDeviceV2", "kernels that launch kernels"), ("mine", "declares and does not define"),
])  # fmt: skip
def test_a_call_of_what_is_not_there_is_refused_with_its_line(name, why):
    before = f".extern .func {name}(.param .b64 a);"
    body = f".param .b64 x; call.uni {name}, (x); ret;"
    with pytest.raises(PtxError, match=f"it calls '{name}'.*{why}"):
        Kernel(kernel(body, before=before), "k")


def test_endless_recursion_ends():
    function = ".func f(.param .b32 a) { .param .b32 b; call f, (b); ret; }"
    with pytest.raises(KernelFault, match="Is the recursion endless"):
        run_ptx(kernel(".param .b32 c; call f, (c); ret;", before=function), "k", 1, 1, 0)


# -- text that cannot be run


@pytest.mark.parametrize("body, why", [
    ("frobnicate.u32 %r0, %r1;", "the instruction 'frobnicate' is not known"),
    ("add.u32.sideways %r0, %r1, %r2;", "the modifier .sideways is not supported"),
    ("add.u32 %r0, %r1;", "2 operands, not 3"),
    ("add.u32 %r0, %r1, %d0;", "%d0 holds uint64, which does not suit .u32"),
    ("add.u32 %r0, %r1, %zz;", "%zz is neither a declared register nor a special register"),
    ("bra NOWHERE;", "the target is not a label"),
    ("add.f32 %r0, %r1, 3;", "an integer stands where a float is expected"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16 {%r0}, {%r1}, {%r2}, {%r3};", "a type is missing"),
    ("barrier.cluster.sync;", "barrier.cluster needs .arrive or .wait"),
    ("mov.u32 %r0, nobody;", "'nobody' is not declared"),
    ("cp.async.bulk.frobnicate;", "PTX line"),
    (".squiggle;", "expected an instruction, found '.squiggle'"),
    ("add.u32 %r0, %r1, ;", "expected an operand"),
    ("add.u32 %r0, %r1, \x01;", "begins no word of PTX"),
])  # fmt: skip
def test_what_is_not_understood_is_an_error_with_its_line(body, why):
    with pytest.raises(PtxError) as error:
        run_ptx(kernel(body + "\nret;"), "k", 1, 1, 0)
    assert why in str(error.value)
    assert error.value.line in (4, 5, 7)


def test_text_that_ends_too_early_and_files_that_are_no_ptx_are_refused():
    text = kernel("mov.u32 %r0, 1; ret;")
    for length in range(0, len(text) - 4, 3):
        with pytest.raises(UsageError):
            Kernel(parse(text[:length]), "k") if length else parse("")
    with pytest.raises(PtxError, match="Is this PTX text"):
        parse("\x7fELF\x02\x01")


def test_an_impossible_launch_is_refused_with_the_limit():
    text = kernel("ret;")
    memory = AddressSpace()
    for grid, block, shared, why in [
        ((0, 1, 1), (1, 1, 1), 0, "grid=(0, 1, 1) is not three sizes"),
        ((1, 1, 1), (1024, 2, 1), 0, "has 2048 threads; at most 1024"),
        ((1, 1, 1), (1, 1, 1), 1 << 20, "bytes of shared memory"),
    ]:
        with pytest.raises(UsageError) as error:
            Kernel(text, "k").run(grid, block, memory, bytes(8), dynamic_shared_bytes=shared)
        assert why in str(error.value)
    with pytest.raises(UsageError, match="has 8 bytes of parameters; the launch gives 4"):
        Kernel(text, "k").run((1, 1, 1), (1, 1, 1), memory, bytes(4))
    with pytest.raises(UsageError, match=r"no such .entry; it has k"):
        Kernel(text, "other").run((1, 1, 1), (1, 1, 1), memory, bytes(8))


def test_parameters_are_read_where_the_launch_says():
    asked = []

    def read(offset: int, size_bytes: int) -> bytes:
        asked.append((offset, size_bytes))
        return (0x1000).to_bytes(8, "little") + (77).to_bytes(4, "little")

    memory, out = AddressSpace(), np.zeros(4, np.uint32)
    memory.map(0x1000, out)
    text = kernel(
        "ld.param.u64 %d0, [out]; ld.param.u32 %r0, [n]; st.global.u32 [%d0], %r0; ret;",
        ".param .u64 out, .param .u32 n",
    )
    report = Kernel(text, "k").run((1, 1, 1), (1, 1, 1), memory, read)
    assert (asked, out[0], report.blocks) == ([(0, 12)], 77, 1)


def test_the_launch_decides_some_special_registers():
    body = MY_OUT + "mov.u32 %r1, %envreg1; mov.u32 %r2, %smid; mov.u64 %d2, %gridid; cvt.u32.u64 %r3, %d2;"
    body += "mad.lo.u32 %r1, %r1, 100, %r2; mad.lo.u32 %r1, %r1, 100, %r3; st.global.u32 [%d1], %r1; ret;"
    out = np.zeros(4, np.uint32)
    run_ptx(kernel(body), "k", 1, 4, out, specials={"envreg1": 7, "smid": 5, "gridid": 3})
    assert out.tolist() == [70503] * 4


def test_mappings_do_not_overlap_and_say_what_they_want():
    memory = AddressSpace()
    memory.map(0x1000, bytearray(4096))
    with pytest.raises(UsageError, match="is mapped already"):
        memory.map(0x1FE0, bytearray(64))
    with pytest.raises(UsageError, match="a multiple of 32"):
        memory.map(0x3001, bytearray(64))
    with pytest.raises(UsageError, match="is read-only"):
        memory.map(0x3000, bytes(64))
    memory.unmap(0x1000)
    with pytest.raises(UsageError, match="no mapping starts there"):
        memory.unmap(0x1000)


def test_loads_gather_across_mappings():
    memory = AddressSpace()
    parts = [np.arange(1024, dtype=np.uint32) + 10_000 * i for i in range(3)]
    for i, part in enumerate(parts):
        memory.map(0x10000 * (i + 1), part)
    rng = np.random.default_rng(0)
    which, at = rng.integers(0, 3, 500), rng.integers(0, 256, 500)
    addresses = ((which + 1) * 0x10000 + at * 16).astype(np.uint64)
    found = memory.load(addresses, np.uint32, 4)
    assert (found == np.stack(parts)[which[:, None], at[:, None] * 4 + np.arange(4)]).all()
    memory.store(addresses[:50], found[:50] + 1)
    assert (memory.load(addresses[:1], np.uint32, 1) == found[0, 0] + 1).all()
