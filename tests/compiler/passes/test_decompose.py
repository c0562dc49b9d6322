"""A decomposed graph computes what the graph computed: narrow floats bit by bit, and the ops that a target lacks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.compiler.compile import compile_kernel
from hcq.compiler.passes.decompose import RULES
from hcq.compiler.passes.decompose import decompose as decompose_pass
from hcq.compiler.passes.narrow_floats import NARROW, bits_dtype, narrow, to_odd_float32, widen
from hcq.compiler.passes.promote_floats import promote_floats
from hcq.compiler.target import CPU_NATIVE, NARROW_CASTS, Target, cpu_target
from hcq.device import Device
from hcq.ir.dtype import DType, dtypes
from hcq.ir.meaning import apply
from hcq.ir.node import Node, Param, binary, const, toposort
from hcq.ir.op import ARITHMETIC, UNARY, Op
from tests.interpreter.arrays import array, from_raw, raw_dtype, to_raw
from tests.interpreter.evaluate import evaluate

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NaN is a value here

FORMATS = sorted(NARROW, key=lambda dtype: dtype.name)
BY_NAME = {"ids": lambda dtype: getattr(dtype, "name", str(dtype))}
NO_CASTS: frozenset[DType] = frozenset()


def decompose(graph: Node, native: frozenset[Op], casts: frozenset[DType] = NARROW_CASTS) -> Node:
    """The last two passes, for a target that has these ops and conversions."""
    target = Target("cpu", "x86_64", "decompose", 1, 128, 16, native=native, casts=casts)
    return decompose_pass.run(promote_floats.run(graph, target), target)


def leaf(dtype: DType, place: int = 0) -> Node:
    return Node(Op.PARAM, dtype, (), place)


def compute(node: Node, *arrays: np.ndarray) -> np.ndarray:
    return evaluate([node], lambda given: arrays[given.arg])[0]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, and equal in the sign of zero; a NaN is a NaN."""
    if a.dtype.kind != "f":
        return bool((a == b).all())
    nan = np.isnan(a)
    return bool((nan == np.isnan(b)).all() and ((a == b) & (np.signbit(a) == np.signbit(b)))[~nan].all())


def every_value(dtype: DType) -> np.ndarray:
    return from_raw(np.arange(1 << dtype.bits).astype(f"uint{dtype.bits}").view(raw_dtype(dtype)), dtype)


def wide_values(dtype: DType) -> np.ndarray:
    """float32 numbers where rounding to a format goes wrong: its values, what lies halfway, both neighbours."""
    own = np.sort(every_value(dtype).astype(np.float64))
    own = own[np.isfinite(own)]
    half = ((own[1:] + own[:-1]) / 2).astype(np.float32)
    beyond = np.array(
        [464.0, 480.0, 5e4, 57344, 61440, 61441, 65519, 65520, 1e30, np.inf, np.nan, 1e-45, 1e-9], np.float32
    )
    some = np.arange(0, 1 << 32, 100_003, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = [np.nextafter(half, np.float32(np.inf)), np.nextafter(half, np.float32(-np.inf))]
    return np.concatenate([own.astype(np.float32), half, *near, beyond, -beyond, some])


@pytest.mark.parametrize("dtype", FORMATS, **BY_NAME)
def test_every_bit_pattern_of_a_narrow_format_widens_to_its_value(dtype: DType):
    raw = np.arange(1 << dtype.bits).astype(f"uint{dtype.bits}")
    widened = compute(widen(leaf(bits_dtype(dtype)), dtype), raw)
    assert same(widened, every_value(dtype).astype(np.float32))


@pytest.mark.parametrize("dtype", FORMATS, **BY_NAME)
def test_float32_rounds_to_the_nearest_narrow_number(dtype: DType):
    x = wide_values(dtype)
    bits = compute(narrow(leaf(dtypes.float32), dtype), x)
    rounded = array(x, dtype)
    assert same(from_raw(bits.view(raw_dtype(dtype)), dtype), rounded)
    number = ~np.isnan(rounded)
    assert (bits == to_raw(rounded, dtype).view(bits.dtype))[number].all()


@pytest.mark.parametrize("dtype", FORMATS, **BY_NAME)
def test_float64_is_rounded_only_once_on_its_way_to_a_narrow_format(dtype: DType):
    near = wide_values(dtype).astype(np.float64)
    x = np.concatenate(
        [near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf), [1e300, -1e300, 5e-324, -5e-324]]
    )
    assert same(array(compute(to_odd_float32(leaf(dtypes.float64)), x), dtype), array(x, dtype))


