"""Sums along the columns of large matrices: added up row by row, and what they come to."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

from hcq import Tensor, dtypes
from hcq.compiler.compile import compile_kernel
from hcq.compiler.target import cpu_target
from hcq.frontend.core.structure import structure_of
from hcq.frontend.schedule import columns
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.node import Node
from hcq.ir.op import Op

ROWS, COLUMNS = 48, 512

SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "columns": lambda x, v: x.sum(0),
    "columns, kept as an axis": lambda x, v: x[None].sum(1)[:, None],
    "rows of a transposed view": lambda x, v: x.T.sum(1),
    "vector times matrix": lambda x, v: v @ x,
    "mean of squares": lambda x, v: (x * x).mean(0),
    "with a number for each row": lambda x, v: ((x - v.reshape(ROWS, 1)) * 2).sum(0),
    "with a number for each column": lambda x, v: (x * x[0]).sum(0),
}
OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda x, v: x.sum(1),
    "columns of a transposed view": lambda x, v: x.T.sum(0),
    "every second column": lambda x, v: x[:, ::2].sum(0),
    "several vectors times matrix": lambda x, v: v.reshape(2, 24) @ x.reshape(24, 2 * COLUMNS),
    "all": lambda x, v: x.sum(),
    "sums of sums": lambda x, v: (x.reshape(ROWS, 1, COLUMNS) + v.reshape(1, ROWS, 1)).sum(1).sum(0),
    "short rows": lambda x, v: x.reshape(ROWS * 8, COLUMNS // 8).sum(0),
}


@pytest.fixture(autouse=True)
def small_matrices_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "LARGE_MATRIX", 1 << 12)


def operands(dtype: str = "float32") -> tuple[Any, Any]:
    draw = np.random.default_rng(0)
    return draw.integers(-9, 9, (ROWS, COLUMNS)).astype(dtype), draw.integers(-9, 9, ROWS).astype(dtype)


def sinks(result: Tensor, threads: int) -> list[Node]:
    roots = [result.node]
    return [kernel.sink for kernel in schedule(roots, structure_of(roots).storages, threads).kernels]


def is_row_by_row(sink: Node) -> bool:
    return any(node.op is Op.SCATTER_ADD for node in sink.toposort())


def kernels(result: Tensor, threads: int) -> list[bool]:
    return [is_row_by_row(sink) for sink in sinks(result, threads)]


@pytest.mark.parametrize("threads", [1, 2, 12])
@pytest.mark.parametrize("name", SUMS)
def test_columns_are_added_up_row_by_row(name: str, threads: int) -> None:
    x, v = operands()
    result = SUMS[name](*(Tensor(each).realize() for each in (x, v)))
    assert sum(kernels(result, threads)) == 1


@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_are_left_as_they_are(name: str) -> None:
    x, v = operands()
    result = OTHERS[name](*(Tensor(each).realize() for each in (x, v)))
    assert not any(kernels(result, 2))


@pytest.mark.parametrize("name", [*SUMS, *OTHERS])
def test_the_sums_are_numpys(name: str) -> None:
    x, v = operands()
    made = {**SUMS, **OTHERS}[name]
    found = made(*(Tensor(each).realize() for each in (x, v)))
    np.testing.assert_array_equal(found.numpy(), made(x, v).astype("float32"))


def test_whole_numbers_are_added_up_so_and_halves_are_not() -> None:
    """Halves are summed in float32, and would be rounded in each row."""
    x, _ = operands("int32")
    assert sum(kernels(Tensor(x).realize().sum(0), 2)) == 1
    np.testing.assert_array_equal(Tensor(x).sum(0).numpy(), x.sum(0))
    half = Tensor(x).cast(dtypes.float16).realize()
    np.testing.assert_array_equal(half.sum(0).numpy(), x.sum(0))


def test_rows_that_divide_for_no_worker_and_the_many_workers_of_a_gpu_stay_in_registers() -> None:
    x, _ = operands()
    assert not any(kernels(Tensor(x[:47]).realize().sum(0), 2))
    assert not any(kernels(Tensor(x).realize().sum(0), 1024))


def test_a_matrix_that_is_computed_first_is_summed_as_before() -> None:
    """It may never be in memory."""
    x, _ = operands()
    a, b = Tensor(x[:, :64]).realize(), Tensor(x).realize()
    result = (a.T @ b).sum(0)
    assert not any(kernels(result, 2))
    np.testing.assert_array_equal(result.numpy(), (x[:, :64].T @ x).sum(0))


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize(("rows", "at_once"), [(64, 4), (48, 3), (96, 3), (32, 2), (16, 1)])
def test_rows_are_added_up_a_few_at_a_time_in_the_kernel_that_adds_them_to_its_own(
    name: str, rows: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers have sixteen pieces of the rows."""
    monkeypatch.setitem(globals(), "ROWS", rows)
    x, v = operands()
    made = sinks(SUMS[name](*(Tensor(each).realize() for each in (x, v))), 2)
    (sink,) = [each for each in made if is_row_by_row(each)]
    taken = [prod(n.src[0].shape) // prod(n.shape) for n in sink.toposort() if n.op is Op.REDUCE_AXIS]
    assert taken == ([at_once] if at_once > 1 else [])
    found = SUMS[name](*(Tensor(each).realize() for each in (x, v)))
    np.testing.assert_array_equal(found.numpy(), SUMS[name](x, v).astype("float32"))


@pytest.mark.parametrize("rows", [256, 144, 160])
def test_the_rows_that_are_taken_at_a_time_are_written_out(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No loop over them is left: what was summed before is read and written once for all."""
    monkeypatch.setitem(globals(), "ROWS", rows)
    x, v = operands()
    made = sinks(SUMS["vector times matrix"](*(Tensor(each).realize() for each in (x, v))), 2)
    (sink,) = [each for each in made if is_row_by_row(each)]
    choice = compile_kernel(sink, cpu_target()).choice.split("; ")
    assert [item for item in choice if item.split()[1].startswith("r3")] == ["unroll r3"]
