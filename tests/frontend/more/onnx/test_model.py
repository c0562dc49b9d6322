"""A model is a function of its inputs by name: what is known is computed before, and a second call is a recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hcq import Tensor, UsageError, dtypes
from hcq.frontend.more.onnx import OnnxModel
from hcq.frontend.more.onnx.model import Port
from tests.frontend.onnx_files import function, graph, model, node, tensor, value

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def test_inputs_and_outputs_have_the_names_shapes_and_dtypes_of_the_file() -> None:
    made = OnnxModel(
        model(graph([node("Relu", ["x"], ["y"])], [value("x", shape=["batch", 4])], [value("y", "float32")]))
    )
    assert made.inputs == [Port("x", ("batch", 4), dtypes.float32)]
    assert made.outputs == [Port("y", None, dtypes.float32)]
    np.testing.assert_array_equal(made(x=X)["y"].numpy(), X.clip(0))
    np.testing.assert_array_equal(made(x=Tensor(X[:2]))["y"].numpy(), X[:2].clip(0))


def test_wrong_inputs_are_refused_by_name() -> None:
    made = OnnxModel(
        model(
            graph(
                [node("Add", ["a", "b"], ["y"])],
                [value("a", shape=["n", 4]), value("b", shape=["n", 4])],
                [value("y")],
            )
        )
    )
    for inputs, why in [
        ({"a": X}, "needs b, too"),
        ({"a": X, "b": X, "c": X}, "'c' is no input"),
        ({"a": X, "b": X.astype(np.float64)}, "b is float64, and the model takes float32"),
        ({"a": X, "b": X[0]}, "shape"),
        ({"a": X, "b": X[:2]}, "'n' is 2; in a it is 3"),
        ({"a": X, "b": X[:, :2]}, r"takes \(n, 4\)"),
    ]:
        with pytest.raises(UsageError, match=why):
            made(**inputs)


def test_a_file_is_read_and_its_errors_name_it(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph([node("Neg", ["x"], ["y"])], [value("x")], [value("y")])))
    assert OnnxModel(path)(x=X)["y"].tolist() == (-X).tolist()
    with pytest.raises(UsageError, match=r"gone.onnx: No such file"):
        OnnxModel(tmp_path / "gone.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(UsageError, match="it has no graph"):
        OnnxModel(tmp_path / "empty.onnx")


def reshaping() -> bytes:
    """x.view(x.shape[0], 2, -1) as exporters write it."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
        node("Mul", ["y", "factor"], ["z"]),
    ]
    constants = [
        tensor("zero", np.array(0)), tensor("axes", np.array([0])), tensor("rest", np.array([2, -1])),
        tensor("factor", np.float32(3)),
    ]  # fmt: skip
    return model(graph(nodes, [value("x")], [value("z")], constants))


def test_arithmetic_with_shapes_is_done_on_the_host_and_the_second_call_is_a_recording() -> None:
    made = OnnxModel(reshaping())
    for batch in (3, 3, 3, 6, 6, 6):
        x = np.random.default_rng(batch).standard_normal((batch, 4)).astype(np.float32)
        np.testing.assert_array_equal(made(x=x)["z"].numpy(), x.reshape(batch, 2, 2) * 3)
        assert not made.why_not_recorded
    for plan in made._plans.values():
        (recorded,) = plan.recorded.values()
        assert recorded.kernels == 1  # type: ignore[attr-defined]


def test_results_of_a_recording_stay_when_it_is_called_again() -> None:
    made = OnnxModel(reshaping())
    results = [made(x=X + i)["z"] for i in range(5)]
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result.numpy(), (X + i).reshape(3, 2, 2) * 3)


def test_an_input_that_says_a_shape_may_be_another_one_in_each_call() -> None:
    made = OnnxModel(
        model(
            graph(
                [node("Reshape", ["x", "shape"], ["r"]), node("Neg", ["r"], ["y"])],
                [value("x"), value("shape", "int64")],
                [value("y")],
            )
        )
    )
    for shape in ((4, 3), (4, 3), (4, 3), (2, 6), (2, 6), (4, 3)):
        assert made(x=X, shape=np.array(shape))["y"].tolist() == (-X).reshape(shape).tolist()


def test_what_depends_on_computed_numbers_is_run_and_not_recorded() -> None:
    made = OnnxModel(
        model(
            graph(
                [node("Relu", ["x"], ["r"]), node("NonZero", ["r"], ["p"]), node("Shape", ["p"], ["s"])],
                [value("x")],
                [value("s", "int64"), value("p", "int64")],
            )
        )
    )
    for shift in (0, 1, 2, 3):
        found = made(x=X - shift)
        assert found["s"].tolist() == [2, int((X - shift > 0).sum())]
        np.testing.assert_array_equal(found["p"].numpy(), np.stack(np.nonzero(X - shift > 0)))
    assert "recording" in made.why_not_recorded or "host" in made.why_not_recorded


