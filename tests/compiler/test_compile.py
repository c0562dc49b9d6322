"""Compiled kernels compute what the interpreter computes, whatever the schedule."""

from __future__ import annotations

import itertools
import os
import platform
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hcq.compiler.code_object import CodeObject
from hcq.compiler.compile import compile_kernel, forget
from hcq.compiler.kernel import kernel_flops, kernel_key, kernel_name, kernel_traffic
from hcq.compiler.target import NARROW_CASTS, cpu_target, limited
from hcq.ir.dtype import ALL, FLOATS, INTEGERS, DType, dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op
from hcq.tools.disassembly.host import disassemble
from tests.campaigns._guard_pages import guarded
from tests.compiler.building import (
    buckets,
    check,
    conv,
    expand,
    flip,
    kernel,
    matmul,
    out,
    pad,
    param,
    permute,
    ranked,
    reduce,
    run,
    shrink,
    window,
)
from tests.interpreter.evaluate import evaluate_kernel

if TYPE_CHECKING:
    from hcq.device import Device

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86-64 processors")
COMPUTED = [d for d in ALL if not d.is_storage_only and not d.is_bool]


@pytest.mark.parametrize("size", [1, 2, 3, 15, 16, 17, 63, 64, 65, 1000])
def test_an_elementwise_chain_of_any_length_is_right(device: Device, size: int) -> None:
    x, y = param(1, (size,)), param(2, (size,))
    check(device, kernel((out(0, (size,)), x * y + 1.5)))


@pytest.mark.parametrize("dtype", COMPUTED, ids=lambda d: d.name)
def test_every_format_adds_and_multiplies(device: Device, dtype: DType) -> None:
    x, y = param(1, (77,), dtype), param(2, (77,), dtype)
    check(device, kernel((out(0, (77,), dtype), x * y + x)))


@pytest.mark.parametrize("source,to", list(itertools.product(ALL, ALL)), ids=lambda d: d.name)
def test_every_cast_is_right(device: Device, source: DType, to: DType) -> None:
    x = param(1, (37,), source)
    check(device, kernel((out(0, (37,), to), x.cast(to) if to is not source else x)))


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Op.FLOORDIV, Op.MOD, Op.SHL, Op.SHR, Op.MAX, Op.MIN, Op.XOR, Op.CMPLT])
def test_integer_operations_hold_on_edge_values(device: Device, dtype: DType, op: Op) -> None:
    edges = sorted(
        {0, 1, 2, 3, 7, 8, 31, 63, 64, int(dtype.max), int(dtype.max) - 1, int(dtype.min), int(dtype.min) + 1}
    )
    if not dtype.is_unsigned:
        edges += [-1, -2, -7]
    pairs = np.array([(a, b) for a in edges for b in edges], dtype=dtype.name)
    n = len(pairs)
    x, y = param(1, (n,), dtype), param(2, (n,), dtype)
    result = dtypes.bool if op is Op.CMPLT else dtype
    sink = kernel((out(0, (n,), result), Node(op, result, (x, y))))
    want = np.zeros(n, result.name)
    a, b = pairs[:, 0].copy(), pairs[:, 1].copy()
    evaluate_kernel(sink, [want, a, b])
    got, _ = run(device, sink, [np.zeros(n, result.name), a, b])
    np.testing.assert_array_equal(got[0], want)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("by", [-1, 0, 1, 2, 3, 7, 8, 31, 64])
