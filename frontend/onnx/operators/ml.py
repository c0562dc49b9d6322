"""Classical machine learning: trees, linear models, scalers, of the domain ai.onnx.ml.

In       (batch, features); models as attributes
Out      (batch, targets), or labels
Changes  table.py's table
Next     product.py (matrices)

A tree is walked by all rows at once, a level at a time, as reading tables by index. Labels that are strings are
refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.frontend.errors import UsageError
from hcq.frontend.onnx.table import ML, operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")


@operator("Binarizer", domain=ML)
def binarizer(x: Tensor, *, threshold: float = 0.0) -> Any:
    """1 above a threshold, and else 0."""
    return (x > threshold).cast(x.dtype)


@operator("Scaler", domain=ML)
def scaler(x: Tensor, *, offset: Any, scale: Any, call: Any) -> Any:
    """(x - offset) * scale, for each feature."""
    shift, factor = (call.constant(np.asarray(values, np.float32)) for values in (offset, scale))
    return (x.float() - shift) * factor


@operator("Normalizer", domain=ML)
def normalizer(x: Tensor, *, norm: str = "MAX") -> Any:
    """Rows over their greatest, their sum, or their length."""
    x = x.float()
    sizes = {"MAX": x.abs().amax(-1, keepdim=True), "L1": x.abs().sum(-1, keepdim=True)}
    size = sizes[norm] if norm in sizes else (x * x).sum(-1, keepdim=True).sqrt()
    return (size == 0).where(x, x / size)


@operator("LinearRegressor", domain=ML)
def linear_regressor(
    x: Tensor,
    *,
    coefficients: Any,
    intercepts: Any = None,
    post_transform: str = "NONE",
    targets: int = 1,
    call: Any,
) -> Any:
    """x @ coefficients + intercepts."""
    table = call.constant(np.asarray(coefficients, np.float32).reshape(targets, -1))
    found = x.float() @ table.transpose(0, 1)
    if intercepts:
        found = found + call.constant(np.asarray(intercepts, np.float32))
    return _transformed(found, post_transform)


@operator("LinearClassifier", domain=ML)
def linear_classifier(
    x: Tensor,
    *,
    classlabels_ints: Any = None,
    classlabels_strings: Any = None,
    coefficients: Any,
    intercepts: Any = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
    call: Any,
) -> Any:
    """The label of the greatest score, and the scores."""
    if classlabels_strings or not classlabels_ints:
        raise UsageError("labels that are strings are not computed here")
    labels = call.constant(np.asarray(classlabels_ints, np.int64))
    rows = len(classlabels_ints) if len(coefficients) % len(classlabels_ints) == 0 else 1
    found = linear_regressor(x, coefficients=coefficients, intercepts=intercepts, targets=rows, call=call)
    if rows == 1:
        found = Tensor.cat([-found, found], dim=1)
    return labels.index_select(0, found.argmax(1)), _transformed(found, post_transform)


def _transformed(x: Tensor, how: str) -> Tensor:
    if how == "NONE":
        return x
    if how in ("SOFTMAX", "LOGISTIC"):
        return x.softmax(-1) if how == "SOFTMAX" else x.sigmoid()
    raise UsageError(f"post_transform {how!r}; known are NONE, SOFTMAX and LOGISTIC")


@operator("LabelEncoder", since=2, domain=ML)
def label_encoder(
    x: Tensor,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "",
    default_tensor: Any = None,
    keys_floats: Any = None,
    keys_int64s: Any = None,
    keys_strings: Any = None,
    keys_tensor: Any = None,
    values_floats: Any = None,
    values_int64s: Any = None,
    values_strings: Any = None,
    values_tensor: Any = None,
    call: Any,
) -> Any:
    """Each number replaced by that of its key; NaN is a key like others."""
    keys = _first(keys_tensor, keys_floats, np.float32, keys_int64s)
    values = _first(values_tensor, values_floats, np.float32, values_int64s)
    if keys is None or values is None:
        raise UsageError("keys or values that are strings are not computed here")
    usual: Any = default_float if values.dtype.kind == "f" else default_int64
    if default_tensor is not None:
        usual = default_tensor.array().reshape(-1)[0].item()
    table = call.constant(keys)
    same = x.unsqueeze(-1) == table
    if keys.dtype.kind == "f":
        same = same | (x.isnan().unsqueeze(-1) & table.isnan())
    found = same.cast(dtypes.int32)
    place = found.argmax(-1)
    picked = call.constant(values).index_select(0, place.reshape(-1)).reshape(x.shape)
    return (
        found.amax(-1)
        .cast(dtypes.bool)
        .where(picked, Tensor.full((), usual, device=x.device, dtype=picked.dtype))
    )


def _first(tensor: Any, floats: Any, kind: Any, whole: Any) -> Any:
    if tensor is not None:
        return tensor.array()
    if floats is not None:
        return np.asarray(floats, kind)
    return None if whole is None else np.asarray(whole, np.int64)


@operator("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(
    x: Tensor,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Any,
    leaf_weights: Any,
    membership_values: Any = None,
    n_targets: int = 1,
    nodes_falseleafs: Any,
    nodes_falsenodeids: Any,
    nodes_featureids: Any,
    nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Any = None,
    nodes_modes: Any,
    nodes_splits: Any,
    nodes_trueleafs: Any,
    nodes_truenodeids: Any,
    post_transform: int = 0,
    tree_roots: Any,
    call: Any,
) -> Any:
    """Places of a walk: nodes first, then leaves, which stay where they are."""
    if post_transform:
        raise UsageError(f"post_transform {post_transform}; known is 0, none")
    modes = nodes_modes.array().astype(np.int64)
    nodes, leaves = len(modes), len(leaf_targetids)
    splits, weights = nodes_splits.array(), leaf_weights.array()
    yes = np.asarray(nodes_truenodeids) + nodes * np.asarray(nodes_trueleafs)
    no = np.asarray(nodes_falsenodeids) + nodes * np.asarray(nodes_falseleafs)
    yes, no = (np.concatenate([ids, nodes + np.arange(leaves)]) for ids in (yes, no))
    missing = np.asarray(nodes_missing_value_tracks_true or [0] * nodes, bool)
    depth = _depth(tree_roots, yes, no, nodes)

    def table(values: Any, kind: Any = np.int64) -> Tensor:
        full = np.concatenate([np.asarray(values), np.zeros(leaves)]).astype(kind)
        return call.constant(full)

    features, thresholds, kinds = table(nodes_featureids), table(splits, splits.dtype), table(modes)
    to_yes, to_no, tracks = (
        call.constant(yes.astype(np.int64)),
        call.constant(no.astype(np.int64)),
        table(missing),
    )
    members = _members(modes, membership_values, nodes)
    batch, roots = x.shape[0], len(tree_roots)
    place = call.constant(np.asarray(tree_roots, np.int64)).reshape(1, roots).expand(batch, roots)
    for _ in range(depth):
        flat = place.reshape(-1)

        def at(values: Tensor, flat: Tensor = flat) -> Tensor:
            return values.index_select(0, flat).reshape(batch, roots)

        value, split, kind = x.gather(1, at(features)), at(thresholds), at(kinds)
        answers = [
            value <= split,
            value < split,
            value >= split,
            value > split,
            value == split,
            value != split,
        ]
        goes = kind == -1
        for number, answer in enumerate(answers):
            goes = goes | ((kind == number) & answer)
        for node, values in members.items():
            among = (value.unsqueeze(-1) == call.constant(np.asarray(values, splits.dtype))).any(-1)
            goes = goes | ((place == node) & among)
        goes = goes | (value.isnan() & (at(tracks) != 0))
        place = goes.where(at(to_yes), at(to_no))
    leaf = (place - nodes).clamp(0, leaves - 1).reshape(-1)
    worth = call.constant(weights).index_select(0, leaf).reshape(batch, roots, 1)
    target = (
        call.constant(np.asarray(leaf_targetids, np.int64)).index_select(0, leaf).reshape(batch, roots, 1)
    )
    own = target == Tensor.arange(n_targets, device=x.device)
    if aggregate_function in (0, 1):
        found = own.where(worth, worth * 0).sum(1)
        return found / roots if aggregate_function == 0 else found
    far = float("inf") if aggregate_function == 2 else -float("inf")
    picked = own.where(worth, far)
    found = picked.amin(1) if aggregate_function == 2 else picked.amax(1)
    return own.any(1).where(found, found * 0)


def _depth(roots: Any, yes: Any, no: Any, nodes: int) -> int:
    """The most nodes on a way from a root to a leaf. Raises UsageError for a circle."""
    level, depth = set(map(int, roots)), 0
    while level := {int(n) for n in level if n < nodes}:
        depth += 1
        if depth > nodes:
            raise UsageError("its trees have a circle")
        level = {int(next_[n]) for n in level for next_ in (yes, no)}
    return depth


def _members(modes: Any, values: Any, nodes: int) -> dict[int, list[float]]:
    """Of each MEMBER node the set that it asks for; sets are separated by NaN."""
    found: dict[int, list[float]] = {}
    if values is None:
        return found
    groups: list[list[float]] = [[]]
    for value in values.array().tolist():
        if np.isnan(value):
            groups.append([])
        else:
            groups[-1].append(value)
    for node, group in zip(np.flatnonzero(modes == MODES.index("MEMBER")), groups):
        found[int(node)] = group
    return found