@pytest.mark.torch
@pytest.mark.parametrize("dtype", FORMATS, **BY_NAME)
def test_pytorch_agrees_about_every_pattern_and_every_rounding(dtype: DType):
    torch = pytest.importorskip("torch")
    kind = {"fp8e4m3": torch.float8_e4m3fn, "fp8e5m2": torch.float8_e5m2}.get(dtype.name) or getattr(
        torch, dtype.name
    )
    bits = np.arange(1 << dtype.bits).astype(f"uint{dtype.bits}")
    theirs = torch.from_numpy(bits.view(f"int{dtype.bits}")).view(kind).to(torch.float32).numpy()
    assert same(theirs, every_value(dtype).astype(np.float32))
    x = wide_values(dtype)
    x = x[np.abs(x) < (448 if dtype is dtypes.fp8e4m3 else np.inf)]  # some releases saturate beyond
    assert same(torch.from_numpy(x).to(kind).to(torch.float32).numpy(), array(x, dtype).astype(np.float32))


# -- graphs of narrow values -------------------------------------------------------------------------------------------


def graphs(dtype: DType) -> dict[str, Node]:
    """Graphs over two leaves of a narrow format."""
    a, b = leaf(dtype, 0), leaf(dtype, 1)
    wide = dtypes.float32
    return {
        "sum": binary(Op.ADD, a, b),
        "product and sum": binary(Op.ADD, binary(Op.MUL, a, b), a),
        "quotient": binary(Op.DIV, a, b),
        "root of maximum": Node(Op.SQRT, dtype, (binary(Op.MAX, a, b),)),
        "exact chain": binary(Op.MIN, Node(Op.NEG, dtype, (Node(Op.TRUNC, dtype, (a,)),)), b),
        "select": (a < b).where(binary(Op.ADD, a, const(0.1, dtype)), b),
        "compare": binary(Op.CMPLE, a, b),
        "to integer": a.cast(dtypes.int8),
        "from integer": binary(Op.MUL, a.cast(dtypes.int8).cast(dtype), b),
        "to float64": binary(Op.MUL, a.cast(dtypes.float64), b.cast(dtypes.float64)).cast(dtype),
        "bits": Node(Op.BITCAST, dtype, (binary(Op.XOR, Node(Op.BITCAST, dtypes.int16, (a,)), -(1 << 15)),)),
        "to bool": a.cast(dtypes.bool),
        "through float32": binary(Op.ADD, a.cast(wide), b.cast(wide)).cast(dtype),
    }


@pytest.mark.parametrize("casts", [NARROW, NO_CASTS], ids=["casts are instructions", "casts are composed"])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], **BY_NAME)
@pytest.mark.parametrize("name", graphs(dtypes.float16))
def test_a_narrow_graph_computes_the_same_to_the_bit(name: str, dtype: DType, casts: frozenset[DType]):
    graph = graphs(dtype)[name]
    random = np.random.default_rng(5)
    a, b = (every_value(dtype)[random.integers(0, 1 << 16, 20_000)] for _ in range(2))
    decomposed = decompose(graph, CPU_NATIVE, casts)
    assert same(compute(decomposed, a, b), compute(graph, a, b))
    arithmetic = [node for node in toposort([decomposed]) if node.op in ARITHMETIC - {Op.CAST, Op.BITCAST}]
    assert not [
        node for node in arithmetic if node.dtype in NARROW or any(s.dtype in NARROW for s in node.src)
    ]


