"""Kernels from someone else's CUDA source: machine code and PTX in one image, run from the PTX beside the code."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

import pytest

from hcq.errors import UsageError
from hcq.nv.abi import image as images
from hcq.nv.abi.classes import ARCHITECTURES
from hcq.nv.bundle import Bundle
from hcq.nv.device import NvDevice
from hcq.nv.link import ALIGNMENT, CODE_AT, Linked
from hcq.nv.toolchain import images as toolchain
from hcq.nv.toolchain import nvjitlink

Open = Callable[..., NvDevice]

SOURCE = r"""
__constant__ float weights[4] = {0.5f, 1.0f, 2.0f, 4.0f};
__device__ int calls = 7;
struct Pair { float a; int b; };

// a sum over each block, tree by tree, then one atomic
extern "C" __global__ void block_sums(float *total, const float *x, int n) {
    __shared__ float part[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] * weights[i % 4] : 0.0f;
    __syncthreads();
    for (int step = blockDim.x / 2; step; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(total, part[0]);
}

// how many steps the Collatz sequence takes: threads of a warp end at different times
extern "C" __global__ void collatz(unsigned *steps) {
    unsigned long long value = blockIdx.x * blockDim.x + threadIdx.x + 1;
    unsigned count = 0;
    while (value != 1) { value = value % 2 ? 3 * value + 1 : value / 2; count++; }
    steps[blockIdx.x * blockDim.x + threadIdx.x] = count;
}

extern "C" __global__ void counting(int *seen) { seen[threadIdx.x] = atomicAdd(&calls, 1); }

extern "C" __global__ void by_value(float *out, Pair pair, double scale, unsigned char c) {
    out[0] = pair.a * (float)scale;
    out[1] = (float)pair.b + c;
}

extern "C" __global__ void __launch_bounds__(128) bounded(int *out) { out[threadIdx.x] = threadIdx.x; }

__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void recursive(int *out) { out[threadIdx.x] = fib(threadIdx.x); }

extern "C" __global__ void nothing() {}
"""


@functools.cache
def image(arch: str) -> bytes:
    """All of the above as cubin and PTX in one image; nvrtc is an extra."""
    try:
        return toolchain.of_cuda(SOURCE, arch, "test")
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture(params=list(ARCHITECTURES))
def nv(request: pytest.FixtureRequest, open_nv: Open) -> NvDevice:
    """A device of every architecture."""
    return open_nv(request.param)


def test_shared_memory_barriers_and_atomics_add_up(nv: NvDevice):
    x, total = nv.alloc(4000), nv.alloc(4)
    values = [float(i % 7) for i in range(1000)]
    x.write(struct.pack("<1000f", *values))
    total.write(bytes(4))
    nv.run(nv.load(image(nv.arch), "block_sums"), [total, x, 1000], grid=(4, 1, 1), block=(256, 1, 1))
    expected = sum(value * (0.5, 1.0, 2.0, 4.0)[i % 4] for i, value in enumerate(values))
    assert struct.unpack("<f", total.read()) == (pytest.approx(expected),)


def test_threads_of_a_warp_take_their_own_ways(nv: NvDevice):
    def steps(value: int) -> int:
        count = 0
        while value != 1:
            value = 3 * value + 1 if value % 2 else value // 2
            count += 1
        return count

    out = nv.alloc(4 * 96)
    nv.run(nv.load(image(nv.arch), "collatz"), [out], grid=(3, 1, 1), block=(32, 1, 1))
    assert struct.unpack("<96I", out.read()) == tuple(steps(i + 1) for i in range(96))


def test_variables_of_a_module_keep_their_values_between_launches_of_a_program(nv: NvDevice):
    seen = nv.alloc(4 * 8)
    program = nv.load(image(nv.arch), "counting")
    for start in (7, 15):
        nv.run(program, [seen], block=(8, 1, 1))
        assert sorted(struct.unpack("<8i", seen.read())) == list(range(start, start + 8))
    nv.run(nv.load(image(nv.arch), "counting"), [seen], block=(8, 1, 1))
    assert min(struct.unpack("<8i", seen.read())) == 7  # another program has variables of its own


def test_structures_doubles_and_bytes_are_passed_by_value(nv: NvDevice):
    out = nv.alloc(8)
    program = nv.load(image(nv.arch), "by_value")
    nv.run(program, [out, struct.pack("<fi", 1.5, 40), 2.0, 2])
    assert struct.unpack("<2f", out.read()) == (3.0, 42.0)
    with pytest.raises(UsageError, match=r"argument 1 has 8 bytes, and 1.5 is no such value|argument 1"):
        nv.queue().dispatch(program, [out, b"1234", 2.0, 2])


def test_recursion_has_a_stack(nv: NvDevice):
    out = nv.alloc(40)
    program = nv.load(image(nv.arch), "recursive")
    assert program.kernel.stack_bytes > 0
    assert nv.local is not None
    nv.run(program, [out], block=(10, 1, 1))
    assert struct.unpack("<10i", out.read()) == (0, 1, 1, 2, 3, 5, 8, 13, 21, 34)


def test_the_machine_code_says_what_a_launch_needs(nv: NvDevice):
    program = nv.load(image(nv.arch), "block_sums")
    kernel = program.kernel
    assert kernel.registers > 1
    assert kernel.static_shared == 1024 * (2 if nv.chip.shared_first else 1)
    assert kernel.param_base == nv.chip.bank0.param_base
    assert [one.size_bytes for one in kernel.parameters] == [8, 8, 4]
    assert 3 in {bank for bank, _, _ in kernel.banks}
    nv.run(nv.load(image(nv.arch), "nothing"), [])
    bounded = nv.load(image(nv.arch), "bounded")
    with pytest.raises(UsageError, match="compiled for at most 128"):
        nv.queue().dispatch(bounded, [nv.alloc(4096)], block=(256, 1, 1))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_the_code_starts_where_the_qmd_says_with_its_descriptor_before_it(open_nv: Open, arch: str):
    bundle = Bundle.of(image(arch))
    chip = open_nv(arch).chip
    linked = Linked(bundle, "block_sums", chip, "test")
    va = 0x7_0000_0000
    assert va % ALIGNMENT == 0
    memory = linked.place(va)
    assert linked.cubin is not None
    code = linked.cubin.contents(".text.block_sums")
    assert memory[CODE_AT : CODE_AT + len(code)] == code
    found = images.KernelDescriptor.from_bytes(memory[CODE_AT - images.DESCRIPTOR_BYTES : CODE_AT])
    assert found.is_valid
    start = found.ptx_address - va
    assert memory[start : start + found.ptx_bytes] == bundle.ptx
    assert memory[found.entry_name_address - va :].startswith(b"block_sums\0")
    assert found.symbol_count == 2


def test_machine_code_alone_is_refused_where_only_ptx_runs(open_nv: Open):
    nv = open_nv("sm_90")
    with pytest.raises(UsageError, match="an emulated GPU runs PTX, and this image has only machine code"):
        nv.load(Bundle.of(image("sm_90")).cubin, "block_sums")


def test_a_cubin_for_another_architecture_is_refused(open_nv: Open):
    nv = open_nv("sm_90")
    with pytest.raises(UsageError, match=r"the cubin is for sm_80, and this device is sm_90"):
        nv.load(image("sm_80"), "block_sums")
    # the same major architecture, and later
    assert open_nv("sm_89").load(image("sm_86"), "nothing") is not None


def test_ptx_alone_has_its_variables_where_machine_code_made_of_it_says(nv: NvDevice):
    text = Bundle.of(image(nv.arch)).ptx
    program = nv.load(text, "counting")
    seen = nv.alloc(32)
    for start in (7, 15):
        nv.run(program, [seen], block=(8, 1, 1))
        assert sorted(struct.unpack("<8i", seen.read())) == list(range(start, start + 8))
    assert nv.load(text, "block_sums").kernel.banks  # .const variables


def test_ptx_with_variables_is_refused_where_nothing_makes_machine_code_of_it(
    open_nv: Open, monkeypatch: pytest.MonkeyPatch
):
    nv = open_nv("sm_90")

    def missing() -> None:
        raise UsageError("nvJitLink is not installed. Install it with: pip install 'hcq[nv]'.")

    monkeypatch.setattr(nvjitlink, "library", missing)
    with pytest.raises(
        UsageError, match=r"load\('block_sums'\): this is PTX alone, .* Install it with: pip install"
    ):
        nv.load(Bundle.of(image("sm_90")).ptx, "block_sums")


def test_an_image_that_is_no_code_is_refused(open_nv: Open):
    nv = open_nv("sm_90")
    with pytest.raises(UsageError, match=r"no code for an NVIDIA GPU"):
        nv.load(b"hello", "block_sums")
    with pytest.raises(
        UsageError, match=r"no kernel 'missing' in the object. Its kernels: .*block_sums.*collatz"
    ):
        nv.load(image("sm_90"), "missing")
