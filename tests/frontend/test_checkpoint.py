"""Checkpoints: the same values and gradients, of less memory."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Tensor, jit, nn
from hcq.errors import UsageError
from hcq.frontend.core.structure import structure_of
from hcq.frontend.run.memory_plan import share
from hcq.frontend.schedule.schedule import schedule
from hcq.torch.utils.checkpoint import checkpoint, checkpoint_sequential


def blocks(count, width):
    Tensor.manual_seed(1)
    return [
        nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 4), nn.Tanh()) for _ in range(count)
    ]


def gradients(parts, run, x):
    for part in parts:
        part.zero_grad()
    run(x).square().mean().backward()
    return [parameter.grad for part in parts for parameter in part.parameters()]


def plainly(parts):
    def run(x):
        for part in parts:
            x = part(x)
        return x

    return run


def checkpointed(parts):
    def run(x):
        for part in parts:
            x = checkpoint(part, x)
        return x

    return run


def test_gradients_need_less_memory():
    parts, x = blocks(6, 64), Tensor.ones(64, 4).realize()
    sizes = []
    for make in (plainly, checkpointed):
        found = gradients(parts, make(parts), x)
        roots = [each.node for each in found]
        made = schedule(roots, structure_of(roots).storages)
        wanted = {n: value.size_bytes for n, value in enumerate(made.values) if value.kind == "temporary"}
        sizes.append(sum(share([kernel.arguments for kernel in made.kernels], wanted)[1]))
    inner = 64 * 64 * 4  # bytes of what one part computes inside
    assert sizes[0] > 6 * inner
    assert sizes[1] < 4 * inner


def test_gradients_of_a_row_of_parts_in_segments_are_the_same():
    parts, x = blocks(2, 8), Tensor.ones(2, 4)
    a = gradients(parts, plainly(parts), x)
    b = gradients(parts, lambda x: checkpoint_sequential(nn.Sequential(*parts), 2, x), x)
    Tensor.realize(*a, *b)
    for one, two in zip(a, b):
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-6)
    with pytest.raises(UsageError, match=r"\[checkpoint_sequential\] 3 segments of 2 parts"):
        checkpoint_sequential(parts, 3, x)


def test_dropout_inside_drops_the_same_elements_again():
    x = Tensor.ones(100, requires_grad=True)
    y = checkpoint(lambda x: nn.functional.dropout(x * 2.0, 0.5), x)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())


def test_several_arguments_results_and_outer_tensors_get_their_gradients():
    w = nn.Parameter(Tensor([3.0]))
    x, y = Tensor([2.0], requires_grad=True), Tensor([5.0], requires_grad=True)
    a, b = checkpoint(lambda x, y: (x * y * w, x.exp() * w), x, y)
    (a + b).sum().backward()
    np.testing.assert_allclose(
        [x.grad.item(), y.grad.item(), w.grad.item()], [15 + 3 * np.exp(2), 6, 10 + np.exp(2)], rtol=1e-6
    )


def test_a_recorded_step_with_checkpoints_goes_on_as_eager_ones_do():
    results = []
    for wrap in (lambda f: f, jit):
        parts = blocks(2, 8)
        optimizer = nn.optim.SGD([p for part in parts for p in part.parameters()], lr=0.1)

        @wrap
        def step(x, parts=parts, optimizer=optimizer):
            optimizer.zero_grad()
            loss = checkpointed(parts)(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        results.append([step(Tensor.full((2, 4), 1.0 + n).realize()).item() for n in range(4)])
    np.testing.assert_allclose(*results, rtol=1e-6)
