"""Numbers as arguments: a loop over numbers compiles twice, and nobody can tell from the results."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hcq
from hcq import Tensor, dtypes, jit, no_grad
from hcq.compiler import compile as compiling
from hcq.frontend.run import plan as plans
from hcq.frontend.run import realize as realizing
from hcq.frontend.run import varying_numbers

VALUES = [0.0, -0.0, 1.0, -1.5, 3.25, 1e-40, 7.0, 1e30, math.inf, -math.inf, math.nan]
NUMBERS = [0.1, 3.0, -7.7, 1e-39, 12345.678, 1.0, 2.0, 0.5, 0.0, -0.0, math.inf, -3.0]
FLOAT_OPERATIONS: list[Callable[[Tensor, Any], Tensor]] = [
    lambda x, c: x + c,
    lambda x, c: c - x,
    lambda x, c: x * c,
    lambda x, c: x / c,
    lambda x, c: c / x,
    lambda x, c: x < c,
    lambda x, c: x == c,
    lambda x, c: x.maximum(c),
    lambda x, c: (x > 1.0).where(x, c),
    lambda x, c: (x * c + x * 0.3).relu() / c,
    lambda x, c: (x.exp() * c).sum() + c,
]
INTEGERS = [0, 1, -1, 5, 100, 127, -128]
WHOLE = [3, 7, -5, 100, 1, 2, 8, -1, 0, 11]
INTEGER_OPERATIONS: list[Callable[[Tensor, Any], Tensor]] = [
    lambda x, c: x + c,
    lambda x, c: x - c,
    lambda x, c: x * c,
    lambda x, c: x // c,
    lambda x, c: x % c,
    lambda x, c: x < c,
    lambda x, c: x.minimum(c) * c + x,
    lambda x, c: x ^ c,
]
DIVISIONS = (3, 4)


@pytest.fixture(autouse=True)
def no_families() -> Iterator[None]:
    """Each test begins with nothing known about numbers, and with no keys of the short way: a full table is emptied."""
    varying_numbers._families.clear()
    plans._short.clear()
    yield
    varying_numbers._families.clear()


def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are made from here on, neither found in memory nor on disk."""
    made: list[str] = []
    keep = compiling._keep

    def noted(key: Any, code: Any) -> Any:
        made.append(code.name)
        return keep(key, code)

    monkeypatch.setattr(compiling, "_keep", noted)
    return made


def as_constant(operation: Callable[[Tensor, Any], Tensor], x: Tensor, number: Any) -> bytes:
    """The result with the number in the kernel."""
    varying_numbers._families.clear()
    plans._plans.clear()
    return operation(x, number).realize()._bytes("data")


@pytest.mark.sampled(11)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.float64], ids=str)
@pytest.mark.parametrize("number", range(len(FLOAT_OPERATIONS)))
def test_results_are_the_same_bit_for_bit_with_floats_as_arguments(number, dtype):
    operation = FLOAT_OPERATIONS[number]
    numbers = [c for c in NUMBERS if dtype is not dtypes.float16 or abs(c) < 1e4 or math.isinf(c)]
    x = Tensor(VALUES if dtype is not dtypes.float16 else [v for v in VALUES if v != 1e30], dtype=dtype)
    expected = [as_constant(operation, x, c) for c in numbers]
    varying_numbers._families.clear()
    plans._plans.clear()
    for c, raw in zip(numbers, expected):
        assert operation(x, c).realize()._bytes("data") == raw, c


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.int64], ids=str)
@pytest.mark.parametrize("number", range(len(INTEGER_OPERATIONS)))
def test_results_are_the_same_with_integers_as_arguments(number, dtype):
    operation = INTEGER_OPERATIONS[number]
    x = Tensor(INTEGERS, dtype=dtype)
    numbers = WHOLE if number not in DIVISIONS else [c for c in WHOLE if c]
    expected = [as_constant(operation, x, c) for c in numbers]
    varying_numbers._families.clear()
    plans._plans.clear()
    for c, raw in zip(numbers, expected):
        assert operation(x, c).realize()._bytes("data") == raw