def test_division_and_shifts_by_a_number_hold_on_edge_values(device: Device, dtype: DType, by: int) -> None:
    if by < 0 and dtype.is_unsigned:
        pytest.skip("unsigned")
    n = 37
    x = param(1, (n,), dtype)
    for op in (Op.FLOORDIV, Op.MOD, Op.SHL, Op.SHR):
        sink = kernel((out(0, (n,), dtype), Node(op, dtype, (x, const(by, dtype)))))
        want = np.zeros(n, dtype.name)
        edges = np.resize(np.array([0, 1, 5, 7, 8, dtype.max, dtype.min], dtype.name), n)
        evaluate_kernel(sink, [want, edges])
        got, _ = run(device, sink, [np.zeros(n, dtype.name), edges])
        np.testing.assert_array_equal(got[0], want, err_msg=op.name)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_max_and_min_hand_nan_on(device: Device, dtype: DType) -> None:
    if dtype.is_storage_only:
        pytest.skip("8-bit floats are not computed with")
    x, y = param(1, (20,), dtype), param(2, (20,), dtype)
    a = np.arange(20).astype(np.float32)
    b = a[::-1].copy()
    a[3] = b[4] = a[7] = b[7] = np.nan
    from tests.interpreter.arrays import numpy_dtype

    for op in (Op.MAX, Op.MIN):
        sink = kernel((out(0, (20,), dtype), Node(op, dtype, (x, y))))
        arrays = [v.astype(numpy_dtype(dtype)) for v in (a * 0, a, b)]
        got, _ = run(device, sink, arrays)
        with np.errstate(invalid="ignore"):
            want = np.maximum(a, b) if op is Op.MAX else np.minimum(a, b)
        np.testing.assert_array_equal(got[0].astype(np.float32), want)
        relu = kernel((out(0, (20,), dtype), Node(op, dtype, (x, const(4.0, dtype)))))
        got, _ = run(device, relu, arrays[:2])
        want = np.maximum(a, 4) if op is Op.MAX else np.minimum(a, 4)
        np.testing.assert_array_equal(got[0].astype(np.float32), want)


@pytest.mark.parametrize("how", [Op.ADD, Op.MAX, Op.MIN, Op.MUL])
@pytest.mark.parametrize("axes", [c for n in (1, 2, 3) for c in itertools.combinations(range(3), n)], ids=str)
def test_reductions_over_every_subset_of_axes(device: Device, how: Op, axes: tuple[int, ...]) -> None:
    shape = (5, 37, 21)
    x = param(1, shape) * (0.3 if how is Op.MUL else 1.0)
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    check(device, kernel((out(0, kept), reduce(x, axes, how))))


@pytest.mark.parametrize("dtype", COMPUTED, ids=lambda d: d.name)
def test_sums_of_every_format(device: Device, dtype: DType) -> None:
    x = param(1, (3, 100), dtype)
    y = x * const(0.125, dtype) if dtype.is_float else x
    check(device, kernel((out(0, (3, 1), dtype), reduce(y, (1,)))))


@pytest.mark.parametrize(
    "m,k,n", [(1, 64, 64), (33, 47, 70), (64, 64, 64), (15, 100, 10), (100, 3, 5), (128, 200, 48)]
)
def test_matrix_products(device: Device, m: int, k: int, n: int) -> None:
    check(device, kernel((out(0, (m, 1, n)), matmul(param(1, (m, k)), param(2, (k, n))))))


@pytest.mark.parametrize("a_turned,b_turned", [(False, True), (True, False), (True, True)])
def test_products_of_transposed_matrices(device: Device, a_turned: bool, b_turned: bool) -> None:
    a = permute(param(1, (60, 70)), 1, 0) if a_turned else param(1, (70, 60))
    b = permute(param(2, (50, 60)), 1, 0) if b_turned else param(2, (60, 50))
    check(device, kernel((out(0, (70, 1, 50)), matmul(a, b))))


