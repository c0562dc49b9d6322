"""The same operations on each kind of device: kernels of one's own, checked against NumPy; test_devices.py runs this.

In       argv: what to emulate ("" for nothing), the device's name, a folder
Out      one line of JSON: case -> "" where it agrees with NumPy, else what differs
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

if sys.argv[1]:
    os.environ["HCQ_EMULATE"] = sys.argv[1]
DEVICE = sys.argv[2]

import hcq  # noqa: E402
from hcq import Tensor  # noqa: E402

CPU = """
define void @axpy(ptr %out, ptr %product, ptr %x, ptr %y, i64 %n, double %a, ptr %group) {
entry:
  %af = fptrunc double %a to float
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %px = getelementptr float, ptr %x, i64 %i
  %py = getelementptr float, ptr %y, i64 %i
  %po = getelementptr float, ptr %out, i64 %i
  %pp = getelementptr float, ptr %product, i64 %i
  %vx = load float, ptr %px
  %vy = load float, ptr %py
  %ax = fmul float %vx, %af
  %sum = fadd float %ax, %vy
  %both = fmul float %vx, %vy
  store float %sum, ptr %po
  store float %both, ptr %pp
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
AMD = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @axpy(ptr addrspace(1) %out, ptr addrspace(1) %product, ptr addrspace(1) %x,
                                ptr addrspace(1) %y, i32 %n, float %a) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %g, 32
  %i = add i32 %first, %t
  %is_inside = icmp slt i32 %i, %n
  br i1 %is_inside, label %do, label %done
do:
  %px = getelementptr float, ptr addrspace(1) %x, i32 %i
  %py = getelementptr float, ptr addrspace(1) %y, i32 %i
  %po = getelementptr float, ptr addrspace(1) %out, i32 %i
  %pp = getelementptr float, ptr addrspace(1) %product, i32 %i
  %vx = load float, ptr addrspace(1) %px
  %vy = load float, ptr addrspace(1) %py
  %ax = fmul float %vx, %a
  %sum = fadd float %ax, %vy
  %both = fmul float %vx, %vy
  store float %sum, ptr addrspace(1) %po
  store float %both, ptr addrspace(1) %pp
  br label %done
done:
  ret void
}
"""
NV = """
.version 7.8
.target sm_90
.address_size 64
.visible .entry axpy(.param .u64 out, .param .u64 product, .param .u64 x, .param .u64 y, .param .u32 n, .param .f32 a) {
    .reg .pred %q;
    .reg .u32 %r<5>;
    .reg .u64 %p<6>;
    .reg .f32 %f<6>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 32, %r1;
    ld.param.u32 %r4, [n];
    setp.ge.u32 %q, %r3, %r4;
    @%q ret;
    mul.wide.u32 %p5, %r3, 4;
    ld.param.u64 %p1, [out];
    ld.param.u64 %p2, [product];
    ld.param.u64 %p3, [x];
    ld.param.u64 %p4, [y];
    ld.param.f32 %f1, [a];
    add.u64 %p1, %p1, %p5;
    add.u64 %p2, %p2, %p5;
    add.u64 %p3, %p3, %p5;
    add.u64 %p4, %p4, %p5;
    ld.global.f32 %f2, [%p3];
    ld.global.f32 %f3, [%p4];
    mul.rn.f32 %f4, %f2, %f1;
    add.rn.f32 %f4, %f4, %f3;
    mul.rn.f32 %f5, %f2, %f3;
    st.global.f32 [%p1], %f4;
    st.global.f32 [%p2], %f5;
    ret;
}
"""
METAL = """
#include <metal_stdlib>
kernel void axpy(device float *out [[buffer(0)]], device float *product [[buffer(1)]],
                 device const float *x [[buffer(2)]], device const float *y [[buffer(3)]],
                 constant int &n [[buffer(4)]], constant float &a [[buffer(5)]], uint i [[thread_position_in_grid]]) {
    if (int(i) < n) {
        out[i] = a * x[i] + y[i];
        product[i] = x[i] * y[i];
    }
}
"""
SOURCE = {"CPU": CPU, "AMD": AMD, "NV": NV, "METAL": METAL}[DEVICE]
IS_CPU = DEVICE == "CPU"
rng = np.random.default_rng(0)
X, Y = (rng.standard_normal(100).astype(np.float32) for _ in range(2))
A = 2.5


def axpy(x, y, backward=None, source=SOURCE):
    """a x + y, and x y."""
    return hcq.custom(
        source,
        [x, y],
        [x, y, lambda x, y: x[0], A],
        grid=(lambda x, y: 1) if IS_CPU else lambda x, y: -(-x[0] // 32),
        block=1 if IS_CPU else 32,
        backward=backward,
        shard=0,
    )


def both_slopes(g, h, x, y, n, a):
    return g * a + h * y, g + h * x, None, None


def on_device(array):
    return Tensor(array, device=DEVICE)


def values():
    out, product = axpy(on_device(X), on_device(Y))
    return [(out.numpy(), A * X + Y), (product.numpy(), X * Y)]


def together():
    out, product = axpy(on_device(X) + 1, on_device(Y))
    return [((out * product).numpy(), (A * (X + 1) + Y) * ((X + 1) * Y))]


def one_of_two():
    return [(axpy(on_device(X), on_device(Y) * 2)[1].numpy(), X * Y * 2)]


def gradients():
    x, y = on_device(X), on_device(Y)
    x.requires_grad = y.requires_grad = True
    out, product = axpy(x, y * 3, both_slopes)
    (out * 2 + product).sum().backward()
    return [(x.grad.numpy(), 2 * A + Y * 3 + 0 * X), (y.grad.numpy(), 3 * (2 + X))]


def transformed_gradients():
    def loss(x):
        out, product = axpy(x, on_device(Y), both_slopes)
        return (out * 2).sum() + product.sum()

    return [(hcq.func.grad(loss)(on_device(X)).numpy(), 2 * A + Y)]


def recorded():
    step = hcq.jit(lambda x, y: sum(axpy(x + 1, y, both_slopes)) * 2)
    found = []
    for number in range(4):
        found.append(
            (
                step(on_device(X + number), on_device(Y)).numpy(),
                2 * (A * (X + number + 1) + Y + (X + number + 1) * Y),
            )
        )
    assert sum(version.recording is not None for one in step._seen.values() for version in one.known) == 1
    return found


def saved():
    step = hcq.jit(lambda x, y: axpy(x + 1, y)[0])
    for _ in range(3):
        step(on_device(X), on_device(Y))
    path = Path(sys.argv[3]) / "axpy.hcq"
    hcq.save_program(path, step)
    (out,) = hcq.load_program(path)(X, Y)
    return [(np.frombuffer(out.read(), np.float32), A * (X + 1) + Y)]


def from_a_program():
    from hcq.frontend.more.custom.languages import code_of

    code = code_of(SOURCE, hcq.open(DEVICE), None)
    program = hcq.open(DEVICE).load(code.image, "axpy")
    first = axpy(on_device(X), on_device(Y), source=program)[0].numpy()
    image = (
        axpy(on_device(X), on_device(Y), source=program.origin[1])[0].numpy()
        if DEVICE in ("AMD", "NV")
        else first
    )
    return [(first, A * X + Y), (image, A * X + Y)]


def views():
    x, y = on_device(np.stack([X, Y])), on_device(Y)
    return [
        (axpy(x[0].flip(0), y)[0].numpy(), A * X[::-1] + Y),
        (axpy(x[1, 10:30], x[0, :20])[0].numpy(), A * Y[10:30] + X[:20]),
    ]


def in_place():
    x, y = on_device(X), on_device(Y)
    out = axpy(x, y)[0]
    x.assign(axpy(x, y)[1])
    return [(out.numpy(), A * X + Y), (x.numpy(), X * Y)]


CASES = (
    values,
    together,
    one_of_two,
    gradients,
    transformed_gradients,
    recorded,
    saved,
    from_a_program,
    views,
    in_place,
)
if __name__ == "__main__":
    found = {}
    for case in CASES:
        wrong = [
            f"{number}: {np.abs(got - want).max()}"
            for number, (got, want) in enumerate(case())
            if got.shape != want.shape or not np.allclose(got, want, rtol=1e-5, atol=1e-5)
        ]
        found[case.__name__] = ", ".join(wrong)
    print(json.dumps(found))
