"""Kernels for GPUs: LLVM takes them for every architecture, and the threads of a block share what is reduced."""

from __future__ import annotations

import pytest

from hcq.compiler.compile import compile_kernel
from hcq.compiler.target import AMD_ARCHS, NV_ARCHS, amd_target, nv_target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, const
from hcq.ir.op import Op

F32 = dtypes.float32


def node(op: Op, *src: Node, arg=None, dtype=F32) -> Node:
    return Node(op, dtype, src, arg)


def param(index: int, *shape: int, writable: bool = False, dtype=F32) -> Node:
    return Node(Op.PARAM, dtype, (), Param(index, shape, writable))


def store(target: Node, value: Node) -> Node:
    return node(Op.SINK, node(Op.STORE, target, value, dtype=target.dtype))


def softmax() -> Node:
    x = param(1, 8, 40)
    top = node(Op.EXPAND, node(Op.REDUCE_AXIS, x, arg=(Op.MAX, (1,))), arg=(8, 40))
    e = node(Op.EXP, node(Op.ADD, x, node(Op.NEG, top)))
    total = node(Op.EXPAND, node(Op.REDUCE_AXIS, e, arg=(Op.ADD, (1,))), arg=(8, 40))
    return store(param(0, 8, 40, writable=True), node(Op.DIV, e, total))


def whole_sum() -> Node:
    return store(param(0, 1, writable=True), node(Op.REDUCE_AXIS, param(1, 500), arg=(Op.ADD, (0,))))


def half_chain() -> Node:
    x = param(1, 1000, dtype=dtypes.float16)
    value = node(
        Op.SQRT, node(Op.MUL, x, const(2.0, dtypes.float16), dtype=dtypes.float16), dtype=dtypes.float16
    )
    return store(param(0, 1000, writable=True, dtype=dtypes.float16), value)


def scatter() -> Node:
    out = param(0, 10, 6, writable=True)
    index = param(1, 4, 6, dtype=dtypes.int64)
    return store(out, node(Op.SCATTER_ADD, out, index, param(2, 4, 6), arg=0))


def keys() -> Node:
    """Numbers above, their places below: LLVM 22 did not survive these shifts as vectors."""
    wide = dtypes.int64
    above = node(
        Op.ADD,
        node(Op.CAST, param(1, 20000, dtype=dtypes.int32), dtype=wide),
        const(1 << 31, wide),
        dtype=wide,
    )
    place = node(Op.IOTA, arg=20000, dtype=wide)
    packed = node(Op.OR, node(Op.SHL, above, const(32, wide), dtype=wide), place, dtype=wide)
    padded = node(Op.PAD, packed, arg=((0, 96),), dtype=wide)
    return store(param(0, 20096, writable=True, dtype=wide), padded)


KERNELS = [softmax, whole_sum, half_chain, scatter, keys]


@pytest.mark.parametrize("arch", AMD_ARCHS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_becomes_a_code_object_for_every_amd_architecture(arch, kernel):
    code = compile_kernel(kernel(), amd_target(arch))
    assert code.image[:4] == b"\x7fELF"
    assert int.from_bytes(code.image[18:20], "little") == 224  # EM_AMDGPU
    assert 1 <= code.block[0] <= 1024


@pytest.mark.parametrize("arch", NV_ARCHS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_becomes_ptx_for_every_nvidia_architecture(arch, kernel):
    code = compile_kernel(kernel(), nv_target(arch))
    text = code.image.decode()
    assert f".target {arch}" in text
    assert f".visible .entry {code.entry}(" in text
    assert ".extern" not in text  # nothing to link: no library functions


def test_threads_share_a_row_and_a_whole_sum():
    rows = compile_kernel(softmax(), amd_target("gfx1100"))
    # 8 rows of 40 elements: 16 threads with 4 each, two rows in a block
    assert (rows.grid, rows.block) == ((4, 1, 1), (32, 1, 1))
    whole = compile_kernel(whole_sum(), amd_target("gfx1100"))
    # 500 elements: one wave, which needs no barrier
    assert (whole.grid, whole.block) == ((1, 1, 1), (32, 1, 1))


def test_an_unknown_architecture_is_refused_by_name():
    with pytest.raises(ValueError, match=r"gfx7.*gfx1100"):
        amd_target("gfx7")
    with pytest.raises(ValueError, match=r"sm_35.*sm_90"):
        nv_target("sm_35")