@pytest.mark.parametrize("padding,stride", [(0, 1), (1, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("channels,filters", [(1, 8), (3, 16), (16, 40)])
def test_convolutions(device: Device, padding: int, stride: int, channels: int, filters: int) -> None:
    value = conv(param(1, (2, channels, 14, 17)), param(2, (filters, channels, 3, 3)), padding, stride)
    check(device, kernel((out(0, value.shape), value)))


def test_padding_reads_exact_zeros_around_any_value(device: Device) -> None:
    x = param(1, (5, 7))
    grown = pad(Node(Op.EXP, x.dtype, (x,)), (1, 2), (3, 4))
    check(device, kernel((out(0, grown.shape), grown)))


def test_flipped_and_strided_views(device: Device) -> None:
    x = param(1, (40, 50))
    y = shrink(flip(x, 1), (1, 39, 2), (3, 50, 3))
    check(device, kernel((out(0, y.shape), y + 1.0)))
    check(device, kernel((out(0, (40, 50)), flip(x, 0, 1))))


@pytest.mark.parametrize("shape", [(16, 16), (64, 48), (33, 70), (3, 200), (200, 3)])
def test_transposes(device: Device, shape: tuple[int, int]) -> None:
    check(device, kernel((out(0, shape[::-1]), permute(param(1, shape), 1, 0))))


@pytest.mark.parametrize("pads", [((0, 0), (1, 1)), ((2, 1), (1, 3))], ids=str)
@pytest.mark.parametrize("shape", [(2, 4), (8, 6), (16, 7), (17, 15), (33, 30), (40, 100)], ids=str)
def test_a_square_that_is_turned_reads_each_row_under_its_own_conditions(
    device: Device, shape: tuple[int, int], pads: tuple[tuple[int, int], ...]
) -> None:
    """Padding that is transposed: what holds for one element of a square holds not for its neighbours."""
    for dtype in (dtypes.float32, dtypes.uint8, dtypes.bool, dtypes.float64):
        grown = permute(pad(param(1, shape, dtype), *pads), 1, 0)
        check(device, kernel((out(0, grown.shape, dtype), grown)))


def test_squares_are_turned_where_only_the_values_have_conditions(device: Device) -> None:
    """The padding of an operand that is read at places of its own, in two orders and backwards."""
    x = pad(param(1, (30, 20)), (3, 2), (0, 0))
    y = flip(permute(pad(param(2, (18, 33)), (1, 1), (2, 0)), 1, 0), 1)
    check(device, kernel((out(0, (35, 20)), x + y)))


def looked_up(table: Node, places: Node) -> Node:
    """Rows of a table; outside of it are zeros."""
    return Node(Op.GATHER, table.dtype, (table, expand(places, places.shape[0], table.shape[1])), 0)


def moving_kernels() -> dict[str, Node]:
    """Kernels that read by vectors what does not lie in the order of the result, or is not there."""
    x = param(1, (33, 30))
    places = param(3, (40, 1), dtypes.int32)
    rows, columns = looked_up(param(1, (9, 47), dtypes.uint8), places), param(2, (47, 35), dtypes.uint8)
    values = {
        "backwards": flip(x, 0, 1),
        "every third": shrink(flip(x, 1), (1, 33, 2), (2, 30, 3)),
        "padded": pad(x, (3, 2), (1, 5)),
        "padded and transposed": permute(pad(x, (3, 2), (1, 5)), 1, 0),
        "padded, transposed, backwards": flip(permute(pad(x, (0, 0), (1, 1)), 1, 0), 0, 1),
        "few, padded and transposed": permute(pad(param(1, (8, 14)), (0, 0), (1, 1)), 1, 0),
        "windows": window(pad(x, (0, 0), (2, 2)), 1, 5, 3),
        "largest of windows": reduce(window(pad(x, (0, 0), (2, 2)), 1, 5, 2), (2,), Op.MAX),
        "sums of padded columns": reduce(permute(pad(x, (1, 1), (4, 4)), 1, 0), (1,)),
        "a convolution": conv(param(1, (2, 3, 14, 17)), param(2, (16, 3, 3, 3))),
        "a convolution with steps": conv(param(1, (1, 16, 13, 9)), param(2, (40, 16, 3, 3)), 2, 2),
        "a product of transposes": matmul(
            permute(param(1, (60, 70)), 1, 0), permute(param(2, (50, 60)), 1, 0)
        ),
        "a product of padded transposes": matmul(
            permute(pad(x, (1, 0), (2, 2)), 1, 0), pad(param(2, (33, 50)), (1, 0), (0, 0))
        ),
        "a product with rows looked up": matmul(rows, columns),
        "a product with columns looked up": matmul(permute(columns, 1, 0), permute(rows, 1, 0)),
    }
    return {name: kernel((out(0, value.shape, value.dtype), value)) for name, value in values.items()}


@pytest.mark.parametrize("name", moving_kernels())
def test_kernels_touch_no_memory_around_their_buffers(device: Device, name: str) -> None:
    """Every buffer ends, then begins, at a page that ends the process when it is touched."""
    with guarded(device) as pool:
        for pool.at_end in (True, False):
            check(device, moving_kernels()[name])


def test_windows_overlap(device: Device) -> None:
    x = window(param(1, (6, 30)), 1, 5, 2)
    check(device, kernel((out(0, x.shape), x * 2.0)))


def test_a_store_into_a_view_leaves_the_rest(device: Device) -> None:
    target = shrink(out(0, (10, 20)), (2, 8, 2), (5, 15, 1))
    check(device, kernel((target, param(1, (3, 10)) + 1.0)))


def test_in_place_updates_read_before_they_write(device: Device) -> None:
    p = out(0, (1000,))
    check(device, kernel((p, p * 0.9 + param(1, (1000,)))))


def test_two_stores_share_one_pass(device: Device) -> None:
    m, g = out(0, (333,)), param(2, (333,))
    moved = m * 0.9 + g
    check(device, kernel((m, moved), (out(1, (333,)), moved * moved)))


def test_sibling_reductions_share_one_pass(device: Device) -> None:
    x = param(2, (9, 100))
    sink = kernel((out(0, (9, 1)), reduce(x, (1,))), (out(1, (9, 1)), reduce(x * x, (1,))))
    check(device, sink)


@pytest.mark.parametrize("rows,columns", [(37, 100), (5, 13), (300, 257), (1, 5000)])
def test_whole_rows_fuse_into_one_kernel(device: Device, rows: int, columns: int) -> None:
    """A softmax: two reductions, the second reading the first, and a store along the row."""
    x = param(1, (rows, columns))
    best = expand(reduce(x, (1,), Op.MAX), rows, columns)
    weights = Node(Op.EXP, x.dtype, (x + Node(Op.NEG, x.dtype, (best,)),))
    total = expand(reduce(weights, (1,)), rows, columns)
    check(device, kernel((out(0, (rows, columns)), Node(Op.DIV, x.dtype, (weights, total)))))


def test_what_is_constant_along_a_reduced_axis_counts_every_time(device: Device) -> None:
    x, y = param(2, (9, 100)), param(3, (9, 1))
    sink = kernel((out(0, (9, 1)), reduce(x, (1,))), (out(1, (9, 1)), reduce(expand(y, 9, 100), (1,))))
    check(device, sink)
    check(device, sink, "split r1 32; split r1.1 16; vectorize r1.2; unroll r1.1")


def test_a_reduction_with_prologue_and_epilogue(device: Device) -> None:
    x, y = param(1, (12, 65)), param(2, (12, 1))
    spread = expand(y, 12, 65)
    check(device, kernel((out(0, (12, 1)), reduce(Node(Op.EXP, x.dtype, (x + spread,)), (1,)) * y + 2.0)))


@pytest.mark.parametrize("index", [dtypes.int32, dtypes.int64, dtypes.uint8])
def test_gather_reads_zero_outside(device: Device, index: DType) -> None:
    x, i = param(1, (50, 30)), param(2, (70, 30), index)
    check(device, kernel((out(0, (70, 30)), Node(Op.GATHER, x.dtype, (x, i), 0))))


def test_scatter_add_meets_in_one_element_without_loss(device: Device) -> None:
    base, i, x = out(0, (20, 8)), param(1, (300, 8), dtypes.int32), param(2, (300, 8))
    check(device, kernel((base, Node(Op.SCATTER_ADD, base.dtype, (base, i, x), 0))))
    base = out(0, (8, 20))
    i, x = param(1, (8, 300), dtypes.int64), param(2, (8, 300))
    check(device, kernel((base, Node(Op.SCATTER_ADD, base.dtype, (base, i, x), 1))))


def test_of_scatters_to_one_element_the_last_stays(device: Device) -> None:
    base, i, x = out(0, (20, 8)), param(1, (300, 8), dtypes.int32), param(2, (300, 8))
    check(device, kernel((base, Node(Op.SCATTER, base.dtype, (base, i, x), 0))))
    base = out(0, (8, 20))
    i, x = param(1, (8, 300), dtypes.int64), param(2, (8, 300))
    check(device, kernel((base, Node(Op.SCATTER, base.dtype, (base, i, x), 1))))


@pytest.mark.parametrize("op", [Op.ADD, Op.MUL])
@pytest.mark.parametrize("shape", [(1,), (3,), (16,), (1000,), (5, 70), (70, 5), (40, 130), (3, 20, 17)])
def test_a_scan_runs_along_any_axis(device: Device, shape: tuple[int, ...], op: Op) -> None:
    x = param(1, shape) * 0.01 + (1.0 if op is Op.MUL else 0.0)
    for axis in range(len(shape)):
        check(device, kernel((out(0, shape), Node(Op.SCAN_AXIS, x.dtype, (x,), (op, axis)))))
        start = param(2, (*shape[:axis], 1, *shape[axis + 1 :]))
        check(device, kernel((out(0, shape), Node(Op.SCAN_AXIS, x.dtype, (x, start), (op, axis)))))


def test_elements_go_where_their_counters_say_and_count_them_up(device: Device) -> None:
    x, before, counts, expected = buckets(16, 50)
    node = Node(
        Op.BUCKET, dtypes.int64, (param(2, x.shape, dtypes.int64), out(1, before.shape, dtypes.int32)), (5, 4)
    )
    arrays = [np.zeros((2, 150), np.int64), before.copy(), x]
    (placed, counted, _), _ = run(device, kernel((out(0, (2, 150), dtypes.int64), node)), arrays)
    assert np.array_equal(expected, placed)
    assert np.array_equal(before + counts, counted)


def test_elements_go_as_far_behind_their_counter_as_there_are_of_their_kind_before_them(
    device: Device,
) -> None:
    sink, arrays, expected = ranked()
    (placed, _, _), _ = run(device, sink, arrays)
    assert np.array_equal(expected, placed)


def test_counting_and_selecting(device: Device) -> None:
    count = Node(Op.IOTA, dtypes.int32, (), 100)
    x = param(1, (100,))
    chosen = Node(Op.CMPLT, dtypes.bool, (count, const(37, dtypes.int32))).where(x, const(-1.0, x.dtype))
    check(device, kernel((out(0, (100,)), chosen)))
    check(
        device, kernel((out(0, (100,), dtypes.bool), Node(Op.CMPLT, dtypes.bool, (x, const(0.0, x.dtype)))))
    )


@pytest.mark.parametrize("op", [Op.EXP, Op.EXP2, Op.SIN, Op.COS, Op.SQRT, Op.TRUNC, Op.NEG])
@pytest.mark.parametrize("dtype", [d for d in FLOATS if not d.is_storage_only], ids=lambda d: d.name)
def test_functions_of_one_value(device: Device, op: Op, dtype: DType) -> None:
    x = param(1, (100,), dtype)
    if op is Op.SQRT:
        x = x * x
    check(device, kernel((out(0, (100,), dtype), Node(op, dtype, (x,)))))


def test_a_long_chain_does_not_exhaust_the_stack(device: Device) -> None:
    x = value = param(1, (8,))
    for _ in range(1500):
        value = value * 0.5 + x
    check(device, kernel((out(0, (8,)), value)))


def test_many_groups_cover_everything_once(device: Device) -> None:
    x = param(1, (1000, 1003))
    code = check(device, kernel((out(0, (1000, 1003)), x * 2.0)))
    assert code.grid[0] > 1
    code = check(device, kernel((out(0, (1000, 1)), reduce(x, (1,)))))
    assert code.grid[0] > 1
    code = check(device, kernel((out(0, (1, 1003)), reduce(x, (0,)))))
    assert code.grid[0] > 1


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.int8], ids=lambda d: d.name)
def test_packed_operands_are_widened_once(device: Device, dtype: DType) -> None:
    wide = dtypes.int32 if dtype.is_integer else dtypes.float32
    a, b = param(1, (100, 64), dtype).cast(wide), param(2, (64, 96), dtype).cast(wide)
    code = check(device, kernel((out(0, (100, 1, 96), wide), matmul(a, b))))
    assert "stage" in code.choice


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_narrower_vectors_compute_the_same(device: Device, bits: int) -> None:
    target = replace(
        cpu_target(), vector_bits=bits, vector_registers=32 if bits == 512 else 16, key=f"test-{bits}"
    )
    check(
        device, kernel((out(0, (33, 1, 70)), matmul(param(1, (33, 47)), param(2, (47, 70))))), target=target
    )
    value = conv(param(1, (2, 3, 14, 17)), param(2, (16, 3, 3, 3)), 1)
    check(device, kernel((out(0, value.shape), value)), target=target)
    x = param(1, (50, 99))
    check(device, kernel((out(0, (50, 1)), reduce(Node(Op.EXP, x.dtype, (x,)), (1,)))), target=target)


@needs_x86
@pytest.mark.parametrize("cpu,bits", [("x86-64-v2", 128), ("x86-64-v3", 256)])
def test_older_processors_are_served_without_a_library(device: Device, cpu: str, bits: int) -> None:
    casts = NARROW_CASTS if cpu == "x86-64-v3" else NARROW_CASTS - {dtypes.float16}
    target = replace(
        cpu_target(), vector_bits=bits, vector_registers=16, cpu=cpu, key=f"test-{cpu}", casts=casts
    )
    check(
        device, kernel((out(0, (33, 1, 70)), matmul(param(1, (33, 47)), param(2, (47, 70))))), target=target
    )
    for dtype in COMPUTED:
        x, y = param(1, (77,), dtype), param(2, (77,), dtype)
        check(device, kernel((out(0, (77,), dtype), x * y + x)), target=target)
        check(device, kernel((out(0, (77,), dtypes.float32), x.cast(dtypes.float32))), target=target)
        check(device, kernel((out(0, (77,), dtype), param(1, (77,)).cast(dtype))), target=target)
    x = param(1, (9, 20))
    check(
        device, kernel((out(0, (10, 22)), pad(Node(Op.TRUNC, x.dtype, (x,)), (1, 0), (2, 0)))), target=target
    )


@needs_x86
def test_a_limited_processor_uses_nothing_above_its_level(device: Device) -> None:
    above = {"avx512f", "avx512vl", "avx512bw", "avx512_vnni"}
    whole = replace(cpu_target(), flags=cpu_target().flags | above, vector_bits=512, vector_registers=32)
    target = limited(whole, "x86-64-v3")
    assert (target.vector_bits, target.vector_registers) == (256, 16)
    assert not any(flag.startswith("avx512") for flag in target.flags)
    assert target.key != whole.key
    assert limited(whole, "") is whole
    assert limited(target, "x86-64-v3") is target  # there is nothing to leave out
    sink = kernel((out(0, (33, 1, 70)), matmul(param(1, (33, 47)), param(2, (47, 70)))))
    check(device, sink, target=target)
    made = compile_kernel(sink, target)
    code = "\n".join(line.text for line in disassemble(made.image, made.arch, made.entry, "product"))
    assert "ymm" in code and "zmm" not in code


def test_two_processes_make_the_same_object() -> None:
    program = (
        "from tests.compiler.building import *; import hashlib;"
        "v = conv(param(1, (4, 8, 14, 14)), param(2, (16, 8, 3, 3)));"
        "m = matmul(param(1, (70, 64)), permute(param(2, (96, 64)), 1, 0));"
        "ks = [kernel((out(0, v.shape), v)), kernel((out(0, m.shape), m))];"
        "print([hashlib.sha256(compile_kernel(k, cpu_target()).to_bytes()).hexdigest() for k in ks])"
    )
    answers = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        answers.add(done.stdout)
    assert len(answers) == 1


class Kept(dict[tuple[str, str], bytes]):
    """An object cache in memory."""

    def get(self, kind: str, key: str) -> bytes | None:  # type: ignore[override]
        return super().get((kind, key))

    def put(self, kind: str, key: str, data: bytes) -> None:
        self[kind, key] = data


def test_a_stored_object_is_found_again_and_a_spoiled_one_is_made_anew() -> None:
    sink = kernel((out(0, (123,)), param(1, (123,)) * 3.0))
    kept = Kept()
    made = compile_kernel(sink, cpu_target(), kept)
    assert len(kept) == 1
    forget()
    assert compile_kernel(sink, cpu_target(), kept) == made
    forget()
    for key in kept:
        kept[key] = b"{}\nnonsense"
    assert compile_kernel(sink, cpu_target(), kept) == made
    assert CodeObject.from_bytes(next(iter(kept.values()))) == made


def test_equal_structures_have_one_key_and_different_ones_do_not() -> None:
    def scaled(by: float) -> Node:
        return kernel((out(0, (10,)), param(1, (10,)) * by))

    assert kernel_key(scaled(2.0)) == kernel_key(scaled(2.0))
    keys = {kernel_key(scaled(by)) for by in (0.0, -0.0, 2.0, float("inf"), float("nan"))}
    assert len(keys) == 5


def test_names_and_counts_say_what_a_kernel_does() -> None:
    product = kernel((out(0, (33, 1, 70)), matmul(param(1, (33, 47)), param(2, (47, 70)))))
    assert kernel_name(product) == "dot_33x70_from_47"
    assert kernel_flops(product) == 2 * 33 * 47 * 70
    assert kernel_traffic(product) == 4 * (33 * 47 + 47 * 70 + 33 * 70)
    p = out(0, (100,))
    assert kernel_traffic(kernel((p, p + param(1, (100,))))) == 4 * 300


def test_the_stages_can_be_seen() -> None:
    seen: dict[str, str] = {}
    compile_kernel(kernel((out(0, (50,)), param(1, (50,)) + 1.0)), cpu_target(), show=seen.__setitem__)
    assert "define void @add_50" in seen["code"]
    assert seen["code"].startswith("schedule: ")
    assert seen["ir"]
