"""Printing: print(x) shows numbers, as PyTorch shows them; repr(x) computes nothing."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError, dtypes, jit


@pytest.fixture(autouse=True)
def usual_options():
    yield
    hcq.set_printoptions(profile="default")


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (
            Tensor([[1.0, 2.5], [-3.0, 100.0]]),
            "tensor([[  1.0000,   2.5000],\n        [ -3.0000, 100.0000]])",
        ),
        (Tensor([1.0, -2.0]), "tensor([ 1., -2.])"),
        (hcq.tensor([1, -20]), "tensor([  1, -20])"),
        (hcq.tensor([True, False]), "tensor([ True, False])"),
        (Tensor(3.5), "tensor(3.5000)"),
        (Tensor([]), "tensor([])"),
        (Tensor.zeros(0, 3), "tensor([], size=(0, 3))"),
        (Tensor([1], dtype=dtypes.int32), "tensor([1], dtype=int32)"),
        (Tensor([1.0], requires_grad=True), "tensor([1.], requires_grad=True)"),
        (Tensor([float("nan"), 1.5, float("inf")]), "tensor([   nan, 1.5000,    inf])"),
        (Tensor([1e-5, 1000.0]), "tensor([1.0000e-05, 1.0000e+03])"),
        (Tensor([1 + 2j, 3.5 - 1j]), "tensor([1.0000+2.j, 3.5000-1.j])"),
    ],
)
def test_numbers_are_aligned_and_what_is_not_usual_is_said(tensor, text):
    assert str(tensor) == f"{tensor}" == text


def test_a_long_tensor_is_shown_by_its_edges():
    assert str(Tensor.arange(3000).reshape(30, 100)).splitlines() == [
        "tensor([[   0,    1,    2,  ...,   97,   98,   99],",
        "        [ 100,  101,  102,  ...,  197,  198,  199],",
        "        [ 200,  201,  202,  ...,  297,  298,  299],",
        "        ...,",
        "        [2700, 2701, 2702,  ..., 2797, 2798, 2799],",
        "        [2800, 2801, 2802,  ..., 2897, 2898, 2899],",
        "        [2900, 2901, 2902,  ..., 2997, 2998, 2999]])",
    ]
    hcq.set_printoptions(threshold=5, edgeitems=1)
    assert str(Tensor.arange(8)) == "tensor([0,  ..., 7])"
    hcq.set_printoptions(profile="full")
    assert "..." not in str(Tensor.arange(2000))


def test_options_are_kept_and_refused_by_name():
    hcq.set_printoptions(precision=2, linewidth=40, sci_mode=True)
    assert hcq.get_printoptions()["linewidth"] == 40
    assert str(Tensor([1.0, 22.345])) == "tensor([1.00e+00, 2.23e+01])"
    with pytest.raises(UsageError, match=r"\[set_printoptions\] precision=-1: give a number"):
        hcq.set_printoptions(precision=-1)
    with pytest.raises(UsageError, match="use one of default, short, full"):
        hcq.set_printoptions(profile="loud")


def test_repr_says_what_a_tensor_is_and_computes_nothing():
    x = Tensor([1.0]) + 1
    assert repr(x) == f"Tensor(shape=(1,), dtype=float32, device={x.device}, lazy)"
    assert repr(x).endswith("lazy)")
    print(x)
    assert repr(x).endswith("lazy)") or repr(x).endswith("in memory)")
    assert f"{Tensor(2.5):.2f}" == "2.50"


def test_a_recording_prints_what_it_knows(capsys):
    @jit
    def function(x):
        print(x)
        return x * 2

    for _ in range(3):
        assert function(Tensor([4.0])).tolist() == [8.0]
    assert capsys.readouterr().out.startswith("Tensor(shape=(1,), dtype=float32")


@pytest.mark.torch
def test_pytorch_prints_the_same():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    normal = rng.standard_normal
    arrays = [
        normal((3, 4)), normal((2, 3, 4)) * 1e6, np.arange(2000.0), normal((100, 50)), np.arange(50.0),
        np.array([1e10, 1.0]), np.array([0.0, -0.0]), np.array([[0.1]]), np.array([-1e-7, 3.0]),
    ]  # fmt: skip
    for array in [
        *(a.astype(np.float32) for a in arrays),
        np.arange(1200).reshape(2, 3, 200),
        np.array([-1, 200000]),
    ]:
        assert str(Tensor(array)) == str(torch.from_numpy(array))


def test_free_functions_are_the_methods_and_unknown_ones_say_what_is_named_alike():
    x = Tensor([3.0, -1.0])
    assert hcq.relu(x).tolist() == x.relu().tolist()
    assert hcq.cat([x, x]).shape == (4,) and hcq.where(x > 0, x, 0.0).tolist() == [3.0, 0.0]
    assert hcq.subtract(x, 1).tolist() == [2.0, -2.0] and hcq.relu_(x) is x
    assert {"einsum", "zeros_like", "subtract", "set_printoptions", "float32", "Tensor"} <= set(
        dir(hcq.torch)
    )
    with pytest.raises(AttributeError, match=r"\[soft_max\] module 'hcq' has no .* Named alike: softmax"):
        hcq.soft_max  # noqa: B018
    with pytest.raises(UsageError, match=r"\[add\] out=1: use the result"):
        hcq.add(x, x, out=1)
