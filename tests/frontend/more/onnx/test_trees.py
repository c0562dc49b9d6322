"""Ensembles of trees give what ONNX's reference evaluator gives; damaged ones are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from hcq import UsageError  # noqa: E402
from hcq.frontend.more.onnx import OnnxModel  # noqa: E402


def forest(rng: Any, targets: int, mode: str, trees: int = 3, depth: int = 3) -> dict[str, Any]:
    """Full binary trees: node i goes on to 2 i + 1 and 2 i + 2; each leaf has a vote for each target."""
    size, inner = 2 ** (depth + 1) - 1, 2**depth - 1
    nodes: dict[str, list[Any]] = {}
    votes: dict[str, list[Any]] = {}

    def add(to: dict[str, list[Any]], **values: Any) -> None:
        for name, value in values.items():
            to.setdefault(name, []).append(value)

    for tree in range(trees):
        for i in range(size):
            is_leaf = i >= inner
            add(
                nodes, nodes_treeids=tree, nodes_nodeids=i, nodes_featureids=int(rng.integers(0, 4)),
                nodes_values=float(np.float32(rng.standard_normal())), nodes_modes="LEAF" if is_leaf else mode,
                nodes_truenodeids=0 if is_leaf else 2 * i + 1, nodes_falsenodeids=0 if is_leaf else 2 * i + 2,
                nodes_missing_value_tracks_true=0,
            )  # fmt: skip
            for target in range(targets) if is_leaf else ():
                add(
                    votes,
                    treeids=tree,
                    nodeids=i,
                    ids=target,
                    weights=float(np.float32(rng.standard_normal())),
                )
    return {"nodes": nodes, "votes": votes}


def built(op: str, outputs: list[Any], made: dict[str, Any], prefix: str, **attributes: Any) -> Any:
    votes = {f"{prefix}_{name}": values for name, values in made["votes"].items()}
    names = [output.name for output in outputs]
    node = helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **made["nodes"], **votes, **attributes)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])]
    graph = helper.make_graph([node], "trees", inputs, outputs)
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def scores(name: str, kind: int = TensorProto.FLOAT, rank: int = 2) -> Any:
    return helper.make_tensor_value_info(name, kind, [None] * rank)


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_a_regressor_walks_as_the_reference_does(how: str) -> None:
    rng = np.random.default_rng(len(how))
    made = forest(rng, 2, "BRANCH_LT" if how == "MIN" else "BRANCH_LEQ")
    model = built("TreeEnsembleRegressor", [scores("y")], made, "target", n_targets=2, aggregate_function=how)
    x = rng.standard_normal((9, 4)).astype(np.float32)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(
        OnnxModel(model.SerializeToString())(x=x)["y"].numpy(), want, rtol=1e-5, atol=1e-6
    )


def test_a_classifier_gives_labels_and_scores() -> None:
    rng = np.random.default_rng(5)
    model = built(
        "TreeEnsembleClassifier", [scores("label", TensorProto.INT64, 1), scores("y")], forest(rng, 3, "BRANCH_LEQ"),
        "class", classlabels_int64s=[7, 3, 5], post_transform="SOFTMAX",
    )  # fmt: skip
    x = rng.standard_normal((9, 4)).astype(np.float32)
    labels, want = ReferenceEvaluator(model).run(None, {"x": x})
    found = OnnxModel(model.SerializeToString())(x=x)
    np.testing.assert_array_equal(found["label"].numpy(), labels)
    np.testing.assert_allclose(found["y"].numpy(), want, rtol=1e-5, atol=1e-6)


def test_trees_with_a_circle_or_a_missing_node_are_refused() -> None:
    made = forest(np.random.default_rng(0), 1, "BRANCH_LEQ", trees=1)
    for child in (0, 99):
        made["nodes"]["nodes_truenodeids"][1] = child
        model = built("TreeEnsembleRegressor", [scores("y")], made, "target", n_targets=1)
        with pytest.raises(
            UsageError, match=r"\[OnnxModel\] ai.onnx.ml.TreeEnsembleRegressor|TreeEnsembleRegressor -> y"
        ):
            OnnxModel(model.SerializeToString())(x=np.zeros((1, 4), np.float32))
