"""Building kernels for tests: short words for graphs, and running a compiled one beside the interpreter."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hcq import Device, config
from hcq.compiler.code_object import CodeObject
from hcq.compiler.compile import compile_kernel
from hcq.compiler.target import Target, cpu_target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, Param, toposort
from hcq.ir.op import Op
from hcq.lifetime import open_devices
from tests.interpreter.arrays import from_raw, numpy_dtype, to_raw
from tests.interpreter.evaluate import evaluate_kernel


@contextmanager
def emulating(*words: str) -> Iterator[None]:
    """The process's GPUs are these, until the end; those opened meanwhile are closed: names are free for others."""
    before, known = config.current(), open_devices.devices()
    config.use(dataclasses.replace(before, emulate=words))
    try:
        yield
    finally:
        for device in open_devices.devices():
            if device not in known and device.name not in ("CPU", Device.default):  # which are the session's
                device.close()
        config.use(before)


def param(number: int, shape: tuple[int, ...], dtype: DType = dtypes.float32, writable: bool = False) -> Node:
    return Node(Op.PARAM, dtype, (), Param(number, shape, writable))


def out(number: int, shape: tuple[int, ...], dtype: DType = dtypes.float32) -> Node:
    return param(number, shape, dtype, writable=True)


def reshape(x: Node, *shape: int) -> Node:
    return Node(Op.RESHAPE, x.dtype, (x,), shape)


def expand(x: Node, *shape: int) -> Node:
    return Node(Op.EXPAND, x.dtype, (x,), shape)


def permute(x: Node, *order: int) -> Node:
    return Node(Op.PERMUTE, x.dtype, (x,), order)


def pad(x: Node, *amounts: tuple[int, int]) -> Node:
    return Node(Op.PAD, x.dtype, (x,), amounts)


def shrink(x: Node, *limits: tuple[int, int, int]) -> Node:
    return Node(Op.SHRINK, x.dtype, (x,), limits)


def flip(x: Node, *axes: int) -> Node:
    return Node(Op.FLIP, x.dtype, (x,), axes)


def window(x: Node, axis: int, size: int, step: int = 1, dilation: int = 1) -> Node:
    return Node(Op.WINDOW, x.dtype, (x,), (axis, size, step, dilation))


def reduce(x: Node, axes: tuple[int, ...], how: Op = Op.ADD) -> Node:
    return Node(Op.REDUCE_AXIS, x.dtype, (x,), (how, axes))


def kernel(*stores: tuple[Node, Node]) -> Node:
    return Node(
        Op.SINK,
        dtypes.index,
        tuple(Node(Op.STORE, target.dtype, (target, value)) for target, value in stores),
    )


def matmul(a: Node, b: Node) -> Node:
    """(m, k) @ (k, n) -> (m, 1, n)"""
    m, k = a.shape
    n = b.shape[1]
    product = expand(reshape(a, m, k, 1), m, k, n) * expand(reshape(b, 1, k, n), m, k, n)
    return reduce(product, (1,))


def conv(x: Node, w: Node, padding: int = 1, stride: int = 1) -> Node:
    """(n, c, h, w), (o, c, p, q) -> (n, oh, ow, o, 1, 1, 1): the sum over c, p, q"""
    n, c = x.shape[:2]
    o, _, p, q = w.shape
    x = pad(x, (0, 0), (0, 0), (padding, padding), (padding, padding))
    x = window(window(x, 2, p, stride), 3, q, stride)  # n, c, oh, ow, p, q
    oh, ow = x.shape[2], x.shape[3]
    x = permute(x, 0, 2, 3, 1, 4, 5)
    x = expand(reshape(x, n, oh, ow, 1, c, p, q), n, oh, ow, o, c, p, q)
    w = expand(reshape(w, 1, 1, 1, o, c, p, q), n, oh, ow, o, c, p, q)
    return reduce(x * w, (4, 5, 6))