def test_a_loop_over_numbers_compiles_twice(monkeypatch):
    x = Tensor([1.0, 2.0, 3.0]).realize()
    made = compilations(monkeypatch)
    for i in range(1, 30):
        assert ((x + i * 0.37).exp() * 1.5).realize().shape == (3,)
    assert len(made) <= 2


KEPT: list[Callable[[Tensor, Any], Any]] = [
    lambda x, c: Tensor.full((3,), c).contiguous(),
    lambda x, c: Tensor.full((3,), int(c)).contiguous(),
    lambda x, c: x.assign(c),
    lambda x, c: x.assign(Tensor.full((3,), c)),
    lambda x, c: x.__setitem__(slice(1, None), c) or x,
]


@pytest.mark.parametrize("number", range(len(KEPT)))
def test_numbers_that_are_written_to_memory_compile_twice(number, monkeypatch):
    made = compilations(monkeypatch)
    before: list[str] = []
    for c in range(1, 20):
        written = KEPT[number](Tensor([7.0, 8.0, 9.0]).realize(), float(c)).realize()
        assert written.tolist()[1:] == [c, c]
        assert c < 3 or made == before
        before = list(made)


def test_a_number_that_is_written_and_computed_with_is_the_same_in_both():
    for c in (3.5, 4.5, 1.0, 5.5):
        full = Tensor.full((2,), c)
        kept, moved = full.contiguous(), full * full + Tensor([1.0, 2.0])
        kept.realize(moved)
        assert kept.tolist() == [c, c]
        assert moved.tolist() == [c * c + 1.0, c * c + 2.0]


def test_an_operation_with_a_new_number_takes_the_short_way(monkeypatch):
    x = Tensor([1.0, 2.0, 3.0]).realize()
    operations: list[Callable[[Tensor, float], Tensor]] = [
        lambda x, c: x + c, lambda x, c: x * c, lambda x, c: c - x, lambda x, c: c / x, lambda x, c: x < c,
    ]  # fmt: skip
    for operation in operations:
        for c in (0.3, 0.7):
            operation(x, c).realize()
    monkeypatch.setattr(realizing, "structure_of", lambda roots: pytest.fail("a graph was walked"))
    for operation in operations[:2] + operations[3:]:  # c - x is two operations
        for c in (0.9, 1.3, -7.5):
            assert operation(x, c).realize().tolist() == pytest.approx(
                [operation(v, c) for v in (1.0, 2.0, 3.0)]
            )


def test_only_the_numbers_that_differ_become_arguments():
    x = Tensor([1.0, 2.0]).realize()
    (x * 3.0 + 0.7).realize()
    assert (x * 3.0 + 0.9).realize().tolist() == pytest.approx([3.9, 6.9])
    (family,) = varying_numbers._families.values()
    assert family.varying == {family.numbers.index(pytest.approx(0.9))}


def test_numbers_that_the_compiler_simplifies_by_stay_in_the_kernel():
    x = Tensor([1.0, 2.0]).realize()
    stay = [
        x + 0.0, x * 0.0, x * 1.0, x * -1.0, x / 1.0, 1.0 / x, x.maximum(0.0), x < math.inf, x * math.nan,
        x.cast(dtypes.int32) // 3, x.cast(dtypes.int32) << 3, x.cast(dtypes.int32) % 7, (x > x).where(1.0, 0.0),
        Tensor(2.5), Tensor(0.0).expand(3), x.cast(dtypes.int32) * 4,
        Tensor.arange(5) + 3, Tensor.arange(5) < 3, x.pad((1, 1), value=0.0),
    ]  # fmt: skip
    for tensor in stay:
        assert not varying_numbers.holes_of([tensor.node]), tensor.node
    for tensor in [
        x + 1.0,
        x + 0.3,
        x * 0.3,
        x * 2.0,
        x * -0.25,
        x / 4.0,
        Tensor(2.5).expand(3),
        Tensor.full((2, 3), 1.0).contiguous(),
        x / 3.0,
        3.0 / x,
        x.maximum(0.3),
        x < 7.0,
        x.cast(dtypes.int32) * 3,
    ]:
        assert len(varying_numbers.holes_of([tensor.node])) == 1, tensor.node
    assert len(varying_numbers.holes_of([(Tensor.arange(5).float() * 0.3).node])) == 1


