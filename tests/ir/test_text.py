"""Graphs as text: what is read is the graph that was written, and damaged text is refused with its line."""

from __future__ import annotations

import random

import pytest

from hcq.frontend.core.structure import structure_of
from hcq.frontend.schedule.schedule import schedule
from hcq.ir import text
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op
from hcq.tools.golden_programs import PROGRAMS


def kernels(name: str) -> list[Node]:
    result = PROGRAMS[name]()
    structure = structure_of([result.node])
    return [kernel.sink for kernel in schedule([result.node], structure.storages, 2).kernels]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_written_is_read_as_the_same_graph(name: str) -> None:
    for sink in kernels(name):
        assert text.read(text.write(sink)) is sink


def test_numbers_keep_their_bits() -> None:
    for value in (0.1, -0.0, float("inf"), float("nan"), 5e-324):
        node = const(value, dtypes.float64)
        assert text.read(text.write(node)) is node


def test_vectors_and_indices_keep_their_formats() -> None:
    for dtype in (dtypes.index, dtypes.index.vec(8), dtypes.bfloat16.vec(16), dtypes.bool):
        node = Node(Op.SINK, dtype, (), "x")
        assert text.read(text.write(node)) is node


@pytest.mark.parametrize(
    "damaged, said",
    [
        ("", "first line"),
        ("hcq graph 2\n[]", "first line"),
        (text.HEAD, "without nodes"),
        (f"{text.HEAD}\nADD", "line 2"),
        (f'{text.HEAD}\n["CONST", "float32", [0], 1]', "not among the 0 nodes"),
        (f'{text.HEAD}\n["CALL", "float32", [], 1]', "line 2"),
        (f'{text.HEAD}\n["CONST", "float31", [], 1]', "float31"),
        (f'{text.HEAD}\n["CONST", "float32", [], {{"code": "print()"}}]', "no argument is a 'code'"),
    ],
)
def test_damaged_text_is_refused_with_its_line(damaged: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        text.read(damaged)


def test_no_damage_gives_another_error() -> None:
    (sink,) = kernels("softmax")
    good = text.write(sink)
    chance = random.Random(1)
    for _ in range(500):
        at, end = sorted(chance.randrange(len(good)) for _ in range(2))
        damaged = good[:at] + chance.choice(('"', "]", "-1", "[", "{}", "")) + good[min(end, at + 9) :]
        try:
            text.read(damaged)
        except ValueError as problem:
            assert str(problem)
