"""hcq.custom: programs of one's own as operations on tensors, on every device, against NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError

pytestmark = pytest.mark.own_devices
ROOT = Path(__file__).resolve().parents[3]

# out[i] = a[i] * k + b[i], one thread for each of 64 elements; on the CPU one group does
# them all, and a float comes as a double
CPU = """
define void @scaled(ptr %out, ptr %a, ptr %b, double %factor, ptr %group) {
entry:
  %k = fptrunc double %factor to float
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %a, i64 %i
  %q = getelementptr float, ptr %b, i64 %i
  %o = getelementptr float, ptr %out, i64 %i
  %x = load float, ptr %p
  %y = load float, ptr %q
  %m = fmul float %x, %k
  %s = fadd float %m, %y
  store float %s, ptr %o
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 64
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""
AMD = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @scaled(ptr addrspace(1) %out, ptr addrspace(1) %a, ptr addrspace(1) %b, float %k) {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr float, ptr addrspace(1) %a, i32 %i
  %q = getelementptr float, ptr addrspace(1) %b, i32 %i
  %o = getelementptr float, ptr addrspace(1) %out, i32 %i
  %x = load float, ptr addrspace(1) %p
  %y = load float, ptr addrspace(1) %q
  %m = fmul float %x, %k
  %s = fadd float %m, %y
  store float %s, ptr addrspace(1) %o
  ret void
}
"""
NV = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry scaled(.param .u64 out, .param .u64 a, .param .u64 b, .param .f32 k)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<9>;
    .reg .f32 %f<6>;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d1, %r1, 4;
    ld.param.u64 %d2, [out];
    ld.param.u64 %d3, [a];
    ld.param.u64 %d4, [b];
    ld.param.f32 %f1, [k];
    add.u64 %d5, %d2, %d1;
    add.u64 %d6, %d3, %d1;
    add.u64 %d7, %d4, %d1;
    ld.global.f32 %f2, [%d6];
    ld.global.f32 %f3, [%d7];
    mul.rn.f32 %f4, %f2, %f1;
    add.rn.f32 %f5, %f4, %f3;
    st.global.f32 [%d5], %f5;
    ret;
}
"""
METAL = """
#include <metal_stdlib>
using namespace metal;
kernel void scaled(device float *out [[buffer(0)]], device const float *a [[buffer(1)]],
                   device const float *b [[buffer(2)]], constant float &k [[buffer(3)]],
                   uint i [[thread_position_in_grid]]) {
    out[i] = a[i] * k + b[i];
}
"""
SOURCES = {"CPU": CPU, "AMD": AMD, "NV": NV, "METAL": METAL}
BLOCKS = {"CPU": 1, "AMD": 64, "NV": 64, "METAL": 64}
MACHINES = ["CPU", "amd:gfx1100", "amd:gfx942", "nv:sm_90", "metal:m3"]


def scaled(a: Tensor, b: Tensor, k: float = 2.0, backward: object = None) -> Tensor:
    """The program above, as an operation on the device of its inputs."""
    kind = str(a.device).partition(":")[0]
    made: Tensor = hcq.custom(
        SOURCES[kind], ((64,), "float32"), [a, b, k], block=BLOCKS[kind], backward=backward
    )
    return made


def numbers(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """64 floats."""
    return np.random.default_rng(seed).integers(-50, 50, 64).astype(np.float32)


def computes_what_numpy_computes() -> None:
    """Eagerly, between other operations, with views as inputs."""
    a, b = numbers(0), numbers(1)
    assert (scaled(Tensor(a), Tensor(b)).numpy() == a * 2 + b).all()
    y = (scaled(Tensor(a) + 1, Tensor(b).flip(0), 3.0) * 2).sum()
    assert y.item() == ((((a + 1) * 3) + b[::-1]) * 2).sum()
    again = scaled(scaled(Tensor(a), Tensor(b)), Tensor(a), -1.0)
    assert (again.numpy() == -(a * 2 + b) + a).all()


def is_lazy_and_runs_once() -> None:
    """Nothing runs before it is asked for; equal calls are one node."""
    a, b = Tensor(numbers(0)), Tensor(numbers(1))
    one, other = scaled(a, b), scaled(a, b)
    assert one.node is other.node and scaled(a, b, 4.0).node is not one.node


def is_recorded_and_replayed() -> None:
    """In jit."""
    step = hcq.jit(lambda a, b: scaled(a * 2, b).relu())
    for seed in range(4):
        a, b = numbers(seed), numbers(seed + 10)
        assert (step(Tensor(a), Tensor(b)).numpy() == np.maximum(a * 4 + b, 0)).all()


def goes_back_by_backward() -> None:
    """Gradients are what the function gives."""

    def backward(g: Tensor, a: Tensor, b: Tensor, k: float) -> tuple[object, ...]:
        return g * k, g, None

    a, b = Tensor(numbers(0), requires_grad=True), Tensor(numbers(1), requires_grad=True)
    (scaled(a, b, 3.0, backward) * Tensor(numbers(2))).sum().backward()
    assert a.grad is not None and b.grad is not None
    assert (a.grad.numpy() == numbers(2) * 3).all() and (b.grad.numpy() == numbers(2)).all()


def is_saved_with_its_program(folder: Path) -> None:
    """As a file that needs no compiler."""
    step = hcq.jit(lambda a, b: scaled(a + 1, b))
    a, b = numbers(0), numbers(1)
    for _ in range(3):
        step(Tensor(a), Tensor(b)).numpy()
    path = str(folder / "step.hcq")
    hcq.save_program(path, step)
    program = hcq.load_program(path)
    (found,) = program(a, b)
    assert (np.frombuffer(found.read(), np.float32)[:64] == (a + 1) * 2 + b).all()


def is_refused_with_too_few_arguments() -> None:
    """Where the program says of itself what it takes, which objects for the CPU do not."""
    a = Tensor(numbers(0))
    kind = str(a.device).partition(":")[0]
    if kind == "CPU":
        return
    try:
        hcq.custom(SOURCES[kind], ((64,), "float32"), [a, a], block=64)
    except UsageError as error:
        assert str(error).startswith("[custom] scaled: "), error
    else:
        raise AssertionError("three arguments of four were taken")


CHECKS = [
    computes_what_numpy_computes,
    is_lazy_and_runs_once,
    is_recorded_and_replayed,
    goes_back_by_backward,
    is_refused_with_too_few_arguments,
]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_program_of_ones_own_is_an_operation(machine: str, tmp_path: Path) -> None:
    kind = machine.partition(":")[0].upper()
    emulated = {} if kind == "CPU" else {"HCQ_EMULATE": machine}
    environment = {**os.environ, **emulated, "HCQ_DEVICE": kind, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.frontend.more.test_custom", str(tmp_path)]
    ran = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "right\n"), ran.stderr


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda a: hcq.custom(CPU, ((64,), "float33"), [a, a, 1.0]), "has the dtype 'float33'"),
        (lambda a: hcq.custom(CPU, ((0,), "float32"), [a, a, 1.0]), "give sizes from 1"),
        (lambda a: hcq.custom(CPU, [], [a, a, 1.0]), r"give \(shape, dtype\), or a list of such"),
        (lambda a: hcq.custom("not a program", ((64,), "float32"), [a]), r"^\[custom\] "),
        (lambda a: hcq.custom(CPU, ((64,), "float32"), [1.0]), "no input is a tensor: say device="),
        (
            lambda a: hcq.custom(CPU, ((64,), "float32"), [a, a, 1.0], backward=3),
            "give a function of the outputs",
        ),
        (lambda a: hcq.custom(CPU, ((64,), "float32"), a), "give a list of tensors and numbers"),
        (lambda a: hcq.custom(CPU, ((64,), "float32"), [..., ..., a, a, 1.0]), "2 of the inputs are ..."),
    ],
)
def test_what_cannot_be_launched_is_refused_in_a_sentence(call: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        call(Tensor(numbers(0), device="CPU"))  # type: ignore[operator]


def test_a_gradient_without_backward_is_refused() -> None:
    a = Tensor(numbers(0), device="CPU", requires_grad=True)
    with pytest.raises(UsageError, match=r"\[custom\].*backward"):
        scaled(a, a).sum().backward()


def test_several_outputs_come_from_one_launch() -> None:
    text = """
define void @both(ptr %sum, ptr %product, ptr %x, ptr %group) {
  %q = getelementptr float, ptr %x, i64 1
  %a = load float, ptr %x
  %b = load float, ptr %q
  %s = fadd float %a, %b
  %m = fmul float %a, %b
  store float %s, ptr %sum
  store float %m, ptr %product
  ret void
}"""
    x = Tensor([3.0, 5.0], device="CPU")
    total, product = hcq.custom(text, [((1,), "float32"), ((1,), "float32")], [x])
    assert (total + product).tolist() == [23.0] and product.tolist() == [15.0]


if __name__ == "__main__":
    for check in CHECKS:
        check()
    is_saved_with_its_program(Path(sys.argv[1]))
    print("right")
