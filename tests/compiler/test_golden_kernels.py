"""Reviewed kernels: what a handful of tensor programs become, as text in kernels_golden/, the same on every machine.

Renew with --renew-golden, then read the diff: it is the change that the compiler made to everyone's kernels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from hcq import Tensor
from hcq.compiler.kernel import kernel_name
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.heuristic import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import lower
from hcq.compiler.render.llvm import render
from hcq.compiler.target import Target
from hcq.frontend.core.structure import structure_of
from hcq.frontend.schedule.schedule import Schedule, schedule
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.show import show_graph

# two threads with AVX-512, whatever machine runs this
TARGET = Target("cpu", "x86_64", "golden", 2, 512, 32, l1_bytes=48 << 10, l2_bytes=1 << 20, cpu="x86-64-v4")

READABLE_LINES = 500


def memory(*shape: int) -> Tensor:
    """A tensor in memory; what is in it does not matter here."""
    return Tensor.zeros(*shape, dtype=dtypes.float32).contiguous().realize()


def elementwise_chain() -> Tensor:
    return (memory(1000, 64) * 2 + memory(64)).relu()


def row_sum() -> Tensor:
    return (memory(1000, 256) * 0.5).sum(1)


def column_sum() -> Tensor:
    return memory(1000, 256).sum(0)


def softmax() -> Tensor:
    return memory(1000, 256).softmax(-1)


def transpose() -> Tensor:
    return memory(256, 512).T.contiguous()


def padded_window_maximum() -> Tensor:
    return memory(4, 8, 15, 15).max_pool2d(3, stride=2, padding=1)


def matmul() -> Tensor:
    return memory(256, 512) @ memory(512, 384)


def convolution() -> Tensor:
    return memory(4, 16, 28, 28).conv2d(memory(32, 16, 3, 3), padding=1)


PROGRAMS: tuple[Callable[[], Tensor], ...] = (
    elementwise_chain,
    row_sum,
    column_sum,
    softmax,
    transpose,
    padded_window_maximum,
    matmul,
    convolution,
)


def scheduled(result: Tensor) -> Schedule:
    structure = structure_of([result.node])
    return schedule([result.node], structure.storages, threads=TARGET.threads)


def text_of(sink: Node) -> str:
    """One kernel's stations: what it computes, over ranges, the choice of loops, the code."""
    lowered = lower(sink, TARGET)
    nest = LoopNest(lowered)
    choose(nest, TARGET)
    program = linearize(nest, kernel_name(sink))
    launch = f"groups {program.groups}, scratch {program.scratch_bytes} bytes a worker"
    stations = {
        "graph": show_graph(sink),
        "kernel": show_graph(lowered),
        "choice": nest.choice or "(as it is)",
        "launch": launch,
        "code": readable(render(program, TARGET.arch)),
    }
    return "\n".join(f"-- {name}\n{text.strip()}\n" for name, text in stations.items())


def readable(code: str) -> str:
    """The code, or, where nobody would read it all, how many of which instructions it has."""
    lines = code.splitlines()
    if len(lines) <= READABLE_LINES:
        return code
    words = re.compile(r"^  (?:%\S+ = )?(?:tail )?(\w+)(?: (?:nuw |nsw |contract |inbounds )*(<\d+ x \w+>))?")
    found = Counter(" ".join(filter(None, match.groups())) for match in map(words.match, lines) if match)
    table = "\n".join(f"{count:6} {what}" for what, count in sorted(found.items()))
    return f"{len(lines)} lines:\n{table}"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_kernels_are_those_that_were_reviewed(
    program: Callable[[], Tensor], golden: Callable[[str, str], None]
) -> None:
    kernels = [text_of(kernel.sink) for kernel in scheduled(program()).kernels]
    golden(f"cpu/{program.__name__}.txt", "\n\n".join(kernels))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_two_runs_give_identical_code(program: Callable[[], Tensor]) -> None:
    first, second = ([text_of(kernel.sink) for kernel in scheduled(program()).kernels] for _ in range(2))
    assert first == second