def test_a_number_used_where_it_must_be_known_stays_everywhere():
    x = hcq.tensor([1, 2]).realize()
    assert not varying_numbers.holes_of([((x + 3) // 3).node])
    assert len(varying_numbers.holes_of([((x + 3) // 5).node])) == 1


def test_gradients_flow_through_graphs_whose_numbers_are_arguments():
    for c in (0.3, 0.6, 0.9):
        x = Tensor([1.0, 2.0], requires_grad=True).realize()
        y = (x * c).realize()
        (y * y).sum().backward()
        assert x.grad is not None and x.grad.tolist() == pytest.approx([2 * c * c, 4 * c * c])
    with no_grad():
        assert not (x * 0.7).realize().node.arg.tracked


def test_writes_in_place_take_numbers_as_arguments(monkeypatch):
    w = Tensor([1.0, 2.0]).realize()
    made = compilations(monkeypatch)
    expected = [1.0, 2.0]
    for i in range(10):
        c = 0.3 + i
        w.assign(w + c).realize()
        expected = [e + c for e in expected]
    assert w.tolist() == pytest.approx(expected)
    assert len(made) <= 2


def test_recordings_read_their_number_where_others_varied_before():
    x, y = Tensor([1.0, 2.0]).realize(), Tensor([5.0, 6.0]).realize()
    for c in (0.3, 0.6, 0.9):
        (x + c).realize()

    def scaled(c: float) -> Any:
        @jit
        def add(a: Tensor) -> Tensor:
            return (a + c).realize()

        return add

    for c in (1.3, 1.6):
        add = scaled(c)
        for _ in range(5):
            assert add(x).tolist() == pytest.approx([1 + c, 2 + c])
            assert add(y).tolist() == pytest.approx([5 + c, 6 + c])


CLOSING = """
from hcq import Tensor
from hcq.frontend.core.device import default, get
for _ in range(2):
    x = Tensor([1.0, 2.0]).realize()
    for c in (0.25, 0.5, 0.75):
        assert (x + c).tolist() == [1 + c, 2 + c]
    get(default()).close()
"""


def test_numbers_are_written_again_for_a_device_that_was_closed():
    """In a process of its own: the device of this one belongs to all tests."""
    subprocess.run([sys.executable, "-c", CLOSING], check=True, timeout=50)


FAILING = """
from hcq import Tensor
from hcq.frontend.core.device import default, get
x = Tensor([1.0, 2.0]).realize()
for c in (0.25, 0.5):
    (x + c).realize()
device = get(default())
gate = device.signal("gate")
device.queue().wait(gate, 1).submit()
late = (x + 0.5).realize()
device.reset()
gate.set(1)
assert (Tensor([3.0, 4.0]) + 0.5).tolist() == [3.5, 4.5]
"""


def test_a_submission_that_fails_leaves_numbers_as_they_are():
    subprocess.run([sys.executable, "-c", FAILING], check=True, timeout=50)


def test_what_is_remembered_of_numbers_is_bounded(monkeypatch):
    monkeypatch.setattr(varying_numbers, "MAX_NUMBERS", 4)
    monkeypatch.setattr(varying_numbers, "MAX_FAMILIES", 4)
    x = Tensor([1.0, 2.0]).realize()
    kept = [(x + (i + 0.3)).realize() for i in range(20)]
    assert [t.tolist() for t in kept] == [pytest.approx([i + 1.3, i + 2.3]) for i in range(20)]
    for size in range(1, 8):
        (Tensor([0.0] * size).realize() + 0.3).realize()
    assert len(varying_numbers._families) <= 4
    assert len(varying_numbers._numbers) <= 256
