"""Accumulators: tiles fit into registers, and two short axes together fill them."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import pytest

from hcq.compiler.loops.accumulators import tile, tile_two
from hcq.compiler.loops.heuristic import choose
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, cpu_target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index
from hcq.ir.op import Op
from tests.compiler.building import (
    check,
    expand,
    kernel,
    matmul,
    out,
    pad,
    param,
    permute,
    reduce,
    reshape,
    window,
)

if TYPE_CHECKING:
    from hcq.device import Device

MACHINES = {"avx512": (512, 32), "avx2": (256, 16), "neon": (128, 32)}


def machine(name: str) -> Target:
    bits, registers = MACHINES[name]
    return replace(cpu_target(), threads=2, l2_bytes=1 << 20, vector_bits=bits, vector_registers=registers)


def axis(name: str, size: int, bit: int) -> Axis:
    return Axis(Node(Op.RANGE, dtypes.index, (index(size),), (bit,)), name, size, False, False, bit)


def gradient_of_weight(channels: int = 16, results: int = 96, places: int = 12) -> Node:
    """(c, p, q, o): the sum over n, y, x of x[n, c, y + p - 1, x + q - 1] * g[n, o, y, x], p and q below 3"""
    n = 2
    x = pad(param(1, (n, channels, places, places)), (0, 0), (0, 0), (1, 1), (1, 1))
    x = window(window(x, 2, places), 3, places)  # n, c, p, q, y, x
    x = permute(x, 1, 2, 3, 0, 4, 5)
    g = permute(param(2, (n, results, places, places)), 1, 0, 2, 3)
    shape = (channels, 3, 3, results, n, places, places)
    x = expand(reshape(x, channels, 3, 3, 1, n, places, places), *shape)
    g = expand(reshape(g, 1, 1, 1, results, n, places, places), *shape)
    value = permute(reduce(x * g, (4, 5, 6)), 3, 0, 1, 2, 4, 5, 6)
    return kernel((out(0, value.shape), value))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("across", [16, 40, 64, 256])
def test_registers_hold_a_tile_its_vectors_and_a_scalar(name: str, across: int) -> None:
    target = machine(name)
    for down in range(2, 17):
        found = tile(across, 16, down, target.lanes, target)
        assert found.rows == 1 or found.rows * found.width + found.width + 1 < target.vector_registers
        for other in range(2, 8):
            both = tile_two(across, 16, axis("a", down, 1), [axis("b", other, 2)], target.lanes, target)
            rows = both.rows * (1 if both.beside is None else both.beside.size)
            assert rows == 1 or rows * both.width + both.width + 1 < target.vector_registers
            assert both.per_step <= found.per_step


@pytest.mark.parametrize("name", MACHINES)
def test_a_gradient_of_weights_computes_the_same_on_any_machine(device: Device, name: str) -> None:
    target, sink = machine(name), gradient_of_weight()
    nest = choose(LoopNest(lower(sink, target)), target)
    check(device, sink, nest.choice)


def test_all_places_of_a_small_window_are_in_registers_where_there_are_many() -> None:
    target = machine("avx512")
    nest = choose(LoopNest(lower(gradient_of_weight(), target)), target)
    written_out = [loop for axis in nest.axes for loop in axis.loops if loop.kind == "unroll"]
    assert [loop.size for loop in written_out if loop.axis.size == 3 and not loop.axis.is_reduce] == [3, 3]
    assert prod(loop.size for loop in written_out) >= 18


def test_a_panel_that_the_second_cache_would_not_hold_is_narrower(device: Device) -> None:
    sink = kernel((out(0, (320, 1, 96)), matmul(param(1, (320, 1500)), param(2, (1500, 96)))))
    sizes = {}
    for l2_bytes in (1 << 20, 64 << 10):
        target = replace(machine("avx2"), l2_bytes=l2_bytes)
        nest = choose(LoopNest(lower(sink, target)), target)
        (panel,) = nest.stages
        column = next(axis for axis in nest.axes if axis.loops[-1].kind == "vector")
        sizes[l2_bytes] = 4 * 1500 * column.tile
        assert sizes[l2_bytes] <= l2_bytes
        assert column.counted
        assert panel.at is not None
        check(device, sink, nest.choice)
    assert len(set(sizes.values())) == 2
