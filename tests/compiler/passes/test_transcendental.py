"""Exponentials, logarithms, sines and cosines in plain arithmetic are within the stated ulps of the true ones, special
values included: interpreted, and compiled for this machine, where multiplications and additions are fused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.compiler.compile import compile_kernel
from hcq.compiler.passes import transcendental, trigonometry
from hcq.compiler.target import cpu_target
from hcq.device import Device
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, Param, binary, const
from hcq.ir.op import Op
from tests.interpreter.evaluate import evaluate

FUNCTIONS = {
    "exp": transcendental.exp,
    "exp2": transcendental.exp2,
    "log": transcendental.log,
    "log2": transcendental.log2,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
}

UINT = Node(Op.PARAM, dtypes.uint32, (), 0)
# the worst they may be off, in units in the last place; so transcendental.py and trigonometry.py promise
ULPS = {"exp": 1.0, "exp2": 1.2, "log": 0.95, "log2": 1.45, "sin": 1.7, "cos": 1.7}
needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="long double is no longer than double"
)


def run(name: str, x: np.ndarray, limit: float | None = None) -> np.ndarray:
    """The function's graph on an array; with a limit, on the array clamped to it, so that the graph shows the limit."""
    argument = Node(Op.PARAM, dtype_of(x), (), 0)
    if limit is not None:
        argument = clamped(argument, limit)
    return evaluate([FUNCTIONS[name](argument)], lambda leaf: x)[0]


def run_compiled(device: Device, name: str, x: np.ndarray, limit: float | None = None) -> np.ndarray:
    """The same by a kernel on the CPU device."""
    dtype = dtype_of(x)
    argument = Node(Op.PARAM, dtype, (), Param(1, x.shape))
    if limit is not None:
        argument = clamped(argument, limit)
    result = Node(Op.PARAM, dtype, (), Param(0, x.shape, writable=True))
    store = Node(Op.STORE, dtype, (result, Node(Op[name.upper()], dtype, (argument,))))
    code = compile_kernel(Node(Op.SINK, dtype, (store,)), cpu_target())
    out, given = device.alloc(x.nbytes), device.alloc(x.nbytes)
    given.write(x.tobytes())
    device.run(device.load(code.image, code.entry), [out, given], grid=code.grid, block=code.block)
    return np.frombuffer(out.read(), x.dtype)


def dtype_of(x: np.ndarray) -> DType:
    return dtypes.float32 if x.dtype == np.float32 else dtypes.float64


def clamped(x: Node, limit: float) -> Node:
    return Node(Op.MIN, x.dtype, (Node(Op.MAX, x.dtype, (x, const(-limit, x.dtype))), const(limit, x.dtype)))


def exact(name: str, x: np.ndarray) -> np.ndarray:
    """The function's values in long double, from float32 by way of float64."""
    with np.errstate(all="ignore"):
        if x.dtype == np.float32:
            return getattr(np, name)(x.astype(np.float64)).astype(np.longdouble)
        return getattr(np, name)(x.astype(np.longdouble))


def ulps_off(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest distance in units of the last place; infinite where one is NaN or infinite and the other is not."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(actual.dtype)
        same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
        off = np.abs(actual.astype(np.longdouble) - expected) / np.spacing(np.abs(rounded))
        off = np.where(np.isfinite(actual) & np.isfinite(rounded), off, np.where(same, 0, np.inf))
    return float(off.max())


def every_nth_float32(step: int) -> np.ndarray:
    return np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def random_bits_float64(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 1 << 64, count, dtype=np.uint64).view(np.float64)


def interesting(name: str, count: int) -> np.ndarray:
    """Arguments where the function has ordinary values, and where its results or arguments are subnormal."""
    random = np.random.default_rng(7)
    ranges = {
        "exp": [(-1, 1), (-104, 89), (-745, 710)],
        "exp2": [(-1, 1), (-150, 128), (-1075, 1024)],
        "log": [(0.5, 2), (0, 1e-38), (0, 1e6)],
        "log2": [(0.5, 2), (0, 1e-38), (0, 1e6)],
        "sin": [(-0.8, 0.8), (-200, 200), (-1e6, 1e6)],
        "cos": [(-0.8, 0.8), (-200, 200), (-1e6, 1e6)],
    }
    return np.concatenate([random.uniform(low, high, count) for low, high in ranges[name]])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_within_its_ulps_over_all_bit_patterns_and_dense_samples(name: str):
    x = np.concatenate([every_nth_float32(40_009), interesting(name, 40_000).astype(np.float32)])
    assert ulps_off(run(name, x), exact(name, x)) <= ULPS[name]


@needs_long_double
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_is_within_its_ulps(name: str):
    x = np.concatenate([random_bits_float64(30_000), interesting(name, 30_000)])
    assert ulps_off(run(name, x), exact(name, x)) <= ULPS[name]


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_next_to_multiples_of_half_pi_nothing_is_lost(name: str, dtype: type):
    x = (np.arange(1, 100_000) * np.longdouble("1.57079632679489661923")).astype(dtype)
    hardest = [6381956970095103 * 2.0**797] if dtype is np.float64 else [np.float32(16367173 * 2.0**72)]
    x = np.concatenate([x, np.array(hardest, dtype)])
    expected = exact(name, x)
    assert ulps_off(run(name, x), expected) <= ULPS[name]


@needs_long_double
@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 190.0), (np.float64, 1e6)])
def test_the_short_way_is_as_good_up_to_its_limit(name: str, dtype: type, limit: float):
    random = np.random.default_rng(3).uniform(-limit * 1.1, limit * 1.1, 10_000)
    near = np.arange(0, limit, np.pi / 2)
    x = np.concatenate([random, near, -near, [np.nan, -0.0]]).astype(dtype)
    expected = exact(name, np.clip(x, -limit, limit))
    assert ulps_off(run(name, x, limit), expected) <= ULPS[name]


