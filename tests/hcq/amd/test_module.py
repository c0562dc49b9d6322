"""Modules of AMD GPUs: what clang adds to an object, and what a linker hides in one."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from hcq.amd.device import AmdDevice
from hcq.errors import UsageError
from tests.hcq.amd.kernels import compile_ir
from tests.hcq.amd.linker import compiled_c, linked, stripped

C = """
#define GLOBAL __attribute__((address_space(1)))
GLOBAL int x = 5;
__attribute__((constructor)) static void construct(void) { x = 77 + __builtin_amdgcn_workgroup_id_x(); }
__attribute__((amdgpu_kernel)) void get(GLOBAL int *out) { *out = x; }
"""
HIDDEN = """
target triple = "amdgcn-amd-amdhsa"
@seen = internal addrspace(1) global i32 9
define hidden amdgpu_kernel void @inside(ptr addrspace(1) %out) {
  %v = load i32, ptr addrspace(1) @seen
  %w = add i32 %v, 1
  store i32 %w, ptr addrspace(1) @seen
  store i32 %v, ptr addrspace(1) %out
  ret void
}
"""


@pytest.mark.parametrize(("arch", "queue"), [("gfx1100", "pm4"), ("gfx942", "aql")])
def test_constructors_give_variables_their_values_before_the_first_launch(
    arch: str, queue: str, open_amd: Callable[..., AmdDevice]
):
    device = open_amd(arch, queue=queue)
    image = linked(compiled_c(C, arch, "-fvisibility=protected"))
    out = device.alloc(64)
    device.run(device.load(image, "get"), [out])
    assert out.read(0, 4) == struct.pack("i", 77)
    assert device.module(image).variable("x").read() == struct.pack("i", 77)


def test_hidden_kernels_and_static_variables_are_found_while_the_object_still_names_them(
    open_amd: Callable[..., AmdDevice],
):
    device = open_amd()
    image = linked(compile_ir(HIDDEN, device.arch))
    module, out = device.module(image), device.alloc(64)
    device.run(module.program("inside"), [out])
    assert out.read(0, 4) == struct.pack("i", 9)
    assert module.variable("seen").read() == struct.pack("i", 10)
    with pytest.raises(UsageError, match=r"no kernel 'inside' in the object\. Its kernels: none"):
        device.load(stripped(image), "inside")
