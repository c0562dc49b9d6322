"""Attention beside PyTorch, forwards and backwards; and no matrix of scores in memory, whoever writes it how."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.structure import structure_of
from hcq.frontend.grad.gradient import grad
from hcq.frontend.run.realize import realize
from hcq.frontend.schedule import scores
from hcq.frontend.schedule.schedule import schedule
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from tests.compiler.emulated_gpus import machine_of

pytestmark = pytest.mark.own_devices

NARROW = ("float16", "bfloat16")
GPUS = {"CPU": "", "NV": "nv:sm_80", "AMD": "amd:gfx1100", "AMD:1": "amd:gfx942"}

# heads, queries, keys, width, width of values, further arguments
CASES = {
    "plain": ((2, 2), 96, 80, 8, 8, {}),
    "one head of keys for two": ((4, 2), 70, 66, 8, 8, {"is_causal": True, "enable_gqa": True}),
    "ragged and causal": ((1, 1), 75, 133, 12, 10, {"is_causal": True}),
    "where one may look": ((2, 2), 67, 65, 8, 8, {"attn_mask": "bool"}),
    "numbers to add": ((2, 2), 67, 65, 8, 8, {"attn_mask": "float", "scale": 0.5}),
}


@pytest.fixture(autouse=True)
def few_scores_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "LARGE_SCORES", 1 << 10)


machine = machine_of(*filter(None, GPUS.values()))


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT * 0.25).softmax(-1) @ v


def close(actual: Any, expected: Any, dtype: str) -> None:
    tolerance = {"float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}[dtype]
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


QUICK = [
    ("one head of keys for two", "CPU", "float32"),
    ("ragged and causal", "CPU", "bfloat16"),
    ("numbers to add", "CPU", "float32"),
    ("where one may look", "NV", "float32"),
    ("ragged and causal", "NV", "float16"),
    ("one head of keys for two", "AMD", "float32"),
    ("ragged and causal", "AMD:1", "bfloat16"),
]
ALL = [(case, device, "float32") for case in CASES for device in GPUS]
ALL += [(case, device, d) for case in ("plain", "ragged and causal") for device in GPUS for d in NARROW]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("case", "device", "dtype"),
    [pytest.param(*one, marks=() if one in QUICK else pytest.mark.thorough) for one in ALL],
)
def test_attention_and_its_gradients_are_pytorchs(machine: None, case: str, device: str, dtype: str) -> None:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    (heads, kept), n, m, width, across, how = CASES[case]
    narrow = getattr(torch, dtype)
    arrays = [
        torch.tensor(numbers(shape, seed)).to(narrow).float()
        for seed, shape in enumerate(
            [(1, heads, n, width), (1, kept, m, width), (1, kept, m, across), (1, heads, n, across)]
        )
    ]
    masks = {"bool": torch.tensor(numbers((n, m), 9) < 0.8), "float": torch.tensor(numbers((heads, n, m), 9))}
    theirs, ours = dict(how), dict(how)
    if "attn_mask" in how:
        theirs["attn_mask"] = masks[how["attn_mask"]]
        ours["attn_mask"] = Tensor(theirs["attn_mask"].numpy(), device=device)
    leaves = [x.clone().requires_grad_() for x in arrays[:3]]
    want = scaled_dot_product_attention(*leaves, **theirs)
    want.backward(arrays[3])

    q, k, v, g = (Tensor(x.numpy(), device=device).cast(getattr(dtypes, dtype)) for x in arrays)
    q, k, v, g = (Tensor(x) for x in (q, k, v, g))
    realize([q, k, v, g])
    got = q.scaled_dot_product_attention(k, v, **ours)
    slopes = grad([got], [q, k, v], [g])
    realize([got, *slopes])
    close(got.float().numpy(), want.detach().numpy(), dtype)
    for slope, leaf in zip(slopes, leaves, strict=True):
        close(slope.float().numpy(), leaf.grad.numpy(), dtype)


def values_of(result: Tensor, inputs: list[Tensor]) -> tuple[int, int]:
    """The largest value and the number of kernels, of a result and of the way back to its inputs."""
    seeds = [Tensor(numbers(result.shape, 5)).cast(result.dtype).realize()]
    roots = [result.node, *(part.node for part in grad([result], inputs, seeds))]
    made = schedule(roots, structure_of(roots).storages, 2)
    return max(prod(value.shape) for value in made.values), len(made.kernels)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("is_by_hand", [False, True], ids=["called", "by-hand"])
def test_no_matrix_of_scores_is_in_memory_either_way(dtype: Any, is_by_hand: bool) -> None:
    q, k, v = (Tensor(numbers((1, 2, n, 16), n)).cast(dtype).realize() for n in (192, 160, 160))
    result = by_hand(q, k, v) if is_by_hand else q.scaled_dot_product_attention(k, v)
    roots = [result.node]
    made = schedule(roots, structure_of(roots).storages, 2)
    assert len(made.kernels) == 1  # maximum, sum and product in one pass over the keys
    largest, kernels = values_of(result, [q, k, v])
    assert largest == 2 * 192 * 16
    assert kernels <= (6 if is_by_hand else 5)  # keys' and values' gradients are made of one set of scores


def test_gradients_that_are_too_wide_for_registers_together_are_two_kernels() -> None:
    for width, kernels in ((64, 5), (80, 6)):
        q, k, v = (Tensor(numbers((1, 1, n, width), n)).realize() for n in (512, 544, 544))
        assert values_of(q.scaled_dot_product_attention(k, v), [q, k, v])[1] == kernels


@pytest.mark.torch
def test_attention_by_hand_is_pytorchs() -> None:
    import torch

    arrays = [numbers((2, n, 8), n) for n in (70, 65)]
    q, k, v = (Tensor(arrays[i]).realize() for i in (0, 1, 1))
    result = by_hand(q, k, v)
    slopes = grad([result.sum()], [q, k])
    leaves = [torch.tensor(array, requires_grad=True) for array in arrays]
    want = (leaves[0] @ leaves[1].mT * 0.25).softmax(-1) @ leaves[1].detach()
    want.sum().backward()
    close(result.numpy(), want.detach().numpy(), "float32")
    for slope, leaf in zip(slopes, leaves, strict=True):
        close(slope.numpy(), leaf.grad.numpy(), "float32")


@pytest.mark.torch
def test_gradients_alone_and_rows_of_the_result_that_are_folded_are_pytorchs() -> None:
    """Nothing else asks for the result here, and yet no kernel makes it inside of another reduction."""
    import torch
    from torch.nn.functional import layer_norm, scaled_dot_product_attention

    arrays = [numbers((1, 2, n, 16), n) for n in (70, 66, 67, 71)]
    arrays = [array[..., :66, :] for array in arrays]
    leaves = [torch.tensor(array, requires_grad=True) for array in arrays]
    want = scaled_dot_product_attention(*leaves[:3])
    q, k, v, g = (Tensor(array).realize() for array in arrays)
    got = q.scaled_dot_product_attention(k, v)
    close((got * g).sum(-1).numpy(), (want * leaves[3]).sum(-1).detach().numpy(), "float32")
    close(
        (got + g).layer_norm((16,)).numpy(), layer_norm(want + leaves[3], (16,)).detach().numpy(), "float32"
    )
    want.backward(leaves[3])
    for slope, leaf in zip(grad([got], [q, k, v], [g]), leaves[:3], strict=True):
        close(slope.numpy(), leaf.grad.numpy(), "float32")


def test_a_score_that_is_read_itself_is_kept() -> None:
    q, k, v = (Tensor(numbers((1, n, 8), n)).realize() for n in (64, 66, 66))
    weights = (q @ k.mT).softmax(-1)
    roots = [weights.node, (weights @ v).node]
    made = schedule(roots, structure_of(roots).storages, 2)
    assert max(prod(value.shape) for value in made.values) == 64 * 66


def test_the_logits_of_a_classifier_are_kept() -> None:
    """To make them again for the loss and both gradients would be twice the work."""
    x, w = (Tensor(numbers((n, 8), n)).realize() for n in (64, 300))
    target = Tensor(np.arange(64) % 300).realize()
    loss = (x @ w.mT).cross_entropy(target)
    roots = [loss.node, *(part.node for part in grad([loss], [x, w]))]
    made = schedule(roots, structure_of(roots).storages, 2)
    assert max(prod(value.shape) for value in made.values) == 64 * 300


def test_few_scores_are_kept_for_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "LARGE_SCORES", 1 << 20)
    q, k, v = (Tensor(numbers((1, 2, 96, 8), seed)).realize() for seed in range(3))
    largest, _ = values_of(q.scaled_dot_product_attention(k, v), [q, k, v])
    assert largest == 2 * 96 * 96


def test_a_row_that_may_look_nowhere_is_nan_and_leaves_the_others() -> None:
    q, k, v = (Tensor(numbers((1, n, 8), n)).realize() for n in (64, 66, 66))
    mask = np.ones((64, 66), bool)
    mask[3], mask[5, :40] = False, False
    got = q.scaled_dot_product_attention(k, v, attn_mask=Tensor(mask)).numpy()
    few = q.scaled_dot_product_attention(k[:, 40:], v[:, 40:]).numpy()
    assert np.isnan(got[0, 3]).all()
    assert np.isfinite(np.delete(got, 3, axis=1)).all()
    np.testing.assert_allclose(got[0, 5], few[0, 5], rtol=1e-5)


def test_second_derivatives_go_through_the_slopes() -> None:
    q, k, v = (Tensor(numbers((n, 2), n)).realize() for n in (34, 36, 36))

    def twice(result: Tensor) -> Any:
        (slope,) = grad([result.sum()], [q], create_graph=True)
        return grad([(slope * slope).sum()], [k])[0].numpy()

    many = twice(q.scaled_dot_product_attention(k, v))
    few = twice((q @ k.mT * 2**-0.5).softmax(-1) @ v)
    close(many, few, "float32")


def test_heads_that_do_not_divide_are_refused() -> None:
    q, k = (Tensor(numbers((1, heads, 64, 8), heads)) for heads in (4, 3))
    with pytest.raises(UsageError, match="enable_gqa"):
        q.scaled_dot_product_attention(k, k, enable_gqa=True)
