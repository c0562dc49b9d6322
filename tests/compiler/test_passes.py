"""The pipeline's law: every pass leaves a kernel that the verifier accepts, every address of it proved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcq import Tensor, nn
from hcq.compiler.compile import PASSES
from hcq.compiler.target import Target
from hcq.frontend.scheduler.schedule import Schedule, schedule
from hcq.frontend.scheduler.structure import structure_of
from hcq.ir.verify import verify

TARGET = Target("cpu", "x86_64", "passes", 2, 512, 32, l1_bytes=48 << 10, l2_bytes=1 << 20, cpu="x86-64-v4")


def memory(*shape: int) -> Tensor:
    return Tensor.zeros(*shape).contiguous().realize()


def training_step() -> list[Tensor]:
    """A strided, padded convolution, pooling, normalisation and a loss, with all gradients."""
    first, second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, stride=2, padding=1)
    norm, last = nn.BatchNorm2d(8), nn.Linear(32, 10)
    hidden = norm(second(first(memory(2, 1, 8, 8)).relu())).relu().max_pool2d(3, 2, 1)
    loss = last(hidden.flatten(1)).cross_entropy(Tensor([1, 2]))
    loss.backward()
    layers = (first, second, norm, last)
    return [loss, *[p.grad for layer in layers for p in layer.parameters() if p.grad is not None]]


def gathering() -> list[Tensor]:
    """Indices from memory, negative ones too, padding around what they find, and a scatter behind a gradient."""
    table = memory(7, 5)
    table.requires_grad = True
    where = Tensor([3, -1, 0])
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
        for name, _, run in PASSES:
            sink = run(sink, TARGET)
            assert [] == verify(sink, "kernel"), name
