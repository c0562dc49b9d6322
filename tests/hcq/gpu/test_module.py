"""Modules: an object is loaded once, its kernels share its variables, and the host reads and fills them."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable
from typing import Any

import pytest

from hcq.errors import UsageError
from hcq.gpu.device import GpuDevice
from hcq.gpu.module import GpuModule
from tests.hcq.amd.kernels import compile_ir
from tests.hcq.emu.nv.shader.running import needs_nvjitlink
from tests.hcq.gpu.vendors import AMD, NV

IR = """
target triple = "amdgcn-amd-amdhsa"
@counter = addrspace(1) global i32 5
@weights = addrspace(4) externally_initialized constant [4 x i32] zeroinitializer
@number = addrspace(1) externally_initialized global ptr addrspace(1) null
@number.managed = addrspace(1) externally_initialized global i32 7
define amdgpu_kernel void @put(i32 %value) {
  store i32 %value, ptr addrspace(1) @counter
  ret void
}
define amdgpu_kernel void @get(ptr addrspace(1) %out, i64 %i) {
  %v = load i32, ptr addrspace(1) @counter
  store i32 %v, ptr addrspace(1) %out
  %p = getelementptr i32, ptr addrspace(4) @weights, i64 %i
  %w = load i32, ptr addrspace(4) %p
  %q = getelementptr i32, ptr addrspace(1) %out, i64 1
  store i32 %w, ptr addrspace(1) %q
  %n = load ptr addrspace(1), ptr addrspace(1) @number
  %m = load i32, ptr addrspace(1) %n
  %r = getelementptr i32, ptr addrspace(1) %out, i64 2
  store i32 %m, ptr addrspace(1) %r
  ret void
}
"""
PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.visible .const .align 4 .b8 weights[16];
.visible .global .align 4 .u32 number = 7;
.visible .entry put(.param .u32 value) {
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [value];
    st.global.u32 [counter], %r1;
    ret;
}
.visible .entry get(.param .u64 out, .param .u64 i) {
    .reg .b64 %d<5>;
    .reg .b32 %r<4>;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [i];
    ld.global.u32 %r1, [counter];
    st.global.u32 [%d1], %r1;
    shl.b64 %d2, %d2, 2;
    mov.u64 %d3, weights;
    add.u64 %d3, %d3, %d2;
    ld.const.u32 %r2, [%d3];
    st.global.u32 [%d1+4], %r2;
    ld.global.u32 %r3, [number];
    st.global.u32 [%d1+8], %r3;
    ret;
}
"""
ONE = {"grid": (1, 1, 1), "block": (1, 1, 1)}


@pytest.fixture(params=[AMD, pytest.param(NV, marks=needs_nvjitlink)], ids=lambda vendor: vendor.name)
def device(
    request: pytest.FixtureRequest, open_amd: Callable[..., Any], open_nv: Callable[..., Any]
) -> GpuDevice:
    opened: GpuDevice = open_amd() if request.param is AMD else open_nv("sm_90")
    return opened


def image_for(device: GpuDevice) -> bytes:
    return PTX.encode() if device.arch.startswith("sm_") else compile_ir(IR, device.arch)


@pytest.fixture
def module(device: GpuDevice) -> GpuModule:
    return device.module(image_for(device), "tables")


def words(device: GpuDevice, program: Any, *args: int) -> tuple[int, ...]:
    out = device.alloc(64)
    device.run(program, [out, *args], **ONE)
    return struct.unpack_from("3i", out.read())


def test_the_programs_of_a_module_share_its_variables(device: GpuDevice, module: GpuModule):
    device.run(module.program("put"), [42], **ONE)
    assert words(device, module.program("get"), 0)[0] == 42
    assert module.variable("counter").read() == struct.pack("i", 42)


def test_a_variable_that_the_host_fills_is_what_kernels_read(device: GpuDevice, module: GpuModule):
    get = module.program("get")
    assert words(device, get, 2) == (5, 0, 7)
    module.variable("weights").write(struct.pack("4i", 10, 11, 12, 13))
    module.variable("counter").write(struct.pack("i", -1))
    module.variable("number").write(struct.pack("i", 99))  # __managed__ on AMD: its symbol points to it
    assert words(device, get, 2) == (-1, 12, 99)
    assert words(device, get, 3) == (-1, 13, 99)


def test_writing_a_variable_waits_for_launches_that_use_it_unnamed(device: GpuDevice, module: GpuModule):
    put, counter = module.program("put"), module.variable("counter")
    for number in range(20):
        device.launch(put, [number], **ONE)
        counter.write(struct.pack("i", -number))
        assert counter.read() == struct.pack("i", -number)


def test_each_load_has_variables_of_its_own(device: GpuDevice):
    image = image_for(device)
    device.run(device.load(image, "put"), [42], **ONE)
    assert words(device, device.load(image, "get"), 0)[0] == 5


def test_names_are_listed_and_another_one_is_refused_with_them(module: GpuModule):
    assert module.entries == ("get", "put")
    assert set(module.variables) == {"counter", "number", "weights"}
    assert module.variable("weights").size_bytes == 16
    with pytest.raises(UsageError, match="there is none of this name; it has counter, number, weights"):
        module.variable("wieghts")
    with pytest.raises(UsageError, match=r"no kernel 'set' in the object\. Its kernels: get, put"):
        module.program("set")
    with pytest.raises(UsageError, match="entry"):
        module.program(7)  # type: ignore[arg-type]


def test_a_module_lives_as_long_as_anything_of_it(device: GpuDevice):
    module = device.module(image_for(device))
    variable, get = module.variable("counter"), module.program("get")
    del module
    gc.collect()
    filler = [device.alloc(variable.parent.capacity).write(bytes(64)) for _ in range(4)]  # type: ignore[union-attr]
    assert filler
    variable.write(struct.pack("i", 77))
    del variable
    gc.collect()
    assert words(device, get, 0)[0] == 77


def test_a_graph_replays_launches_and_copies_of_variables_in_their_order(
    device: GpuDevice, module: GpuModule
):
    put, get, counter = module.program("put"), module.program("get"), module.variable("counter")
    out, kept = device.alloc(64), device.alloc(64)
    graph = device.graph()
    graph.dispatch(put, [3], **ONE)
    graph.copy(kept, counter, 4)
    graph.fill(counter, 0x01010101, value_bytes=4)
    graph.dispatch(get, [out, 0], **ONE)
    for _ in range(3):
        graph.replay().wait()
        assert struct.unpack_from("i", kept.read())[0] == 3
        assert struct.unpack_from("i", out.read())[0] == 0x01010101


def test_launches_that_share_a_variable_keep_their_order_whatever_is_said_of_their_arguments(
    device: GpuDevice, module: GpuModule
):
    put, get = module.program("put", access=[""]), module.program("get", access=["write", ""])
    alone = device.load(image_for(device), "put", access=[""])  # its own variable, which its launches write
    outs = [device.alloc(64) for _ in range(3)]
    graph = device.graph()
    for number, out in enumerate(outs):
        graph.dispatch(put, [number], **ONE)
        graph.dispatch(get, [out, 0], **ONE)
        graph.dispatch(alone, [number], **ONE)
    assert all(needs == (number - 1,) for number, needs in enumerate(graph.dependences().needs) if number)
    graph.replay().wait()
    assert [struct.unpack_from("i", out.read())[0] for out in outs] == [0, 1, 2]


def test_a_device_without_modules_says_so():
    import hcq

    with pytest.raises(UsageError, match="only AMD and NV devices have modules"):
        hcq.open("CPU").module(b"")