def test_exact_ops_on_narrow_values_need_one_rounding_in_all():
    a = leaf(dtypes.bfloat16)
    chain = Node(Op.NEG, a.dtype, (binary(Op.MAX, binary(Op.MIN, a, 1.0), -1.0),))
    casts = [node for node in toposort([decompose(chain, CPU_NATIVE)]) if node.op is Op.CAST]
    assert [node.dtype for node in casts] == [dtypes.float32, dtypes.bfloat16]


@pytest.mark.parametrize("source", FORMATS, **BY_NAME)
@pytest.mark.parametrize("dtype", FORMATS, **BY_NAME)
def test_narrow_formats_convert_into_each_other(source: DType, dtype: DType):
    graph = leaf(source).cast(dtype)
    x = every_value(source)
    assert same(compute(decompose(graph, CPU_NATIVE), x), compute(graph, x))


@pytest.mark.parametrize("dtype", [dtypes.fp8e4m3, dtypes.fp8e5m2], **BY_NAME)
def test_eight_bit_floats_are_nothing_but_bits_after_it(dtype: DType):
    a, b = leaf(dtype, 0), leaf(dtype, 1)
    product = binary(Op.MUL, a.cast(dtypes.float32), b.cast(dtypes.float32)).cast(dtype)
    graph = (a.cast(dtypes.float32) < 1.0).where(product, const(0.3, dtype))
    decomposed = decompose(graph, CPU_NATIVE)
    left = {node.op for node in toposort([decomposed]) if node.dtype is dtype}
    assert left == {Op.PARAM, Op.BITCAST}
    x, y = (values.reshape(-1) for values in np.meshgrid(every_value(dtype), every_value(dtype)))
    assert same(compute(decomposed, x, y), compute(graph, x, y))


def test_arithmetic_on_eight_bit_floats_is_refused_with_the_way_out():
    a = leaf(dtypes.fp8e4m3)
    with pytest.raises(ValueError, match=r"\[add\] fp8e4m3 is for storage only: cast to float32"):
        decompose(binary(Op.ADD, a, a), CPU_NATIVE)


def test_sums_of_float16_are_kept_in_float32():
    size = Node(Op.RANGE, dtypes.index, (const(7, dtypes.index),), 0)
    load = Node(Op.LOAD, dtypes.float16, (Node(Op.PARAM, dtypes.float16, (), Param(0, (7,))), size))
    decomposed = decompose(Node(Op.REDUCE, dtypes.float16, (load, size), Op.ADD), CPU_NATIVE)
    assert decomposed.op is Op.CAST and decomposed.src[0].op is Op.REDUCE
    assert decomposed.src[0].dtype is dtypes.float32


# -- ops that a target lacks -------------------------------------------------------------------------------------------

NUMBERS = {
    dtypes.int32: [0, 1, -1, 2, -3, 7, -7, 2**31 - 1, -(2**31), 123456789],
    dtypes.uint8: [0, 1, 2, 3, 127, 254, 255],
    dtypes.uint32: [0, 1, 2, 3, 2**31, 2**32 - 1, 65537],
    dtypes.float32: [0.0, 1.0, -1.5, math.inf, -math.inf, math.nan],
}


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        *itertools.product((Op.FLOORDIV, Op.MOD), (dtypes.int32, dtypes.uint8, dtypes.uint32)),
        *itertools.product((Op.MAX, Op.MIN), NUMBERS),
    ],
    **BY_NAME,
)
def test_an_op_composed_of_others_computes_the_same(op: Op, dtype: DType):
    graph = binary(op, leaf(dtype, 0), leaf(dtype, 1))
    decomposed = decompose(graph, CPU_NATIVE - {Op.FLOORDIV, Op.MOD, Op.MAX, Op.MIN})
    assert not {node.op for node in toposort([decomposed])} & {Op.FLOORDIV, Op.MOD, Op.MAX, Op.MIN}
    rows = np.array(list(itertools.product(NUMBERS[dtype], repeat=2)))
    a, b = array(rows[:, 0], dtype), array(rows[:, 1], dtype)
    assert np.array_equal(compute(decomposed, a, b), compute(graph, a, b), equal_nan=dtype.is_float)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_division_by_way_of_float64_is_exact_for_any_int32(a: int, b: int):
    graph = binary(Op.FLOORDIV, leaf(dtypes.int32, 0), leaf(dtypes.int32, 1))
    decomposed = decompose(graph, CPU_NATIVE - {Op.FLOORDIV})
    (actual,) = compute(decomposed, array([a], dtypes.int32), array([b], dtypes.int32))
    assert actual == apply(Op.FLOORDIV, dtypes.int32, [a, b])


