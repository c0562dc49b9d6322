"""The passes: each leaves a kernel that the verifier accepts, and each can be printed, timed and counted."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

import hcq
from hcq import Tensor, dtypes, nn
from hcq.compiler import pipeline
from hcq.compiler.__main__ import main as list_passes
from hcq.compiler.compile import compile_kernel
from hcq.compiler.pipeline import PASSES, lower
from hcq.compiler.target import Target, cpu_target
from hcq.frontend.core.structure import structure_of
from hcq.frontend.schedule.schedule import Schedule, schedule
from hcq.ir.rewrite import LatePass, Pass
from hcq.ir.verify import VerifyError, verify

TARGET = Target("cpu", "x86_64", "passes", 2, 512, 32, l1_bytes=48 << 10, l2_bytes=1 << 20, cpu="x86-64-v4")


def memory(*shape: int) -> Tensor:
    return Tensor.zeros(*shape).contiguous().realize()


def training_step() -> list[Tensor]:
    """A strided, padded convolution, pooling, normalisation and a loss, with all gradients."""
    first, second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, stride=2, padding=1)
    norm, last = nn.BatchNorm2d(8), nn.Linear(32, 10)
    hidden = norm(second(first(memory(2, 1, 8, 8)).relu())).relu().max_pool2d(3, 2, 1)
    loss = last(hidden.flatten(1)).cross_entropy(hcq.tensor([1, 2]))
    loss.backward()
    layers = (first, second, norm, last)
    return [loss, *[p.grad for layer in layers for p in layer.parameters() if p.grad is not None]]


def gathering() -> list[Tensor]:
    """Indices from memory, negative ones too, padding around what they find, and a scatter behind a gradient."""
    table = memory(7, 5)
    table.requires_grad = True
    where = hcq.tensor([3, -1, 0])
    found = table[where].pad((1, 1))
    found.sum().backward()
    assert table.grad is not None
    return [found.exp(), table.grad, table[where, 2], table[1:, where]]


def views() -> list[Tensor]:
    """Reshapes of permuted, padded, flipped and joined tensors."""
    x, y = memory(4, 6, 5), memory(4, 6, 5)
    turned = x.permute(2, 0, 1).pad((1, 2)).reshape(5 * 4, 9).flip(0)
    return [
        turned + 1.0,
        Tensor.cat([x, y.exp()], 1).permute(2, 1, 0).reshape(60, 4).sum(1),
        x[::2, ::-2] * 2.0,
    ]


def scheduled(results: list[Tensor]) -> Schedule:
    roots = [result.node for result in results]
    return schedule(roots, structure_of(roots).storages, threads=TARGET.threads)


@pytest.mark.parametrize("program", [training_step, gathering, views])
def test_every_pass_leaves_a_kernel_the_verifier_accepts(program: Callable[[], list[Tensor]]):
    kernels = scheduled(program()).kernels
    assert kernels
    for kernel in kernels:
        sink = kernel.sink
        assert [] == verify(sink, "tensor")
        for step in PASSES:
            sink = step.run(sink, TARGET)
            assert [] == verify(sink, "kernel"), step.name


def test_a_pass_is_found_in_the_file_of_its_name():
    for step in PASSES:
        module = importlib.import_module(f"hcq.compiler.passes.{step.name.replace('-', '_')}")
        found = step.load() if isinstance(step, LatePass) else step
        assert found is getattr(module, step.name.replace("-", "_"))
        assert found.name == step.name


def test_a_pass_prints_why_it_is_there_and_counts_only_what_it_prints():
    halves = memory(8).cast(dtypes.float16) * 3.0 + 1.0
    for kernel in scheduled([*training_step(), *gathering(), *views(), halves]).kernels:
        lower(kernel.sink, TARGET)
    for step in PASSES:
        assert str(step).startswith(f"{step.name}: {step.why}\n")
        assert set(step.counts) <= {rule.name for rule in step.rules}
        assert step.seconds > 0


def test_who_watches_a_kernel_sees_the_time_of_each_station_and_each_rule():
    (kernel,) = scheduled([(memory(8, 8) * 1.0).exp()]).kernels
    shown: dict[str, str] = {}
    lines: list[str] = []
    compile_kernel(kernel.sink, cpu_target(), show=shown.__setitem__, trace=lines.append)
    assert set(shown) == {"graph", "ir", "code", "passes"}
    rows = [line.split() for line in shown["passes"].splitlines()[1:]]
    stations = [*[step.name for step in PASSES], "choose", "linearize", "render", "assemble", "together"]
    assert stations == [row[0] for row in rows]
    assert all(row[2] == "ms" and float(row[1]) >= 0 for row in rows)
    assert rows[stations.index("decompose")][5:] == ["exp", "1"]
    assert "decompose/exp: exp(load) -> mul(mul, where)" in lines


def test_who_reads_the_trace_learns_which_pass_broke_a_law(monkeypatch):
    (kernel,) = scheduled([memory(8, 8) * 2.0]).kernels
    broken = Pass(
        "break", "a test", [], lambda root, target, notes: root.replace(src=root.src + root.src[0].src[:1])
    )
    monkeypatch.setattr(pipeline, "PASSES", (*PASSES, broken))
    with pytest.raises(VerifyError, match=r"after break, kernel stage: .* SINK holds STOREs"):
        compile_kernel(kernel.sink, cpu_target(), trace=lambda line: None)


def test_the_command_lists_the_passes_and_prints_the_rules_of_those_it_is_given(capsys):
    assert list_passes([]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        step.name for step in PASSES
    ]
    assert list_passes(["decompose"]) == 0
    assert "exp(x) -> transcendental.exp(x)\n" in capsys.readouterr().out
    assert list_passes(["unroll"]) == 2
    assert "no pass unroll; the passes are lower-movement" in capsys.readouterr().err


def test_the_examples_of_the_page_about_passes_are_true():
    page = Path(__file__).parents[2] / "docs" / "passes.md"
    assert doctest.testfile(str(page), module_relative=False) == (0, 7)