def test_a_function_of_the_file_is_put_in_its_place() -> None:
    own = function(
        "twice_and_one", "own", ["a"], ["b"], [node("Add", ["a", "a"], ["m"]), node("Sub", ["m", "a"], ["b"])]
    )
    outer = function("f", "own", ["a"], ["b"], [node("twice_and_one", ["a"], ["b"], domain="own")])
    nodes = [node("f", ["x"], ["m"], domain="own"), node("f", ["m"], ["y"], domain="own")]
    made = OnnxModel(model(graph(nodes, [value("x")], [value("y")]), functions=[own, outer], own=1))
    assert [step.op for step in made.block.steps] == ["Add", "Sub", "Add", "Sub"]
    assert made(x=X)["y"].tolist() == X.tolist()


def test_if_takes_a_branch_and_sees_the_values_around_it() -> None:
    one, other = (graph([node(op, ["x"], ["r"])], [], [value("r")]) for op in ("Neg", "Relu"))
    made = OnnxModel(
        model(
            graph(
                [node("If", ["c"], ["y"], then_branch=one, else_branch=other)],
                [value("c", "bool"), value("x")],
                [value("y")],
            )
        )
    )
    for condition in (True, False, True, False):
        assert made(c=np.array(condition), x=X)["y"].tolist() == (-X if condition else X.clip(0)).tolist()


def test_a_loop_carries_its_states_and_stacks_what_else_its_turns_give() -> None:
    body = graph(
        [
            node("Add", ["state", "x"], ["next"]),
            node("Identity", ["next"], ["shown"]),
            node("Identity", ["goes"], ["on"]),
        ],
        [value("i", "int64"), value("goes", "bool"), value("state")],
        [value("on", "bool"), value("next"), value("shown")],
    )
    made = OnnxModel(
        model(
            graph(
                [node("Loop", ["count", "", "x"], ["last", "all"], body=body)],
                [value("count", "int64"), value("x")],
                [value("last"), value("all")],
            )
        )
    )
    for count in (3, 3, 1):
        found = made(count=np.array(count), x=X)
        assert found["last"].tolist() == (X * (count + 1)).tolist()
        assert found["all"].tolist() == [(X * (i + 2)).tolist() for i in range(count)]


def test_softmax_is_over_all_later_axes_before_version_13() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    whole = graph([node("Softmax", ["x"], ["y"], axis=1)], [value("x")], [value("y")])

    def softmax(z: np.ndarray, axis: int) -> np.ndarray:
        powers = np.exp(z - z.max(axis, keepdims=True))
        return powers / powers.sum(axis, keepdims=True)

    old, new = (OnnxModel(model(whole, opset=opset))(x=x)["y"].numpy() for opset in (11, 13))
    np.testing.assert_allclose(old, softmax(x.reshape(2, 12), 1).reshape(2, 3, 4), rtol=1e-5)
    np.testing.assert_allclose(new, softmax(x, 1), rtol=1e-5)


def test_axes_are_attributes_in_old_files_and_inputs_in_new_ones() -> None:
    x = X.reshape(1, 3, 1, 4)
    old = model(graph([node("Squeeze", ["x"], ["y"], axes=[0, 2])], [value("x")], [value("y")]), opset=11)
    new = model(
        graph(
            [node("Squeeze", ["x", "a"], ["y"])], [value("x")], [value("y")], [tensor("a", np.array([0, 2]))]
        ),
        opset=13,
    )
    assert OnnxModel(old)(x=x)["y"].tolist() == OnnxModel(new)(x=x)["y"].tolist() == X.tolist()


def test_a_shape_that_does_not_fit_names_its_node() -> None:
    made = OnnxModel(
        model(graph([node("MatMul", ["a", "b"], ["y"])], [value("a"), value("b")], [value("y")]))
    )
    with pytest.raises(UsageError, match=r"\[OnnxModel\] MatMul 'matmul_y'"):
        made(a=X, b=X)


def test_regions_are_pooled_to_their_greatest_elements() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
    rois = np.array(
        [[0, 0, 0, 3, 3], [1, 2, 1, 5, 4]], np.float32
    )  # image, left, top, right, bottom, inclusive
    made = OnnxModel(
        model(
            graph(
                [node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[2, 2])],
                [value("x"), value("rois")],
                [value("y")],
            )
        )
    )
    found = made(x=x, rois=rois)["y"].numpy()
    for region, (image, left, top, right, bottom) in zip(found, rois.astype(int)):
        cut = x[image, :, top : bottom + 1, left : right + 1]
        assert region[:, 0, 0].tolist() == cut[:, :2, :2].max((1, 2)).tolist()
        assert region.max((1, 2)).tolist() == cut.max((1, 2)).tolist()
