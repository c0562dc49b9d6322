"""The mistakes people make most, and the sentence each one gets: the call, the arguments, the fix."""

from __future__ import annotations

import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def matrix(*shape: int) -> Tensor:
    return Tensor.ones(*shape)


MISTAKES = [
    (
        "matmul of sizes that differ",
        lambda: matrix(2, 3) @ matrix(4, 5),
        "[matmul] (2, 3) @ (4, 5): inner sizes 3 and 4 differ. Transpose one side or reshape.",
    ),
    (
        "shapes that do not broadcast",
        lambda: matrix(2, 3) + matrix(2, 4),
        (
            "[+] shapes (2, 3) and (2, 4) do not broadcast: axis -1 has sizes 3 and 4. "
            "Reshape one, or add an axis with unsqueeze."
        ),
    ),
    (
        "a reshape of another size",
        lambda: matrix(2, 3).reshape(4, 2),
        (
            "[reshape] (2, 3) to (4, 2): 6 elements do not fill 8 places. "
            "Give sizes whose product is 6; one may be -1."
        ),
    ),
    (
        "an axis that is not there",
        lambda: matrix(2, 3).sum(2),
        "[sum] axis 2 of a tensor of shape (2, 3): out of range; use -2 to 1.",
    ),
    (
        "an index out of range",
        lambda: matrix(2, 3)[5],
        "[index] 5 on axis 0 of shape (2, 3): out of range; use -2 to 1.",
    ),
    (
        "the mean of integers",
        lambda: hcq.tensor([1, 2]).mean(),
        "[mean] int64 has no fractions. Cast first: x.float().mean(), or give dtype=dtypes.float32.",
    ),
    (
        "a ragged list",
        lambda: hcq.tensor([[1, 2], [3]]),
        (
            "[Tensor] the list is ragged: at depth 0, item 0 has shape (2,) and item 1 has shape (1,). "
            "Make all items one shape."
        ),
    ),
    (
        "the item of many",
        lambda: matrix(2, 3).item(),
        "[item] shape (2, 3) has 6 elements. Use tolist() or numpy().",
    ),
    (
        "the truth of many",
        lambda: bool(matrix(2)),
        "[bool] shape (2,) has 2 elements: its truth is unclear. Use any() or all().",
    ),
    (
        "integer division by zero",
        lambda: hcq.tensor([1, 2]) // 0,
        "[//] integer tensor of shape (2,) // 0: division by zero. Use another divisor.",
    ),
    (
        "a number that does not fit",
        lambda: Tensor([300], dtype=dtypes.uint8),
        "[Tensor] 300 does not fit in uint8 (0 to 255). Use a wider dtype.",
    ),
    (
        "assigning another shape",
        lambda: Tensor([1.0, 2.0]).assign(matrix(3)),
        "[assign] (3,) into (2,): the shapes must be equal. Reshape or expand it.",
    ),
    (
        "assigning another dtype",
        lambda: Tensor([1.0, 2.0]).assign(hcq.tensor([1, 2])),
        "[assign] int64 into float32: cast it: y.cast(dtypes.float32).",
    ),
    (
        "joining tensors without a list",
        lambda: Tensor.cat(matrix(2)),
        "[cat] takes a list of tensors: Tensor.cat([a, b], dim=0).",
    ),
    (
        "a dtype by the wrong kind of word",
        lambda: Tensor([1], dtype="float"),
        "[Tensor] dtype 'float' is not a dtype. Use one of hcq.dtypes, as dtypes.float32.",
    ),
]


@pytest.mark.parametrize(
    "call, sentence", [(c, s) for _, c, s in MISTAKES], ids=[name for name, _, _ in MISTAKES]
)
def test_a_mistake_gets_a_sentence_that_names_the_fix(call, sentence):
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value) == sentence


def test_errors_are_also_the_built_in_ones_that_python_readers_catch():
    with pytest.raises(IndexError):
        matrix(2)[3]
    with pytest.raises(ZeroDivisionError):
        hcq.tensor([1]) % 0
    with pytest.raises(ValueError):
        matrix(2).reshape(3)


def test_an_unknown_device_is_refused_by_name():
    with pytest.raises(UsageError, match="TPU"):
        hcq.tensor([1], device="TPU")


@pytest.mark.parametrize("data", ["text", object(), [1, "2"], [None], {1: 2}])
def test_what_is_no_number_is_refused(data):
    with pytest.raises(UsageError, match=r"^\[Tensor\]"):
        Tensor(data)
