"""Memory from the stack: alloca, stacksave, stackrestore, with recursion and threads that part."""

from __future__ import annotations

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import KernelFault, PtxError
from tests.hcq.emu.nv.shader.running import compile_by_nvcc, run_ptx
from tests.hcq.emu.nv.shader.test_machine import MY_OUT, kernel


def test_every_thread_takes_as_much_as_it_asks_for():
    """Thread t takes t + 1 words, fills them, and adds them up again."""
    body = (
        MY_OUT
        + """
    add.u32 %r1, %r0, 1; shl.b32 %r2, %r1, 2; cvt.u64.u32 %d2, %r2; alloca.u64 %d3, %d2, 16;
    and.b64 %d4, %d3, 15; cvt.u32.u64 %r9, %d4;
    mov.u32 %r3, 0; mov.u64 %d4, %d3;
    FILL: st.local.u32 [%d4], %r3; add.u64 %d4, %d4, 4; add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, %r1; @%p0 bra FILL;
    alloca.u64 %d5, 8; st.local.u64 [%d5], -1;
    mov.u32 %r4, 0; mov.u32 %r3, 0; mov.u64 %d4, %d3;
    SUM: ld.local.u32 %r5, [%d4]; add.u32 %r4, %r4, %r5; add.u64 %d4, %d4, 4; add.u32 %r3, %r3, 1;
    setp.lt.u32 %p0, %r3, %r1; @%p0 bra SUM;
    add.u32 %r4, %r4, %r9; st.global.u32 [%d1], %r4; ret;"""
    )
    out = np.zeros(64, np.uint32)
    run_ptx(kernel(body), "k", 1, 64, out)
    assert out.tolist() == [t * (t + 1) // 2 for t in range(64)]


def test_what_was_taken_is_free_again_when_the_pointer_is_restored():
    body = (
        MY_OUT
        + """
    .local .align 4 .b8 mine[4]; mov.u32 %r2, 0; st.local.u32 [mine], %r0;
    stacksave.u64 %d2; mov.u64 %d9, 0;
    AGAIN: alloca.u64 %d3, 4096; st.local.u32 [%d3+4092], %r2; setp.eq.u32 %p0, %r2, 0; @%p0 mov.u64 %d9, %d3;
    stackrestore.u64 %d2; add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, 1000; @%p0 bra AGAIN;
    sub.u64 %d3, %d3, %d9; cvt.u32.u64 %r3, %d3; ld.local.u32 %r4, [mine]; add.u32 %r3, %r3, %r4;
    st.global.u32 [%d1], %r3; ret;"""
    )
    out = np.zeros(8, np.uint32)
    run_ptx(kernel(body), "k", 1, 8, out)
    assert out.tolist() == list(range(8))


def test_a_guarded_alloca_moves_the_pointers_of_its_threads_alone():
    body = (
        MY_OUT
        + """
    and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 1; stacksave.u64 %d2;
    @%p0 alloca.u64 %d4, 24; stacksave.u64 %d3; sub.u64 %d3, %d3, %d2; cvt.u32.u64 %r2, %d3;
    st.global.u32 [%d1], %r2; ret;"""
    )
    out = np.zeros(8, np.uint32)
    run_ptx(kernel(body), "k", 1, 8, out)
    assert out.tolist() == [0, 24] * 4


RECURSIVE = """
.func (.param .b64 r) sum(.param .b64 n) {
    .reg .b64 %x, %y, %z, %size; .reg .pred %p;
    ld.param.u64 %x, [n]; mov.u64 %y, 0; setp.eq.u64 %p, %x, 0; @%p bra END;
    mul.lo.u64 %size, %x, 24; alloca.u64 %z, %size; st.local.u64 [%z], %x; add.u64 %size, %z, %size;
    st.local.u64 [%size+-8], %x;
    { .param .b64 a; .param .b64 b; sub.u64 %y, %x, 1; st.param.b64 [a], %y; call (b), sum, (a); ld.param.b64 %y, [b]; }
    ld.local.u64 %x, [%z]; add.u64 %y, %y, %x; ld.local.u64 %x, [%size+-8]; add.u64 %y, %y, %x;
    END: st.param.b64 [r], %y; ret;
}
"""


def test_calls_keep_off_what_their_callers_have_taken():
    """Each depth takes memory, in every thread another amount, and finds what it wrote when it comes back."""
    body = (
        MY_OUT
        + """
    { .param .b64 a; .param .b64 b; cvt.u64.u32 %d2, %r0; st.param.b64 [a], %d2; call (b), sum, (a);
    ld.param.b64 %d3, [b]; } cvt.u32.u64 %r1, %d3; st.global.u32 [%d1], %r1; ret;"""
    )
    out = np.zeros(40, np.uint32)
    run_ptx(kernel(body, before=RECURSIVE), "k", 1, 40, out)
    assert out.tolist() == [t * (t + 1) for t in range(40)]


@pytest.mark.parametrize("size", ["%d2", "-1", "1000000"])
def test_a_stack_that_overflows_names_the_line(size):
    body = MY_OUT + f"mov.u64 %d2, 0xFFFFFFFFFFFFFFF0;\nalloca.u64 %d3, {size}; st.local.u32 [%d3], %r0; ret;"
    with pytest.raises(KernelFault, match=r"PTX line \d+ `alloca.*the stack overflows"):
        run_ptx(kernel(body), "k", 1, 4, np.zeros(4, np.uint32))


@pytest.mark.parametrize(
    "line", ["alloca.u64 %d1, 8, 12;", "alloca.u64 %d1, 8, %r1;", "alloca.b64 %d1, 8;", "stacksave.u64 1;"]
)
def test_forms_that_do_not_exist_are_refused(line):
    with pytest.raises(PtxError, match="PTX line"):
        run_ptx(kernel(line + " ret;"), "k", 1, 4, np.zeros(4, np.uint32))


def test_alloca_of_cuda_keeps_its_memory_through_calls():
    source = r"""
    #include <alloca.h>
    __device__ __noinline__ int add_up(const int *values, int count) {
        int sum = 0;
        for (int i = 0; i < count; i++) sum += values[i];
        return sum;
    }
    extern "C" __global__ void k(int *out) {
        int count = threadIdx.x % 7 + 1;
        int *values = (int *)alloca(count * sizeof(int));
        for (int i = 0; i < count; i++) values[i] = i * (int)threadIdx.x;
        int *more = (int *)alloca(64);
        for (int i = 0; i < 16; i++) more[i] = -1;
        out[threadIdx.x] = add_up(values, count) + add_up(more, 16);
    }"""
    out = np.zeros(64, np.int32)
    run_ptx(compile_by_nvcc(source), "k", 1, 64, out)
    assert out.tolist() == [t * sum(range(t % 7 + 1)) - 16 for t in range(64)]
