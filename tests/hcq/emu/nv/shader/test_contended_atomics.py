"""Compare-and-swap loops, spin locks and atomics of many threads at one address: PTX written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import PageFault, StepLimit
from tests.hcq.emu.nv.shader.running import HEADER, Launch, needs_nvrtc, run_cuda, run_ptx

U32, U64 = np.uint32, np.uint64
BLOCKS, THREADS = 5, 120  # not whole warps


def kernel(body: str, before: str = "") -> str:
    """%r0 is the thread's number in the grid, %d1 its place in `out`, %d2 the cells."""
    registers = ".reg .b32 %r<20>; .reg .b64 %d<20>; .reg .pred %p<5>; .reg .f32 %f<9>; .reg .f64 %e<9>;"
    start = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r0, %tid.x; mad.lo.u32 %r0, %r1, %r2, %r0;"
    start += (
        "ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r0, 8; add.u64 %d1, %d0, %d1; ld.param.u64 %d2, [cells];"
    )
    params = ".param .u64 out, .param .u64 cells"
    return f"{HEADER}{before}\n.visible .entry k({params}) {{\n{registers}\n{start}\n{body}\n}}\n"


def f32(bits: int) -> Any:
    return U32(bits).view(np.float32)


def f64(bits: int) -> Any:
    return U64(bits).view(np.float64)


def bits_of(number: Any) -> int:
    return int(np.asarray(number).view(U32 if number.itemsize == 4 else U64))


# (bits, what stands there first, PTX from %o to %n with the thread's number in %r0, the same in Python)
LOOPS: dict[str, tuple[int, int, str, Callable[[int, int], int]]] = {
    "add": (32, 7, "add.u32 %n, %o, %r0;", lambda old, t: (old + t) % 2**32),
    "constant": (32, 7, "add.u32 %n, %o, 3;", lambda old, t: (old + 3) % 2**32),
    "exchange": (32, 7, "add.u32 %n, %r0, 1;", lambda old, t: t + 1),
    "xor": (32, 7, "xor.b32 %n, %o, %r0;", lambda old, t: old ^ t),
    "or": (32, 1, "or.b32 %n, %o, %r0;", lambda old, t: old | t),
    "maximum": (32, 9, "mul.lo.u32 %r7, %r0, 0x9E3779B1; max.u32 %n, %o, %r7;",
                lambda old, t: max(old, t * 0x9E3779B1 % 2**32)),
    "float sum": (32, 0x3F800000, ("cvt.rn.f32.u32 %f0, %r0; mul.f32 %f0, %f0, 0f3DCCCCCD; mov.b32 %f1, %o;"
                  "add.f32 %f2, %f1, %f0; mov.b32 %n, %f2;"),
                  lambda old, t: bits_of(f32(old) + np.float32(t) * f32(0x3DCCCCCD))),
    "float maximum": (32, 0, "cvt.rn.f32.u32 %f0, %r0; mov.b32 %f1, %o; max.f32 %f2, %f1, %f0; mov.b32 %n, %f2;",
                      lambda old, t: bits_of(max(f32(old), np.float32(t)))),
    "double sum": (64, 0, ("cvt.rn.f64.u32 %e0, %r0; mul.f64 %e0, %e0, 0d3FB999999999999A; mov.b64 %e1, %o;"
                   "add.f64 %e2, %e1, %e0; mov.b64 %n, %e2;"),
                   lambda old, t: bits_of(f64(old) + np.float64(t) * f64(0x3FB999999999999A))),
    "product": (64, 0x3FF0000000000000, "mov.b64 %e1, %o; mul.f64 %e2, %e1, 0d3FF0001000000000; mov.b64 %n, %e2;",
                lambda old, t: bits_of(f64(old) * f64(0x3FF0001000000000))),
    "up to a limit": (32, 0, "add.u32 %r7, %o, 1; min.u32 %n, %r7, 50;", lambda old, t: min(old + 1, 50)),
    "no pattern": (32, 1, "mul.lo.u32 %r7, %o, 5; xor.b32 %r7, %r7, %r0; shr.u32 %r8, %r7, 3; add.u32 %n, %r7, %r8;",
                   lambda old, t: ((old * 5 % 2**32 ^ t) + ((old * 5 % 2**32 ^ t) >> 3)) % 2**32),
    "half of a word": (32, 0x00050003, ("add.u32 %r7, %o, 1; and.b32 %r7, %r7, 0xFFFF; and.b32 %r8, %o, 0xFFFF0000;"
                       "or.b32 %n, %r7, %r8;"), lambda old, t: (old + 1 & 0xFFFF) | (old & 0xFFFF0000)),
}  # fmt: skip
PLACES = {"one": "mov.u32 %r3, 0;", "three": "rem.u32 %r3, %r0, 3;", "a hundred": "rem.u32 %r3, %r0, 100;"}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", LOOPS)
def test_a_compare_and_swap_loop_is_as_if_thread_came_after_thread(name: str, places: str) -> None:
    bits, first, compute, function = LOOPS[name]
    size = bits // 8
    old, new, found = (("%r4", "%r5", "%r6"), ("%d4", "%d5", "%d6"))[bits == 64]
    body = f"""{PLACES[places]} mul.wide.u32 %d3, %r3, {size}; add.u64 %d3, %d2, %d3;
    ld.global.b{bits} {old}, [%d3];
    AGAIN: {compute.replace("%o", old).replace("%n", new)}
    atom.global.cas.b{bits} {found}, [%d3], {old}, {new};
    setp.ne.b{bits} %p1, {found}, {old}; mov.b{bits} {old}, {found}; @%p1 bra AGAIN;
    st.global.b{bits} [%d1], {old}; ret;"""
    scalar = U32 if bits == 32 else U64
    cells, out = np.full(100, first, scalar), np.zeros(BLOCKS * THREADS, U64)
    run_ptx(kernel(body), "k", BLOCKS, THREADS, out, cells)
    expected = [first] * 100
    with np.errstate(all="ignore"):
        for thread in range(BLOCKS * THREADS):
            place = thread % {"one": 1, "three": 3, "a hundred": 100}[places]
            assert int(out[thread]) == expected[place]
            expected[place] = function(expected[place], thread)
    assert cells.tolist() == expected


