"""Tables of function pointers, virtual functions: what a linker writes into memory is what a call by address finds."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

import pytest

from hcq.errors import DeviceFault, UsageError
from hcq.nv.device import NvDevice
from hcq.nv.toolchain import images as toolchain

Open = Callable[..., NvDevice]
ARCHS = ["sm_80", "sm_90", "sm_120"]

FUNCTIONS = """
.func (.param .b32 result) plus_three(.param .b32 number) {
    .reg .b32 %r<3>; ld.param.u32 %r1, [number]; add.u32 %r2, %r1, 3; st.param.b32 [result], %r2; ret;
}
.func (.param .b32 result) thrice(.param .b32 number) {
    .reg .b32 %r<3>; ld.param.u32 %r1, [number]; mul.lo.u32 %r2, %r1, 3; st.param.b32 [result], %r2; ret;
}
"""
CALL = """
    { .param .b32 number; .param .b32 result; st.param.b32 [number], %r1;
    shape: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (result), %d4, (number), shape;
    ld.param.b32 %r3, [result]; }
"""


def calling(table: str, space: str, find: str) -> str:
    """A kernel whose even threads call the first function of a table, the odd ones the second."""
    return f""".version 8.0
.target sm_80
.address_size 64
{FUNCTIONS}
{table}
.visible .entry k(.param .u64 out) {{
    .reg .b64 %d<7>; .reg .b32 %r<4>;
    ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1;
    {find}
    ld.{space}.u64 %d4, [%d3];
    {CALL}
    mul.wide.u32 %d5, %r1, 4; add.u64 %d6, %d1, %d5; st.global.u32 [%d6], %r3; ret;
}}
"""


PLAIN = "mul.wide.u32 %d2, %r2, 8; mov.u64 %d3, table; add.u64 %d3, %d3, %d2;"
TABLES = {
    "global": (".global .align 8 .u64 table[2] = {plus_three, thrice};", "global", PLAIN),
    "const": (".const .align 8 .u64 table[2] = {plus_three, thrice};", "const", PLAIN),
    # a table that is found through a pointer to it, as the one of a class is through its objects
    "pointed to": (
        ".global .align 8 .u64 rows[4] = {plus_three, 0, thrice, 0}, table[2] = {rows, rows+16};",
        "global",
        PLAIN + "ld.global.u64 %d3, [%d3];",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_threads_call_what_their_row_of_a_table_holds(name: str, open_nv: Open) -> None:
    device = open_nv("sm_90")
    try:
        program = device.load(calling(*TABLES[name]).encode(), "k")
    except UsageError as error:
        pytest.skip(str(error))
    out = device.alloc(4 * 64)
    device.run(program, [out], grid=(1, 1, 1), block=(64, 1, 1))
    assert struct.unpack("64I", out.read()) == tuple(3 * t if t % 2 else t + 3 for t in range(64))


def test_a_call_of_what_is_no_function_names_line_address_and_thread(open_nv: Open) -> None:
    device = open_nv("sm_90")
    text = calling("", "global", "mov.u64 %d3, %d1;")
    out = device.alloc(4 * 64)
    out.write(struct.pack("<Q", 0x1234567))
    program = device.load(text.encode(), "k")
    with pytest.raises(
        DeviceFault, match=r"PTX line \d+: an indirect call to 0x1234567 by thread .*no function"
    ):
        device.run(program, [out], grid=(1, 1, 1), block=(2, 1, 1))


SOURCE = r"""
struct Shape { __device__ virtual float area(float x) const = 0; __device__ virtual int corners() const { return 0; } };
struct Square : Shape { __device__ float area(float x) const override { return x * x; }
                        __device__ int corners() const override { return 4; } };
struct Circle : Shape { __device__ float area(float x) const override { return 3 * x * x; } };
struct Triangle : Shape { __device__ float area(float x) const override { return x * x / 2; }
                          __device__ int corners() const override { return 3; } };

extern "C" __global__ void areas(float *out, int *corners, const int *kinds) {
    Square square; Circle circle; Triangle triangle;
    Shape *all[3] = {&square, &circle, &triangle};
    Shape *mine = all[kinds[threadIdx.x]];
    out[threadIdx.x] = mine->area((float)threadIdx.x);
    corners[threadIdx.x] = mine->corners();
}

__device__ int twice(int x) { return 2 * x; }
__device__ int squared(int x) { return x * x; }
__device__ int less(int x) { return x - 1; }
typedef int (*Step)(int);
__device__ Step steps[3] = {twice, squared, less};
__constant__ Step fixed[2] = {less, twice};

extern "C" __global__ void apply(int *out, const int *kinds) {
    out[threadIdx.x] = fixed[threadIdx.x & 1](steps[kinds[threadIdx.x]](threadIdx.x));
}
"""


@functools.cache
def image(arch: str) -> bytes:
    try:
        return toolchain.of_cuda(SOURCE, arch, "test")
    except UsageError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("arch", ARCHS)
def test_virtual_functions_are_those_of_each_threads_object(arch: str, open_nv: Open) -> None:
    made = image(arch)
    device = open_nv(arch)
    out, corners, kinds = (device.alloc(4 * 96) for _ in range(3))
    kinds.write(struct.pack("96i", *(t * t % 3 for t in range(96))))
    device.run(device.load(made, "areas"), [out, corners, kinds], grid=(1, 1, 1), block=(96, 1, 1))
    factors = {0: 1.0, 1: 3.0, 2: 0.5}
    assert struct.unpack("96f", out.read()) == tuple(factors[t * t % 3] * t * t for t in range(96))
    assert struct.unpack("96i", corners.read()) == tuple((4, 0, 3)[t * t % 3] for t in range(96))


@pytest.mark.parametrize("arch", ARCHS)
def test_tables_in_device_and_constant_memory_are_called(arch: str, open_nv: Open) -> None:
    made = image(arch)
    device = open_nv(arch)
    out, kinds = device.alloc(4 * 64), device.alloc(4 * 64)
    kinds.write(struct.pack("64i", *(t % 3 for t in range(64))))
    device.run(device.load(made, "apply"), [out, kinds], grid=(1, 1, 1), block=(64, 1, 1))
    steps: list[Callable[[int], int]] = [lambda x: 2 * x, lambda x: x * x, lambda x: x - 1]
    then: list[Callable[[int], int]] = [steps[2], steps[0]]
    assert struct.unpack("64i", out.read()) == tuple(then[t & 1](steps[t % 3](t)) for t in range(64))
