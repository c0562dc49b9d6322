"""Indices and labels that are looked at: what HCQ_CHECK_INDICES=1 refuses, and that nothing is refused without."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Tensor, config
from hcq.frontend.core.errors import OutOfRange

F = hcq.nn.functional
X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def checks():
    before = config.current()
    config.use(config.Config.read({"HCQ_CHECK_INDICES": "1"}))
    yield
    config.use(before)


def x() -> Tensor:
    return Tensor(X)


def far() -> Tensor:
    return hcq.tensor([0, 5])


WRONG = {
    "x[i]": lambda: x()[far()],
    "x[i] from the end": lambda: x()[hcq.tensor([0, -4])],
    "x[:, i]": lambda: x()[:, far()],
    "x[i] = y": lambda: x().__setitem__(far(), 1.0),
    "gather": lambda: x().gather(0, hcq.tensor([[3, 0, 0, 0]])),
    "gather below zero": lambda: x().gather(0, hcq.tensor([[-1, 0, 0, 0]])),
    "take_along_dim": lambda: x().take_along_dim(hcq.tensor([[3, 0, 0, 0]]), 0),
    "index_select": lambda: x().index_select(1, far()),
    "take": lambda: x().take(hcq.tensor([12])),
    "put": lambda: x().put(hcq.tensor([13]), Tensor([1.0])),
    "scatter": lambda: x().scatter(0, hcq.tensor([[3, 0, 0, 0]]), 1.0),
    "scatter_add": lambda: x().scatter_add(0, hcq.tensor([[3, 0, 0, 0]]), x()),
    "scatter_reduce": lambda: x().scatter_reduce(0, hcq.tensor([[3, 0, 0, 0]]), x(), "amax"),
    "index_add": lambda: x().index_add(0, far(), x()[:2]),
    "index_copy": lambda: x().index_copy(0, far(), x()[:2]),
    "index_fill": lambda: x().index_fill(0, far(), 1.0),
    "index_put": lambda: x().index_put((far(),), x()[:2]),
    "embedding": lambda: F.embedding(far(), x()),
    "embedding_bag": lambda: F.embedding_bag(hcq.tensor([[0, 3]]), x()),
    "one_hot": lambda: F.one_hot(far(), 3),
    "cross_entropy": lambda: F.cross_entropy(x(), hcq.tensor([0, 1, 4])),
    "cross_entropy below zero": lambda: F.cross_entropy(x(), hcq.tensor([0, -1, 3])),
    "a smoothed cross_entropy": lambda: F.cross_entropy(x(), hcq.tensor([0, 1, 4]), label_smoothing=0.1),
    "nll_loss": lambda: F.nll_loss(x(), hcq.tensor([0, 1, 4])),
    "multi_margin_loss": lambda: F.multi_margin_loss(x(), hcq.tensor([0, 1, 4])),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_out_of_range_is_refused_when_it_is_asked_for(name, checks):
    with pytest.raises(
        OutOfRange, match=r"\] (index|label) -?\d+, element \d+ of a tensor .*: out of range; use"
    ):
        WRONG[name]()


@pytest.mark.parametrize("name", WRONG)
def test_nothing_is_read_back_when_it_is_not(name):
    WRONG[name]()


def test_the_refusal_names_the_first_wrong_one_and_what_may_be_there(checks):
    with pytest.raises(
        OutOfRange, match=r"\[nll_loss\] label 7, element 1 .* use 0 to 3, or -100, which counts"
    ):
        F.cross_entropy(x(), hcq.tensor([0, 7, 9]))


def test_what_is_in_range_passes(checks):
    assert x()[hcq.tensor([-3, 2])].tolist() == X[[-3, 2]].tolist()
    assert np.isfinite(F.cross_entropy(x(), hcq.tensor([0, -100, 3])).item())
    assert x()[hcq.tensor([True, False, True])].shape == (2, 4)
    assert x().masked_scatter(x() > 3, x()).shape == (3, 4)
    assert x().median(0).values.tolist() == X[1].tolist() and x().sort(0).values.tolist() == X.tolist()
    assert x()[hcq.tensor([], dtype=hcq.int64)].shape == (0, 4)


def test_a_recording_is_made_as_ever(checks):
    rows = x().realize()
    step = hcq.jit(lambda index: rows[index].sum())
    assert [step(hcq.tensor([k]).realize()).item() for k in (0, 1, 2, 0)] == [6.0, 22.0, 38.0, 6.0]
