"""Kernels assembled by llvmlite and by comgr, and HIP C, on an emulated GPU; test_comgr.py runs this in a process.

In       argv: the architecture to compile for, the one to run on
Out      one line of JSON: case -> "" where the results agree, else what differs

Debian's comgr knows gfx90a and the emulator executes gfx942, CDNA2 and CDNA3. What these kernels are made of, vector
arithmetic and plain loads and stores without scratch, has the same encoding in both, so an object for the one is given
the other's number (e_flags, EF_AMDGPU_MACH) and runs; where the two are the same nothing is changed.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

os.environ["HCQ_EMULATE"] = f"amd:{sys.argv[2]}"

import hcq
from hcq.amd.chip import CHIPS
from hcq.compiler.assemble import comgr
from hcq.compiler.code_object import CodeObject
from hcq.compiler.codegen import assemble_with
from hcq.compiler.compile import compile_kernel
from hcq.compiler.target import amd_target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, const
from hcq.ir.op import Op

HIP = """
extern "C" __attribute__((global)) void twice(float *out, const float *in, int count) {
  int i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < count) out[i] = 2 * in[i];
}
"""

ARCH, EMULATED = sys.argv[1:]
device = hcq.open("AMD")
rng = np.random.default_rng(0)
F32 = dtypes.float32


def node(op: Op, *src: Node, arg: object = None, dtype: object = F32) -> Node:
    return Node(op, dtype, src, arg)


def param(index: int, *shape: int, writable: bool = False, dtype: object = F32) -> Node:
    return Node(Op.PARAM, dtype, (), Param(index, shape, writable))


def store(target: Node, value: Node) -> Node:
    return node(Op.SINK, node(Op.STORE, target, value, dtype=target.dtype))


def softmax() -> Node:
    x = param(1, 8, 40)
    top = node(Op.EXPAND, node(Op.REDUCE_AXIS, x, arg=(Op.MAX, (1,))), arg=(8, 40))
    e = node(Op.EXP, node(Op.ADD, x, node(Op.NEG, top)))
    total = node(Op.EXPAND, node(Op.REDUCE_AXIS, e, arg=(Op.ADD, (1,))), arg=(8, 40))
    return store(param(0, 8, 40, writable=True), node(Op.DIV, e, total))


def half_chain() -> Node:
    half = dtypes.float16
    twice = node(Op.MUL, param(1, 1000, dtype=half), const(2.0, half), dtype=half)
    return store(param(0, 1000, writable=True, dtype=half), node(Op.SQRT, twice, dtype=half))


def scatter() -> Node:
    out, index = param(0, 10, 6, writable=True), param(1, 4, 6, dtype=dtypes.int64)
    return store(out, node(Op.SCATTER_ADD, out, index, param(2, 4, 6), arg=0))


def for_emulated(image: bytes) -> bytes:
    """The object, saying that it is for the emulated GPU."""
    flags = 48  # offset of e_flags in the header of a 64-bit ELF; its first byte is the architecture
    assert image[flags] == CHIPS[ARCH].mach
    return image[:flags] + bytes([CHIPS[EMULATED].mach]) + image[flags + 1 :]


def run(code: CodeObject, image: bytes, inputs: list[np.ndarray], like: np.ndarray) -> np.ndarray:
    """What a kernel leaves in its first buffer."""
    buffers = [device.alloc(like.nbytes), *(device.alloc(array.nbytes) for array in inputs)]
    for buffer, array in zip(buffers, [np.zeros_like(like), *inputs]):
        buffer.write(array.tobytes())
    program = device.load(for_emulated(image), code.entry)
    device.run(program, buffers, grid=code.grid, block=code.block)
    return np.frombuffer(buffers[0].read(), like.dtype)[: like.size].reshape(like.shape)


def differs(got: np.ndarray, want: np.ndarray) -> str:
    if np.allclose(got, want, rtol=1e-5, atol=1e-6):
        return ""
    return f"differs by up to {np.abs(got.astype(np.float64) - want.astype(np.float64)).max()}"


rows = rng.standard_normal((8, 40)).astype(np.float32)
halves = rng.random(1000).astype(np.float16)
places = rng.permuted(np.tile(np.arange(10)[:, None], 6), axis=0)[:4].astype(np.int64)
added = rng.standard_normal((4, 6)).astype(np.float32)
scattered = np.zeros((10, 6), np.float32)
np.add.at(scattered, (places, np.arange(6)), added)
exponents = np.exp(rows - rows.max(1, keepdims=True))

CASES = {
    "softmax": (softmax(), [rows], exponents / exponents.sum(1, keepdims=True)),
    "float16": (half_chain(), [halves], np.sqrt(halves * np.float16(2))),
    "scatter": (scatter(), [places, added], scattered),
}

found = {}
for name, (sink, inputs, want) in CASES.items():
    first = compile_kernel(sink, amd_target(ARCH))
    second = compile_kernel(sink, assemble_with(amd_target(ARCH), "comgr"))
    linked = comgr.link([second.image], ARCH, name)
    found[f"{name}, llvmlite"] = differs(run(first, first.image, inputs, want), want)
    found[f"{name}, comgr"] = differs(run(second, second.image, inputs, want), want)
    found[f"{name}, comgr, linked"] = differs(run(second, linked, inputs, want), want)
    found[f"{name}, another object"] = "" if first.image != second.image else "the two images are one"

values = rng.standard_normal(100).astype(np.float32)
out, given = device.alloc(values.nbytes), device.alloc(values.nbytes)
given.write(values.tobytes())
device.run(
    device.load(for_emulated(comgr.compile_hip(HIP, ARCH, "twice")), "twice"),
    [out, given, 100],
    grid=(2, 1, 1),
    block=(64, 1, 1),
)
found["HIP C"] = differs(np.frombuffer(out.read(), np.float32), 2 * values)
print(json.dumps(found))