@pytest.mark.parametrize("space", ["shared", "generic"])
def test_loops_in_shared_memory_meet_only_within_their_block(space: str) -> None:
    window = "cvta.shared.u64 %d3, %d4;" if space == "generic" else "mov.u64 %d3, %d4;"
    where = "" if space == "generic" else ".shared"
    body = f"""mov.u64 %d4, cell; st.shared.u32 [%d4], 0; bar.sync 0; {window}
    ld{where}.u32 %r4, [%d3];
    AGAIN: add.u32 %r5, %r4, 2; atom{where}.cas.b32 %r6, [%d3], %r4, %r5;
    setp.ne.u32 %p1, %r6, %r4; mov.b32 %r4, %r6; @%p1 bra AGAIN;
    bar.sync 0; ld.shared.u32 %r7, [%d4]; st.global.v2.u32 [%d1], {{%r4, %r7}}; ret;"""
    cells, out = np.zeros(4, U32), np.zeros((BLOCKS, THREADS, 2), U32)
    run_ptx(kernel(body, ".shared .align 8 .b8 cell[8];"), "k", BLOCKS, THREADS, out, cells)
    for block in out:
        assert block[:, 1].tolist() == [2 * THREADS] * THREADS
        assert sorted(block[:, 0].tolist()) == list(range(0, 2 * THREADS, 2))


def test_a_loop_that_counts_its_rounds_and_loads_anew_is_served_too() -> None:
    body = """mov.u32 %r8, 0;
    AGAIN: ld.volatile.global.u32 %r4, [%d2]; add.u32 %r5, %r4, 1; add.u32 %r8, %r8, 1;
    atom.global.cas.b32 %r6, [%d2], %r4, %r5; setp.ne.u32 %p1, %r6, %r4; @%p1 bra AGAIN;
    st.global.v2.u32 [%d1], {%r6, %r8}; ret;"""
    cells, out = np.zeros(4, U32), np.zeros((BLOCKS * THREADS, 2), U32)
    run_ptx(kernel(body), "k", BLOCKS, THREADS, out, cells)
    assert cells[0] == BLOCKS * THREADS
    assert sorted(out[:, 0].tolist()) == list(range(BLOCKS * THREADS))
    assert (out[:, 1] >= 1).all()


def test_a_loop_that_counts_its_rounds_around_an_atomic_is_no_retry_loop() -> None:
    body = """mov.u32 %r5, 0;
    A: atom.global.add.u32 %r6, [%d0], 1; add.u32 %r5, %r5, 1; setp.ne.u32 %p0, %r5, 7; @%p0 bra A; ret;"""
    text = f"{HEADER}.visible .entry k(.param .u64 x) {{ .reg .b32 %r<9>; .reg .b64 %d<2>; .reg .pred %p<2>;"
    total = np.zeros(1, U32)
    run_ptx(f"{text} ld.param.u64 %d0, [x]; {body} }}", "k", 2, 64, total)
    assert total[0] == 7 * 128


def test_a_hash_table_whose_loop_goes_from_slot_to_slot_holds_every_key() -> None:
    """The address changes in the loop: nobody waits for anybody."""
    body = """and.b32 %r3, %r0, 7; add.u32 %r9, %r0, 1;
    AGAIN: and.b32 %r3, %r3, 1023; mul.wide.u32 %d3, %r3, 4; add.u64 %d3, %d2, %d3; add.u32 %r3, %r3, 1;
    atom.global.cas.b32 %r6, [%d3], 0, %r9; setp.ne.u32 %p1, %r6, 0; @%p1 bra AGAIN;
    ret;"""
    cells, out = np.zeros(1024, U32), np.zeros(BLOCKS * THREADS, U64)
    run_ptx(kernel(body), "k", BLOCKS, THREADS, out, cells)
    assert sorted(cells[cells > 0].tolist()) == list(range(1, BLOCKS * THREADS + 1))


