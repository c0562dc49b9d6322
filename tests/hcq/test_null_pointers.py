"""A null pointer is None or 0, on every kind of device, whatever other parameters a kernel has."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

import hcq
from hcq.device import Device
from hcq.errors import UsageError
from hcq.graph import Symbol
from hcq.memory import Buffer
from hcq.program import Program
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.amd.edited import without_metadata
from tests.hcq.amd.kernels import compile_ir
from tests.hcq.conftest import assemble
from tests.hcq.metal.conftest import open_metal as open_metal
from tests.hcq.nv.conftest import open_nv as open_nv

KINDS = ["CPU", "AMD", "NV", "METAL"]
BODY = r"""
  %null = icmp eq ptr @AS@ %bias, null
  br i1 %null, label %without, label %with
without:
  store i32 @ELSE@, ptr @AS@ %out
  ret void
with:
  %v = load i32, ptr @AS@ %bias
  store i32 %v, ptr @AS@ %out
  ret void
}
"""
MSL = """#include <metal_stdlib>
using namespace metal;
kernel void three(device uint *out [[buffer(0)]], device const uint *bias [[buffer(1)]],
                  constant uint &other [[buffer(2)]]) {
    if (other != 0u) { out[0] = other; } else { out[0] = bias[0]; }
}
"""


def text_for(kind: str) -> str:
    """Kernels that put what an optional pointer points to into `out`, or 7, or a number that stands beside it."""
    space = "" if kind == "CPU" else "addrspace(1)"
    triple = {"AMD": "amdgcn-amd-amdhsa", "NV": "nvptx64-nvidia-cuda"}.get(kind, "")
    how = {"AMD": "amdgpu_kernel ", "NV": "ptx_kernel "}.get(kind, "")
    last = ", ptr %group" if kind == "CPU" else ""
    text = f'target triple = "{triple}"\n' if triple else ""
    for name, beside, other in (("two", "", "7"), ("three", ", i32 %other", "%other")):
        text += f"define {how}void @{name}(ptr {space} %out, ptr {space} %bias{beside}{last}) {{"
        text += BODY.replace("@AS@", space).replace("@ELSE@", other)
    return text


class Place:
    """A device with both kernels."""

    def __init__(self, kind: str, open_amd: Any, open_nv: Any, open_metal: Any) -> None:
        self.kind = kind
        if kind == "CPU":
            self.device: Device = hcq.open("CPU")
            self.image = assemble(text_for(kind))
        elif kind == "METAL":
            self.device, self.image = open_metal(), MSL.encode()
        else:
            self.device = open_amd() if kind == "AMD" else open_nv()
            self.image = compile_ir(text_for(kind), "gfx1100") if kind == "AMD" else ptx(text_for(kind))
        self.out, self.bias = self.device.alloc(64, "out"), self.device.alloc(64, "bias")
        self.bias.write(struct.pack("<I", 5) + bytes(60))

    def load(self, name: str, **how: Any) -> Program:
        return self.device.load(self.image, name, **how)

    def found(self, program: Program, *args: Any) -> int:
        self.out.write(bytes(64))
        self.device.run(program, [self.out, *args])
        return int(struct.unpack_from("<I", self.out.read())[0])


def ptx(text: str) -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu="sm_80", opt=2)
    return str(machine.emit_assembly(llvm.parse_assembly(text))).encode()


@pytest.fixture(params=KINDS)
def place(
    request: pytest.FixtureRequest,
    open_amd: Callable[..., Device],
    open_nv: Callable[..., Device],
    open_metal: Callable[..., Device],
) -> Place:
    return Place(request.param, open_amd, open_nv, open_metal)


@pytest.mark.parametrize("is_said", [False, True])
def test_an_optional_pointer_is_left_out_by_none_or_zero(place: Place, is_said: bool) -> None:
    """is_said: load() is told the kinds of the arguments, and what is done with their memory."""
    how: dict[str, Any] = (
        {"args": ("buffer", "buffer", "int"), "access": ("write", "read", "")} if is_said else {}
    )
    three = place.load("three", **how)
    null_first = (None, 0, place.bias, None, 0)
    for value in null_first:
        if place.kind == "METAL":  # the number says whether the pointer is looked at
            assert place.found(three, value, 9) == 9
        else:
            assert place.found(three, value, 9) == (5 if isinstance(value, Buffer) else 9)
    if place.kind == "METAL":
        return
    two = place.load("two", **({"args": how["args"][:2], "access": how["access"][:2]} if is_said else {}))
    for value in null_first:
        assert place.found(two, value) == (5 if isinstance(value, Buffer) else 7)


@pytest.mark.parametrize("kind", ["CPU", "AMD", "NV"])
def test_a_graph_replays_with_a_null_pointer(kind: str, open_amd: Any, open_nv: Any, open_metal: Any) -> None:
    place = Place(kind, open_amd, open_nv, open_metal)
    two = place.load("two", args=("buffer", "buffer"), access=("write", "read"))
    graph = place.device.graph()
    graph.dispatch(two, [place.out, Symbol("bias")])
    other = place.device.graph()
    other.dispatch(two, [place.out, None])
    for value, expected in ((None, 7), (place.bias, 5), (0, 7), (place.bias, 5), (None, 7)):
        graph.replay({"bias": value}).wait()
        assert struct.unpack_from("<I", place.out.read()) == (expected,)
    other.replay().wait()
    assert struct.unpack_from("<I", place.out.read()) == (7,)
    with pytest.raises(UsageError, match=r"'bias' is a buffer, got 5"):
        graph.replay({"bias": 5})


@pytest.mark.parametrize("name", ["two", "three"])
def test_another_number_is_an_address_unless_load_was_told_that_it_is_a_buffer(
    open_amd: Any, name: str
) -> None:
    """Also after a null pointer of the same type was taken, and whether a number stands beside the pointers or not."""
    amd = open_amd()
    image = compile_ir(text_for("AMD"), "gfx1100")
    out, bias, rest = amd.alloc(64), amd.alloc(64), [9] if name == "three" else []
    bias.write(struct.pack("<I", 5) + bytes(60))
    without = (9 if rest else 7,)
    program = amd.load(image, name)
    for value, expected in ((0, without), (bias.address, (5,)), (None, without), (bias, (5,))):
        amd.run(program, [out, value, *rest])
        assert struct.unpack_from("<I", out.read()) == expected
    strict = amd.load(image, name, args=("buffer", "buffer", "int")[: 2 + len(rest)])
    for value in (0, bias.address, None, 5, False, True, 1.5):
        if value is None or (value is not False and value == 0):
            amd.run(strict, [out, value, *rest])
            assert struct.unpack_from("<I", out.read()) == without
        else:
            with pytest.raises(UsageError, match="argument 1 is a buffer, got"):
                amd.run(strict, [out, value, *rest])
    with pytest.raises(UsageError, match=r"argument 1 (of two |of three )?is a buffer, got (Symbol|1)"):
        amd.graph().dispatch(strict, [out, Symbol("n", "int"), *rest])
    bare = amd.load(without_metadata(image), name)
    amd.run(bare, [out, None, *rest])
    assert struct.unpack_from("<I", out.read()) == without


def test_none_is_no_number(place: Place) -> None:
    three = place.load("three", args=("buffer", "buffer", "int"))
    with pytest.raises(UsageError, match=r"argument 2 is None\. An argument is a Buffer, an int or a"):
        place.found(three, place.bias, None)


@pytest.mark.parametrize("kind", ["AMD", "METAL"])
def test_a_null_pointer_that_is_read_all_the_same_is_a_fault(
    kind: str, open_amd: Any, open_nv: Any, open_metal: Any
) -> None:
    place = Place(kind, open_amd, open_nv, open_metal)
    if kind == "METAL":
        program, args = place.load("three"), [place.out, None, 0]
    else:
        text = text_for("AMD").replace("icmp eq ptr addrspace(1) %bias, null", "icmp ne i32 0, 0")
        program, args = place.device.load(compile_ir(text, "gfx1100"), "two"), [place.out, None]
    with pytest.raises(hcq.DeviceFault):
        place.device.run(program, args)