def test_division_of_64_bit_integers_is_refused_where_nothing_can_do_it():
    with pytest.raises(ValueError, match=r"no FLOORDIV and int64 does not fit float64"):
        decompose(binary(Op.FLOORDIV, leaf(dtypes.int64), 3), CPU_NATIVE - {Op.FLOORDIV})


def test_an_op_that_cannot_be_composed_is_named():
    with pytest.raises(ValueError, match=r"the target has no SQRT"):
        decompose(Node(Op.SQRT, dtypes.float32, (leaf(dtypes.float32),)), CPU_NATIVE - {Op.SQRT})


def test_index_arithmetic_is_left_alone():
    graph = binary(Op.MOD, binary(Op.FLOORDIV, leaf(dtypes.index), 3), 5)
    assert decompose(graph, CPU_NATIVE - {Op.FLOORDIV, Op.MOD}) is graph


def test_a_graph_with_nothing_to_decompose_is_the_same_node():
    graph = binary(Op.ADD, leaf(dtypes.float32), 1.0)
    assert decompose(graph, CPU_NATIVE) is graph


@pytest.mark.parametrize("op", [rule.ops[0] for rule in RULES], **BY_NAME)
def test_what_is_composed_uses_native_ops_only(op: Op):
    dtype = dtypes.int32 if op in (Op.FLOORDIV, Op.MOD) else dtypes.float32
    sources = (leaf(dtype, 0), leaf(dtype, 1))[: 1 if op in UNARY else 2]
    native = CPU_NATIVE - {op}
    used = {node.op for node in toposort([decompose(Node(op, dtype, sources), native)])}
    assert used <= native | {Op.PARAM, Op.CONST}


def test_two_decompositions_give_the_same_nodes_in_the_same_order():
    graph = binary(Op.ADD, Node(Op.SIN, dtypes.float16, (leaf(dtypes.float16),)), 1.0)
    first, second = decompose(graph, CPU_NATIVE), decompose(graph, CPU_NATIVE)
    assert first is second


# -- compiled ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FORMATS, **BY_NAME)
def test_compiled_a_narrow_kernel_computes_what_the_interpreter_computes(device: Device, dtype: DType):
    x = every_value(dtype)
    a = Node(Op.PARAM, dtype, (), Param(1, x.shape))
    exponential = Node(Op.EXP2, dtypes.float32, (a.cast(dtypes.float32) * 0.125,)).cast(dtype)
    graph = (a.cast(dtypes.float32) < 1.0).where(exponential, a)
    target = Node(Op.PARAM, dtype, (), Param(0, x.shape, writable=True))
    code = compile_kernel(Node(Op.SINK, dtype, (Node(Op.STORE, dtype, (target, graph)),)), cpu_target())
    size_bytes = x.size * dtype.itemsize
    out, given = device.alloc(size_bytes), device.alloc(size_bytes)
    given.write(to_raw(x, dtype).tobytes())
    device.run(device.load(code.image, code.entry), [out, given], grid=code.grid, block=code.block)
    actual = from_raw(np.frombuffer(out.read(), raw_dtype(dtype)), dtype)
    expected = evaluate([graph], lambda _: x)[0]
    number = ~np.isnan(expected)
    assert (np.isnan(actual) == np.isnan(expected)).all()
    one_step = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "fp8e4m3": 2.0**-3, "fp8e5m2": 2.0**-2}[dtype.name]
    off = np.abs(actual[number].astype(float) - expected[number].astype(float))
    near = off <= one_step * np.abs(expected[number])
    assert (near | (actual[number] == expected[number])).all()