LOCKS = {
    "cas": "AGAIN: atom.global.cas.b32 %r6, [%d2], 0, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra AGAIN;",
    "exch": "AGAIN: atom.global.exch.b32 %r6, [%d2], 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra AGAIN;",
    "with a pause": "AGAIN: atom.global.cas.b32 %r6, [%d2], 0, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra IN;"
    "nanosleep.u32 100; bra AGAIN; IN:",
}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_that_all_threads_of_all_warps_take_is_held_by_one_at_a_time(lock: str) -> None:
    body = f"""{LOCKS[lock]}
    membar.gl; ld.volatile.global.u32 %r4, [%d2+4]; add.u32 %r5, %r4, 1; st.volatile.global.u32 [%d2+4], %r5;
    membar.gl; atom.global.exch.b32 %r7, [%d2], 0;
    st.global.u32 [%d1], %r4; ret;"""
    cells, out = np.zeros(4, U32), np.zeros(BLOCKS * THREADS, U64)
    run_ptx(kernel(body), "k", BLOCKS, THREADS, out, cells)
    assert cells[:2].tolist() == [0, BLOCKS * THREADS]
    assert sorted(out.tolist()) == list(range(BLOCKS * THREADS))


def test_a_lock_may_be_held_over_another_loop_and_another_lock() -> None:
    body = """OUTER: atom.global.cas.b32 %r6, [%d2], 0, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra OUTER;
    INNER: atom.global.cas.b32 %r6, [%d2+8], 0, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra INNER;
    mov.u32 %r9, 0; ld.volatile.global.u32 %r4, [%d2+4];
    MORE: add.u32 %r4, %r4, 1; add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 5; @%p2 bra MORE;
    st.volatile.global.u32 [%d2+4], %r4;
    atom.global.exch.b32 %r7, [%d2+8], 0; atom.global.exch.b32 %r7, [%d2], 0; ret;"""
    cells, out = np.zeros(4, U32), np.zeros(2 * 64, U64)
    run_ptx(kernel(body), "k", 2, 64, out, cells)
    assert cells.tolist() == [0, 5 * 128, 0, 0]


def test_a_lock_that_nobody_gives_back_is_an_endless_loop() -> None:
    cells, out = np.zeros(4, U32), np.zeros(64, U64)
    with pytest.raises(StepLimit, match="are at PTX line"):
        run_ptx(kernel(LOCKS["cas"] + "ret;"), "k", 1, 64, out, cells, step_limit=20_000)


def test_a_loop_on_memory_that_cannot_be_written_is_a_fault_of_its_first_thread() -> None:
    body = """AGAIN: atom.global.cas.b32 %r6, [%d2], 0, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra AGAIN; ret;"""
    launch = Launch()
    cells = launch.buffer(np.zeros(4, U32), is_writable=False)
    with pytest.raises(
        PageFault, match=r"atomic of 4 bytes .* by thread \(0, 0, 0\) of block \(0, 0, 0\).*read-only"
    ):
        launch.run(launch.load(kernel(body), "k"), 1, 64, np.zeros(64, U64), U64(cells))


@pytest.mark.parametrize("lanes", [32, 1000, 16384])
def test_how_many_threads_run_together_changes_nothing(lanes: int) -> None:
    _bits, first, compute, function = LOOPS["float sum"]
    body = f"""ld.global.b32 %r4, [%d2];
    AGAIN: {compute.replace("%o", "%r4").replace("%n", "%r5")} atom.global.cas.b32 %r6, [%d2], %r4, %r5;
    setp.ne.b32 %p1, %r6, %r4; mov.b32 %r4, %r6; @%p1 bra AGAIN; ret;"""
    cells, out = np.full(1, first, U32), np.zeros(BLOCKS * THREADS, U64)
    run_ptx(kernel(body), "k", BLOCKS, THREADS, out, cells, batch_lanes=lanes)
    for thread in range(BLOCKS * THREADS):
        first = function(first, thread)
    assert int(cells[0]) == first


@needs_nvrtc
def test_loops_that_a_compiler_makes_of_atomics_on_half_words_and_doubles() -> None:
    source = """
    __device__ double add(double *p, double v) {
      unsigned long long *word = (unsigned long long *)p, old = *word, seen;
      do { seen = old; old = atomicCAS(word, seen, __double_as_longlong(v + __longlong_as_double(seen))); }
      while (seen != old);
      return __longlong_as_double(old);
    }
    extern "C" __global__ void sums(double *total, unsigned short *small, unsigned *warps) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      add(total, i * 0.25);
      unsigned short old = *small, seen;
      do { seen = old; old = atomicCAS(small, seen, (unsigned short)(seen + 3)); } while (seen != old);
      unsigned together = __activemask(), lane = threadIdx.x & 31;
      if (lane == __ffs(together) - 1) atomicAdd(warps, __popc(together));
    }"""
    total, small, warps = np.zeros(1), np.zeros(2, np.uint16), np.zeros(1, U32)
    run_cuda(source, "sums", 9, 128, total, small, warps)
    count = 9 * 128
    assert total[0] == 0.25 * count * (count - 1) / 2
    assert small.tolist() == [3 * count, 0]
    assert warps[0] == count