def values(shape: tuple[int, ...], dtype: DType, seed: int) -> Any:
    """Reproducible test values of a dtype, as the interpreter holds them."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_float:
        raw = rng.standard_normal(shape).astype(np.float32)
        return from_raw(to_raw(raw.astype(numpy_dtype(dtype)), dtype), dtype)
    low = -50 if not dtype.is_unsigned else 0
    return rng.integers(low, 50, shape).astype(numpy_dtype(dtype))


def buckets(kinds: int, size: int) -> tuple[Any, Any, Any, Any]:
    """(2, 3, size) numbers, where the first of each kind in each piece goes, how many there are, and the rows in order.

    The kind is what some bits from the fifth on say.
    """
    x = np.random.default_rng(4).integers(-(1 << 40), 1 << 40, (2, 3, size))
    kind = x >> 5 & (kinds - 1)
    counts = np.stack([[np.bincount(piece, minlength=kinds) for piece in row] for row in kind])
    listed = counts.transpose(0, 2, 1).reshape(2, -1)
    before = (listed.cumsum(1) - listed).reshape(2, kinds, 3).transpose(0, 2, 1)
    order = np.argsort(kind.reshape(2, -1), 1, kind="stable")
    expected = np.take_along_axis(x.reshape(2, -1), order, 1)
    return x, np.ascontiguousarray(before, np.int32), counts, expected


def ranked(bits: int = 4, size: int = 50) -> tuple[Node, list[Any], Any]:
    """A kernel of a BUCKET that only reads its counters, its arrays, and what it writes to the first of them."""
    x, before, _, expected = buckets(1 << bits, size)
    src = param(1, x.shape, dtypes.int64), param(2, before.shape, dtypes.int32)
    sink = kernel((out(0, expected.shape, dtypes.int64), Node(Op.BUCKET, dtypes.int64, src, (5, bits, True))))
    return sink, [np.zeros_like(expected), x, before], expected


def parameters(sink: Node) -> list[Node]:
    found = {n.arg.index: n for n in toposort((sink,)) if n.op is Op.PARAM}
    return [found[i] for i in sorted(found)]


def run(
    device: Any, sink: Node, arrays: list[Any], schedule: str | None = None, target: Target | None = None
) -> tuple[list[Any], CodeObject]:
    """Compile, load and launch; gives every argument's array afterwards."""
    code = compile_kernel(sink, target or cpu_target(), schedule=schedule)
    program = device.load(code.image, code.entry, code.args, code.scratch_bytes)
    if any(code.tensor_maps):
        program.set_tensor_maps(code.tensor_maps)
    if code.dynamic_shared_bytes:
        program.dynamic_shared_bytes = code.dynamic_shared_bytes
    buffers = []
    nodes = parameters(sink)
    for array, node in zip(arrays, nodes, strict=True):
        raw = np.ascontiguousarray(to_raw(array, node.dtype))
        buffer = device.alloc(max(raw.nbytes, 1))
        buffer.write(raw.tobytes())
        buffers.append(buffer)
    device.run(program, buffers, grid=code.grid, block=code.block)
    results = []
    for array, node, buffer in zip(arrays, nodes, buffers, strict=True):
        raw = to_raw(array, node.dtype)
        read = np.frombuffer(bytes(buffer.read())[: raw.nbytes], raw.dtype).reshape(raw.shape).copy()
        results.append(from_raw(read, node.dtype))
    return results, code


def check(
    device: Any, sink: Node, schedule: str | None = None, seed: int = 0, target: Target | None = None
) -> CodeObject:
    """The compiled kernel agrees with the interpreter on reproducible values."""
    nodes = parameters(sink)
    arrays = [values(n.arg.shape, n.dtype, seed + i) for i, n in enumerate(nodes)]
    expected = [a.copy() for a in arrays]
    evaluate_kernel(sink, expected)
    actual, code = run(device, sink, arrays, schedule, target)
    for node, want, got in zip(nodes, expected, actual, strict=True):
        if node.dtype.is_float:
            tolerance = {1: 0.13, 2: 0.01, 4: 2e-5, 8: 1e-12}[node.dtype.itemsize]
            np.testing.assert_allclose(
                got.astype(np.float64),
                want.astype(np.float64),
                rtol=tolerance,
                atol=tolerance * 10,
                err_msg=code.choice,
            )
        else:
            np.testing.assert_array_equal(got, want, err_msg=code.choice)
    return code
