"""printf, malloc and free in kernels: what CUDA's device runtime does for them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hcq.emu.nv.shader.device_heap import ALIGNMENT, SIZE_BYTES, Heap
from hcq.emu.nv.shader.errors import KernelFault, PtxError
from tests.hcq.emu.nv.shader.running import Launch, compile_cuda, needs_nvrtc, run_cuda, run_ptx


def c_prints(form: str, arguments: str) -> str:
    """What C's printf makes of it, by the shell's."""
    return subprocess.run(
        ["printf", form, *arguments.split()], capture_output=True, text=True, check=True
    ).stdout


@needs_nvrtc
@pytest.mark.parametrize(
    "form, values, shown",
    [
        ("%d %5d|%-6d|%06d %+d\\n", "1, -22, 333, 4444, 5", "1 -22 333 4444 5"),
        ("%u %x %X %#o\\n", "7u, 255u, 48879u, 8u", "7 255 48879 8"),
        ("%f %8.3f %e %g\\n", "1.5f, -2.25, 12345.678, 0.0001", "1.5 -2.25 12345.678 0.0001"),
        (
            "%lld %llu %hhd\\n",
            "-5000000000LL, 18446744073709551615ULL, 77",
            "-5000000000 18446744073709551615 77",
        ),
        ("%c%c %% %*d|%.2f\\n", "'o', 'k', 6, 42, 2.0", "o k 6 42 2.0"),
    ],
)
def test_a_kernel_prints_what_c_prints(form, values, shown, capsys):
    source = f'extern "C" __global__ void k(int *out) {{ *out = printf("{form}", {values}); }}'
    out = np.zeros(1, np.int32)
    run_cuda(source, "k", 1, 1, out)
    assert capsys.readouterr().out == c_prints(form, shown)
    assert out[0] == len(values.split(","))


@needs_nvrtc
def test_threads_print_in_the_order_of_their_numbers_and_strings_come_from_any_memory(capsys):
    source = """extern "C" __global__ void k(const char *given) {
        char mine[4] = {'t', (char)('0' + threadIdx.x % 10), 0};
        if (threadIdx.x % 2) printf("%s %s %s\\n", mine, given, blockIdx.x ? "far" : "near");
    }"""
    run_cuda(source, "k", 2, 4, np.frombuffer(b"hello\0", np.uint8).copy())
    assert capsys.readouterr().out == "t1 hello near\nt3 hello near\nt1 hello far\nt3 hello far\n"


@needs_nvrtc
def test_printf_without_a_format_prints_nothing_and_says_so(capsys):
    source = """extern "C" __global__ void k(int *out, const char *nothing) {
        *out = printf(nothing); printf("%s\\n", nothing); }"""
    out = np.zeros(1, np.int32)
    run_cuda(source, "k", 1, 1, out, np.uint64(0))
    assert (out[0], capsys.readouterr().out) == (-1, "(null)\n")


@needs_nvrtc
def test_a_format_that_cannot_be_read_is_a_fault():
    source = 'extern "C" __global__ void k(const char *form) { printf(form, 1); }'
    with pytest.raises(KernelFault, match="printf reads 0xdead00"):
        run_cuda(source, "k", 1, 1, np.uint64(0xDEAD00))


LISTS = """struct Node { int value; Node *next; };
extern "C" __global__ void fill(Node **heads, int count) {
    Node *head = nullptr;
    for (int i = 0; i < count; i++) {
        Node *made = (Node *)malloc(sizeof(Node)); made->value = threadIdx.x * 100 + i; made->next = head; head = made;
    }
    heads[threadIdx.x] = head;
}
extern "C" __global__ void empty(Node **heads, int *sums) {
    int sum = 0;
    for (Node *node = heads[threadIdx.x]; node;) {
        Node *next = node->next;
        sum += node->value;
        free(node);
        node = next;
    }
    sums[threadIdx.x] = sum;
}"""


@needs_nvrtc
def test_memory_of_malloc_lives_on_in_the_next_kernel():
    launch, ptx = Launch(), compile_cuda(LISTS)
    heads, sums = np.zeros(64, np.uint64), np.zeros(64, np.int32)
    launch.run(launch.load(ptx, "fill"), 1, 64, heads, 5)
    assert len(set(heads.tolist())) == 64 and all(va % ALIGNMENT == 0 for va in heads.tolist())
    launch.run(launch.load(ptx, "empty"), 1, 64, heads, sums)
    assert list(sums) == [5 * 100 * t + 10 for t in range(64)]
    assert launch.memory.heap.allocate(SIZE_BYTES)  # all of it is free again


@needs_nvrtc
def test_malloc_gives_nothing_where_there_is_no_room():
    source = (
        """extern "C" __global__ void k(void **out) { out[threadIdx.x] = malloc(6u << 20); free(nullptr); }"""
    )
    out = np.zeros(4, np.uint64)
    run_cuda(source, "k", 1, 4, out)
    assert [bool(va) for va in out] == [True, False, False, False]


@needs_nvrtc
def test_memory_that_nobody_has_given_out_is_not_taken_back():
    source = 'extern "C" __global__ void k(char *p) { free(p + 8); }'
    with pytest.raises(KernelFault, match="malloc has given out no memory that begins there"):
        run_cuda(source, "k", 1, 1, np.zeros(4, np.uint64))


def test_a_heap_takes_what_was_given_back_only_where_nothing_else_is_left():
    heap = Heap()
    first, second, third = (heap.allocate(size) for size in (100, 10, 100))
    assert second - first == 112 + ALIGNMENT and third - second == 2 * ALIGNMENT
    assert heap.give_back(first) and not heap.give_back(first)
    assert heap.has_freed(first) and not heap.has_freed(second)
    taken = list(iter(lambda: heap.allocate(1 << 16), 0))
    taken += list(iter(lambda: heap.allocate(100), 0))
    assert taken[-1] == first and min(taken[:-1]) > third and not heap.has_freed(first)


def test_a_heap_knows_what_leaves_a_piece_that_it_gave_out():
    heap = Heap()
    first = heap.allocate(20)
    heap.allocate(8)
    at = np.array([first, first + 16, first + 17, first + 20, first + 32, first - 1], np.uint64)
    assert heap.outside(at, 4).tolist() == [False, False, True, True, True, False]
    heap.give_back(first)
    assert heap.outside(at[:1], 1).tolist() == [True]


def test_calls_that_do_not_fit_are_refused():
    text = """.version 8.0\n.target sm_80\n.address_size 64
    .extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
    .visible .entry k() { .param .b32 x; .param .b32 y; .param .b32 z; call.uni (z), vprintf, (x, y); ret; }"""
    with pytest.raises(PtxError, match="vprintf has arguments of"):
        run_ptx(text, "k", 1, 1)


@needs_nvrtc
def test_an_emulated_gpu_prints_before_a_wait_ends():
    program = """
import hcq
from hcq.nv.toolchain.nvrtc import compile_cuda
source = 'extern "C" __global__ void k(int x) { printf("%d from thread %d\\\\n", x, threadIdx.x); }'
ptx = compile_cuda(source, "compute_90").ptx
dev = hcq.open("NV")
program = dev.load(ptx.encode(), "k")
dev.run(program, [7], grid=(1, 1, 1), block=(2, 1, 1))
dev.synchronize()
print("after")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**__import__("os").environ, "HCQ_EMULATE": "nv:sm_90"},
    )
    assert (done.returncode, done.stdout) == (0, "7 from thread 0\n7 from thread 1\nafter\n"), done.stderr
