"""Arguments in registers when a kernel starts: as firmware that preloads starts it, behind the code that loads them."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from hcq.amd.chip import CHIPS
from hcq.amd.device import AmdDevice
from hcq.amd.link import Linked
from hcq.errors import UsageError
from hcq.graph import Symbol
from tests.hcq.amd.kernels import compile_ir

IR = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) inreg %out, i32 inreg %v, i64 %w) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  %n = trunc i64 %w to i32
  %s = add i32 %v, %n
  store i32 %s, ptr addrspace(1) %p
  ret void
}
"""
END_OF_PROGRAM = struct.pack("<I", 0xBF810000)
SIZE = {"grid": (1, 1, 1), "block": (64, 1, 1)}
GPUS = [("gfx90a", "pm4"), ("gfx942", "pm4"), ("gfx942", "aql")]


def without_prologue(arch: str) -> bytes:
    """The object, its kernel ending at once where firmware that does not preload starts it."""
    made = bytearray(compile_ir(IR, arch))
    found = Linked(bytes(made), CHIPS[arch], "k")
    kernel = found.kernels["k"]
    assert kernel.start_offset == kernel.entry_offset + 256
    text = next(one for one in found.object.sections if one.name == ".text")
    made[text.offset : text.offset + 4] = END_OF_PROGRAM
    return bytes(made)


@pytest.mark.parametrize(("arch", "queue"), GPUS)
def test_a_kernel_that_preloads_is_started_with_its_arguments_in_registers(
    arch: str, queue: str, open_amd: Callable[..., AmdDevice]
):
    device = open_amd(arch, queue=queue)
    program = device.load(without_prologue(arch), "k")
    out = device.alloc(256)
    for value in (40, 1000):
        device.run(program, [out, value, 2], **SIZE)
        assert (np.frombuffer(out.read(), np.uint32) == value + 2).all()


@pytest.mark.parametrize(("arch", "queue"), GPUS)
def test_a_replay_with_other_values_changes_those_in_registers(
    arch: str, queue: str, open_amd: Callable[..., AmdDevice]
):
    device = open_amd(arch, queue=queue)
    program = device.load(without_prologue(arch), "k")
    outs = [device.alloc(256), device.alloc(256)]
    graph = device.graph()
    where, value, more = Symbol("out"), Symbol("v", "int"), Symbol("w", "int")
    graph.dispatch(program, [outs[0], 1, 1], **SIZE)
    graph.dispatch(program, [where, value, more], **SIZE)
    for number, out in enumerate((outs[1], outs[0], outs[1])):
        graph.replay({"out": out, "v": 100 + number, "w": number}).wait()
        assert (np.frombuffer(out.read(), np.uint32) == 100 + 2 * number).all()


def test_a_gpu_that_cannot_preload_refuses_such_a_kernel():
    changed = bytearray(compile_ir(IR.replace("inreg ", ""), "gfx1100"))
    found = Linked(bytes(changed), CHIPS["gfx1100"], "k")
    section = next(one for one in found.object.sections if one.name == ".rodata")
    changed[section.offset + 58] = 2
    with pytest.raises(UsageError, match=r"asks for|has no way to preload"):
        Linked(bytes(changed), CHIPS["gfx1100"], "k")
