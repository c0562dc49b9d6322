"""Models of operator set 6: broadcasting that has to be asked for, and layers that are told whether this is a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq import UsageError
from hcq.frontend.more.onnx import OnnxModel
from tests.frontend.onnx_files import graph, model, node, value

X = np.arange(12, dtype=np.float32).reshape(2, 3, 2) - 5
THREE, TWO = np.array([1, 2, 3], np.float32), np.array([1, 2], np.float32)


def computed(op: str, arrays: Any, outputs: int = 1, **attributes: Any) -> list[Any]:
    """What a model of one node of version 6 gives."""
    names, results = [f"i{i}" for i in range(len(arrays))], [f"o{i}" for i in range(outputs)]
    whole = graph(
        [node(op, names, results, **attributes)],
        [value(name, array.dtype.name, array.shape) for name, array in zip(names, arrays)],
        [value(name) for name in results],
    )
    found = OnnxModel(model(whole, 6))(**dict(zip(names, arrays)))
    return [found[name].numpy() for name in results]


@pytest.mark.parametrize(
    ("op", "act"),
    [
        ("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide),
        ("Greater", np.greater), ("Less", np.less),
    ],
)  # fmt: skip
def test_the_second_operand_stands_beside_the_axes_that_the_node_names(op: str, act: Any) -> None:
    np.testing.assert_allclose(computed(op, (X, X + 20))[0], act(X, X + 20), rtol=1e-6)
    np.testing.assert_allclose(computed(op, (X, TWO), broadcast=1)[0], act(X, TWO), rtol=1e-6)
    np.testing.assert_allclose(
        computed(op, (X, THREE), broadcast=1, axis=1)[0], act(X, THREE[:, None]), rtol=1e-6
    )
    np.testing.assert_allclose(computed(op, (X, TWO[1:]), broadcast=1)[0], act(X, 2), rtol=1e-6)


def test_bools_and_integers_follow_the_same_rule() -> None:
    some, few = X > 0, np.array([True, False, True])
    for op, act in (("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor)):
        assert np.array_equal(computed(op, (some, few), broadcast=1, axis=1)[0], act(some, few[:, None]))
    whole = X.astype(np.int64)
    assert np.array_equal(computed("Equal", (whole, whole[0]), broadcast=1)[0], whole == whole[0])
    np.testing.assert_allclose(computed("Pow", (np.abs(X), TWO), broadcast=1)[0], np.abs(X) ** TWO, rtol=1e-5)


@pytest.mark.parametrize(
    ("arrays", "attributes", "why"),
    [
        ((X, TWO), {}, "differ, and broadcast is 0"),
        ((X, THREE), {"broadcast": 1}, "does not stand beside the last axes"),
        ((X, THREE), {"broadcast": 1, "axis": 2}, "does not stand beside axes from 2 on"),
        ((X[0, 0], X), {"broadcast": 1}, "does not stand beside the last axes"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(arrays: Any, attributes: dict[str, int], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        computed("Add", arrays, **attributes)


def test_layers_compute_what_they_do_in_later_versions() -> None:
    flat, product = X.reshape(4, 3), np.ones((3, 2), np.float32)
    np.testing.assert_allclose(
        computed("Gemm", (flat, product, TWO), broadcast=1, alpha=2.0, beta=0.5)[0],
        2 * flat @ product + 0.5 * TWO,
        rtol=1e-6,
    )
    column = THREE[:, None]
    np.testing.assert_allclose(computed("PRelu", (X, THREE))[0], np.where(X < 0, X * column, X))
    np.testing.assert_allclose(computed("PRelu", (X, TWO[1:]))[0], np.where(X < 0, X * 2, X))
    np.testing.assert_allclose(
        computed("BatchNormalization", (X, THREE, THREE, THREE, THREE), is_test=1)[0],
        (X - column) / np.sqrt(column + 1e-5) * column + column,
        rtol=1e-5,
    )
    images = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    np.testing.assert_array_equal(
        computed("Upsample", (images,), height_scale=2.0, width_scale=3.0)[0],
        images.repeat(2, 2).repeat(3, 3),
    )


def test_batch_normalization_in_training_gives_the_numbers_of_the_batch() -> None:
    _, running, _, mean, var = computed("BatchNormalization", (X, THREE, THREE, THREE, THREE), 5)
    np.testing.assert_allclose(mean, X.mean((0, 2)), rtol=1e-6)
    np.testing.assert_allclose(var, X.var((0, 2)), rtol=1e-6)
    np.testing.assert_allclose(running, THREE * 0.9 + X.mean((0, 2)) * 0.1, rtol=1e-6)


def test_dropout_drops_unless_this_is_a_test() -> None:
    ones = np.ones((64, 64), np.float32)
    assert np.array_equal(computed("Dropout", (ones,), is_test=1)[0], ones)
    found, kept = computed("Dropout", (ones,), 2, ratio=0.25)
    assert set(np.unique(kept)) == {0, 1} and 0.6 < kept.mean() < 0.9
    np.testing.assert_allclose(found, kept / 0.75)


def test_recurrent_layers_are_told_of_the_sequence_by_their_outputs() -> None:
    x, w, r = (np.full(shape, 0.25, np.float32) for shape in ((3, 1, 2), (1, 2, 2), (1, 2, 2)))
    state = np.zeros((1, 2), np.float32)
    for step in x:
        state = np.tanh(step @ w[0].T + state @ r[0].T)
    every, last = computed("RNN", (x, w, r), 2, hidden_size=2, output_sequence=1)
    np.testing.assert_allclose(last[0], state, rtol=1e-5)
    np.testing.assert_allclose(every[-1, 0], state, rtol=1e-5)
