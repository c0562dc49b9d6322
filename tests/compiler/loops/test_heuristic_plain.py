"""The heuristic for machines of which little is known: what it asks of a renderer, and how it divides loops.

That its kernels compute what others do, the examples of devices test: tests/examples/.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.heuristic_plain import choose, may
from hcq.ir.node import Node
from hcq.ir.op import ARITHMETIC, Op
from tests.compiler.building import kernel, matmul, out, param
from tests.compiler.loops.test_loop_nest import KERNELS, nest_of

PLAIN = {Op.CONST, Op.PARAM, Op.SPECIAL, Op.LOOP, Op.ENDLOOP, Op.ACCUMULATOR, Op.UPDATE, Op.LOAD, Op.STORE}


@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("most", [1, 64, 100])
def test_its_kernels_need_nothing_but_loops_loads_and_arithmetic(make: Callable[[], Node], most: int) -> None:
    nest = choose(nest_of(make()), most)
    program = linearize(nest, "k")
    assert program.threads <= most
    assert program.shared_bytes == program.scratch_bytes == 0
    for it in program.instructions:
        assert it.op in PLAIN or it.op in ARITHMETIC, str(program)
        assert it.dtype.lanes == 1
    assert [axis for axis in nest.axes if axis.is_reduce and axis.threads] == []


def product(m: int, n: int, k: int) -> Node:
    return kernel((out(0, (m, 1, n)), matmul(param(1, (m, k)), param(2, (k, n)))))


def test_threads_take_neighbours_of_a_row_and_several_rows_each() -> None:
    nest = choose(nest_of(product(24, 96, 50)), 64)
    assert nest.choice == "split r0 8; unroll r0.1; split r1 32; thread r1.1; parallel r0; parallel r1"


def test_what_a_nest_refuses_is_left() -> None:
    nest = nest_of(product(24, 96, 50))
    assert not may(nest, "unroll", "r9")
    assert may(nest, "split", "r0", 8)
    assert not may(nest, "split", "r0.1", 3)
    assert nest.choice == "split r0 8"