@pytest.mark.parametrize(
    ("small", "argument"),
    [
        (True, binary(Op.SHR, UINT, 8).cast(dtypes.float32) * 2.0**-24 * 6.3),
        (False, UINT.cast(dtypes.float32)),
        (True, binary(Op.SHR, UINT, 25).cast(dtypes.float32)),
        (True, binary(Op.AND, UINT, 127).cast(dtypes.float32)),
        (False, (UINT * 2).cast(dtypes.float32) * 2.0**-23),
        (False, Node(Op.PARAM, dtypes.float32, (), 0)),
        (True, Node(Op.SIN, dtypes.float32, (Node(Op.PARAM, dtypes.float32, (), 0),)) * 3.0 + 1.0),
    ],
    ids=str,
)
def test_the_graph_tells_which_arguments_are_small(small: bool, argument: Node):
    assert (trigonometry.largest(argument) <= trigonometry.SHORT_WAY_LIMIT[dtypes.float32]) is small


def test_the_bits_of_two_over_pi_are_those_of_machin():
    bits = trigonometry.TWO_OVER_PI_BITS + 64

    def inverse_tangent_of_one_over(n: int) -> int:
        total, term, place = 0, (1 << bits) // n, 1
        while term:
            total += term // place if place % 4 == 1 else -(term // place)
            term, place = term // (n * n), place + 2
        return total

    pi = 4 * (4 * inverse_tangent_of_one_over(5) - inverse_tangent_of_one_over(239))
    assert (2 << 2 * bits) // pi >> 64 == trigonometry.TWO_OVER_PI


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=needs_long_double)])
def test_compiled_they_are_within_the_same_ulps(device: Device, name: str, dtype: type):
    bits = every_nth_float32(200_003) if dtype is np.float32 else random_bits_float64(5_000)
    x = np.concatenate([bits, interesting(name, 5_000).astype(dtype)])
    assert ulps_off(run_compiled(device, name, x), exact(name, x)) <= ULPS[name]


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_compiled_the_short_way_is_as_good(device: Device, name: str):
    x = np.random.default_rng(3).uniform(-200, 200, 20_000).astype(np.float32)
    assert ulps_off(run_compiled(device, name, x, 190.0), exact(name, np.clip(x, -190, 190))) <= ULPS[name]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("exp", 0.0, 1.0),
        ("exp", -math.inf, 0.0),
        ("exp", math.inf, math.inf),
        ("exp", 800.0, math.inf),
        ("exp", -800.0, 0.0),
        ("exp2", -0.0, 1.0),
        ("exp2", 1100.0, math.inf),
        ("exp2", -math.inf, 0.0),
        ("log", 0.0, -math.inf),
        ("log", -0.0, -math.inf),
        ("log", -1.0, math.nan),
        ("log", -math.inf, math.nan),
        ("log", math.inf, math.inf),
        ("log", 1.0, 0.0),
        ("log2", 0.0, -math.inf),
        ("log2", math.inf, math.inf),
        ("log2", -1e-30, math.nan),
        ("sin", 0.0, 0.0),
        ("sin", -0.0, -0.0),
        ("cos", -0.0, 1.0),
        ("sin", math.inf, math.nan),
        ("cos", -math.inf, math.nan),
        *((name, math.nan, math.nan) for name in FUNCTIONS),
    ],
)
def test_special_values_are_those_of_ieee_754(name: str, argument: float, expected: float, dtype: type):
    actual = float(run(name, np.array([argument], dtype))[0])
    assert math.isnan(actual) if math.isnan(expected) else actual == expected
    assert math.isnan(expected) or math.copysign(1, actual) == math.copysign(1, expected)


@pytest.mark.parametrize(("dtype", "low", "high"), [(np.float32, -149, 127), (np.float64, -1074, 1023)])
def test_powers_of_two_are_exact_both_ways_subnormal_ones_too(dtype: type, low: int, high: int):
    exponents = np.arange(low, high + 1).astype(dtype)
    powers = np.ldexp(np.ones(len(exponents), dtype), exponents.astype(int))
    assert (run("exp2", exponents) == powers).all()
    assert (run("log2", powers) == exponents).all()


@settings(deadline=None)  # the first call compiles
@given(st.sampled_from(sorted(FUNCTIONS)), st.floats(width=32))
def test_any_float32_is_within_its_ulps(name: str, value: float):
    x = np.array([value], np.float32)
    assert ulps_off(run(name, x), exact(name, x)) <= ULPS[name]


def test_a_narrow_format_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"float16 has no exp, log or sin here"):
        transcendental.exp(Node(Op.PARAM, dtypes.float16, (), 0))
