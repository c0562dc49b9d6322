"""Trees: ensembles of decision trees, of the domain ai.onnx.ml.

In       (batch, features); trees as attributes, in the form of version 5 or that of older ones
Out      (batch, targets), or the labels of classes and their scores
Changes  table.py's table
Next     ml.py (linear models)

All rows walk all trees at once, a level at a time, as reading tables by index: a leaf leads to itself.
"""

from __future__ import annotations

import operator as compare
from typing import Any, NamedTuple

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.operators.ml import transformed
from hcq.frontend.more.onnx.table import ML, operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
ANSWERS = (compare.le, compare.lt, compare.ge, compare.gt, compare.eq, compare.ne)  # what nodes ask
MEMBER = MODES.index("MEMBER")
MAX_CELLS = 1 << 26  # of the table of leaves: nodes times targets


class Forest(NamedTuple):
    """Trees as tables by node. yes, no: where it goes on, a leaf to itself. worth: (node, target), 0 but for leaves."""

    features: Any
    splits: Any
    modes: Any
    yes: Any
    no: Any
    tracks: Any  # whether NaN goes where yes does
    roots: Any
    worth: Any
    has_vote: Any
    members: dict[int, list[float]]


def _depth(forest: Forest) -> int:
    """The most nodes on a way from a root to a leaf. Raises UsageError for a circle, and for a missing node."""
    size = len(forest.yes)
    for places in (forest.yes, forest.no, forest.roots):
        if len(places) and (places.min() < 0 or places.max() >= size):
            raise UsageError(f"a tree leads to a node that is not among its {size}")
    inner = forest.yes != np.arange(size)
    level, depth = np.unique(forest.roots), 0
    while len(level := level[inner[level]]):
        depth += 1
        if depth > size:
            raise UsageError("its trees have a circle")
        level = np.unique(np.concatenate([forest.yes[level], forest.no[level]]))
    return depth


def _votes(x: Tensor, forest: Forest, call: Any) -> tuple[Tensor, Tensor]:
    """(batch, tree, target): what the leaf that each row comes to is worth, and whether it says anything."""
    batch, roots = x.shape[0], len(forest.roots)
    kind = np.float64 if x.dtype is dtypes.float64 else np.float32
    features, modes, yes, no = (
        call.constant(np.asarray(table, np.int64))
        for table in (forest.features, forest.modes, forest.yes, forest.no)
    )
    splits, tracks = call.constant(forest.splits.astype(kind)), call.constant(forest.tracks.astype(bool))
    values = x if x.dtype.is_float else x.float()
    place = call.constant(np.asarray(forest.roots, np.int64)).reshape(1, roots).expand(batch, roots)
    used = sorted(set(np.asarray(forest.modes).tolist()))
    for _ in range(_depth(forest)):
        flat = place.reshape(-1)

        def at(table: Tensor, flat: Tensor = flat) -> Tensor:
            return table.index_select(0, flat).reshape(batch, roots)

        value, split, mode = values.gather(1, at(features)), at(splits), at(modes)
        goes = value.isnan() & at(tracks)
        for number in used:
            if number == MEMBER:
                for node, among in forest.members.items():
                    is_in = (value.unsqueeze(-1) == call.constant(np.asarray(among, kind))).any(-1)
                    goes = goes | ((place == node) & is_in)
            else:
                goes = goes | ((mode == number) & ANSWERS[number](value, split))
        place = goes.where(at(yes), at(no))
    shape = (batch, roots, forest.worth.shape[1])
    flat = place.reshape(-1)
    worth = call.constant(forest.worth.astype(kind)).index_select(0, flat).reshape(shape)
    return worth, call.constant(forest.has_vote).index_select(0, flat).reshape(shape)


def _aggregated(worth: Tensor, has_vote: Tensor, how: str, base: Any, call: Any) -> Tensor:
    """(batch, target): the sum of all trees, their average, the least or the greatest, and a number for each target."""
    if how in ("SUM", "AVERAGE"):
        found = worth.sum(1)
        found = found / worth.shape[1] if how == "AVERAGE" else found
    elif how in ("MIN", "MAX"):
        far = float("inf") if how == "MIN" else -float("inf")
        picked = has_vote.where(worth, far)
        found = picked.amin(1) if how == "MIN" else picked.amax(1)
        found = has_vote.any(1).where(found, 0.0)
    else:
        raise UsageError(f"aggregate_function {how!r}; known are SUM, AVERAGE, MIN and MAX")
    return (
        found if base is None or not len(base) else found + call.constant(np.asarray(base)).cast(found.dtype)
    )


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
    """Nodes and leaves are lists of their own; a leaf has one target."""
    modes = nodes_modes.array().astype(np.int64)
    nodes, leaves = len(modes), len(leaf_targetids)
    own = nodes + np.arange(leaves)
    yes = np.concatenate([np.asarray(nodes_truenodeids) + nodes * np.asarray(nodes_trueleafs), own])
    no = np.concatenate([np.asarray(nodes_falsenodeids) + nodes * np.asarray(nodes_falseleafs), own])
    worth, has_vote = _leaves(nodes + leaves, n_targets, own, leaf_targetids, leaf_weights.array())

    def table(values: Any, kind: Any) -> Any:
        return np.concatenate([np.asarray(values, kind), np.zeros(leaves, kind)])

    forest = Forest(
        table(nodes_featureids, np.int64), table(nodes_splits.array(), np.float64), table(modes, np.int64),
        yes.astype(np.int64), no.astype(np.int64), table(nodes_missing_value_tracks_true or [0] * nodes, bool),
        np.asarray(tree_roots, np.int64), worth, has_vote, _members(modes, membership_values),
    )  # fmt: skip
    how = ("AVERAGE", "SUM", "MIN", "MAX")[aggregate_function]
    after = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[post_transform]
    return transformed(_aggregated(*_votes(x, forest, call), how, None, call), after)


def _leaves(nodes: int, targets: int, places: Any, ids: Any, weights: Any) -> tuple[Any, Any]:
    """What each node is worth for each target: a leaf may have several votes."""
    if nodes * targets > MAX_CELLS:
        raise UsageError(
            f"{nodes} nodes and {targets} targets; up to {MAX_CELLS} of both multiplied are computed"
        )
    ids = np.asarray(ids, np.int64)
    if len(ids) and (ids.min() < 0 or ids.max() >= targets):
        raise UsageError(f"a leaf votes for a target that is not among the {targets}")
    worth, has_vote = np.zeros((nodes, targets)), np.zeros((nodes, targets), bool)
    np.add.at(worth, (places, ids), np.asarray(weights, np.float64))
    has_vote[places, ids] = True
    return worth, has_vote


def _members(modes: Any, values: Any) -> dict[int, list[float]]:
    """Of each MEMBER node the set that it asks for; sets are separated by NaN."""
    found: dict[int, list[float]] = {}
    groups: list[list[float]] = [[]]
    for value in [] if values is None else values.array().tolist():
        if np.isnan(value):
            groups.append([])
        else:
            groups[-1].append(value)
    for node, group in zip(np.flatnonzero(modes == MEMBER), groups):
        found[int(node)] = group
    return found


class Nodes(NamedTuple):
    """The attributes of versions 1 and 3: a node is known by its tree and its number in it, and leaves are nodes."""

    nodes_falsenodeids: Any
    nodes_featureids: Any
    nodes_modes: Any
    nodes_nodeids: Any
    nodes_treeids: Any
    nodes_truenodeids: Any
    base_values: Any = None
    base_values_as_tensor: Any = None
    nodes_hitrates: Any = None
    nodes_hitrates_as_tensor: Any = None
    nodes_missing_value_tracks_true: Any = None
    nodes_values: Any = None
    nodes_values_as_tensor: Any = None
    post_transform: str = "NONE"

    @property
    def base(self) -> Any:
        """A number for each target."""
        return _numbers(self.base_values, self.base_values_as_tensor)

    def forest(self, votes: tuple[Any, Any, Any, Any], targets: int) -> Forest:
        """The trees. votes: tree, node, target and weight of each."""
        place = {key: i for i, key in enumerate(zip(self.nodes_treeids, self.nodes_nodeids))}
        size = len(place)
        words = [word.removeprefix("BRANCH_") for word in self.nodes_modes]
        unknown = set(words) - set(MODES[:MEMBER]) - {"LEAF"}
        if unknown:
            raise UsageError(f"modes {sorted(unknown)} are not known")
        is_leaf = np.array([word == "LEAF" for word in words], bool)

        def goes(ids: Any) -> Any:
            found = [i if is_leaf[i] else place[tree, ids[i]] for i, tree in enumerate(self.nodes_treeids)]
            return np.array(found, np.int64)

        yes, no = goes(self.nodes_truenodeids), goes(self.nodes_falsenodeids)
        inner = ~is_leaf
        roots = np.setdiff1d(np.arange(size), np.concatenate([yes[inner], no[inner]]))
        reached = level = roots
        while len(level := level[inner[level]]) and len(reached) <= size:
            level = np.concatenate([yes[level], no[level]])
            reached = np.concatenate([reached, level])
        if len(roots) != len(set(self.nodes_treeids)) or len(reached) != size:
            raise UsageError("its trees have a circle, or a node that none or several lead to")
        trees, ids, targetids, weights = votes
        worth, has_vote = _leaves(size, targets, [place[key] for key in zip(trees, ids)], targetids, weights)
        modes = np.array([0 if word == "LEAF" else MODES.index(word) for word in words], np.int64)
        values = np.asarray(_numbers(self.nodes_values, self.nodes_values_as_tensor), np.float64)
        tracks = np.asarray(self.nodes_missing_value_tracks_true or [0] * size, bool)
        features = np.asarray(self.nodes_featureids, np.int64)
        return Forest(features, values, modes, yes, no, tracks, roots, worth, has_vote, {})


def _numbers(floats: Any, tensor: Any) -> Any:
    """A list of an attribute, or its tensor of doubles."""
    return tensor.array() if tensor is not None else floats or []


@operator("TreeEnsembleRegressor", domain=ML, nodes=Nodes)
def tree_ensemble_regressor(
    x: Tensor,
    *,
    aggregate_function: str = "SUM",
    n_targets: int = 1,
    target_ids: Any,
    target_nodeids: Any,
    target_treeids: Any,
    target_weights: Any = None,
    target_weights_as_tensor: Any = None,
    nodes: Nodes,
    call: Any,
) -> Any:
    """The older form of TreeEnsemble."""
    weights = _numbers(target_weights, target_weights_as_tensor)
    forest = nodes.forest((target_treeids, target_nodeids, target_ids, weights), n_targets)
    found = _aggregated(*_votes(x, forest, call), aggregate_function, nodes.base, call)
    return transformed(found.cast(dtypes.float32), nodes.post_transform)


@operator("TreeEnsembleClassifier", domain=ML, nodes=Nodes)
def tree_ensemble_classifier(
    x: Tensor,
    *,
    class_ids: Any,
    class_nodeids: Any,
    class_treeids: Any,
    class_weights: Any = None,
    class_weights_as_tensor: Any = None,
    classlabels_int64s: Any = None,
    classlabels_strings: Any = None,
    nodes: Nodes,
    call: Any,
) -> Any:
    """The label of the greatest sum of votes, and the sums. Of two classes one alone may have votes."""
    if classlabels_strings or not classlabels_int64s:
        raise UsageError("labels that are strings are not computed here")
    weights, after = _numbers(class_weights, class_weights_as_tensor), nodes.post_transform
    is_single = len(classlabels_int64s) == 2 and len(set(class_ids)) == 1
    ids = [0] * len(class_ids) if is_single else class_ids
    targets = 1 if is_single else len(classlabels_int64s)
    forest = nodes.forest((class_treeids, class_nodeids, ids, weights), targets)
    if is_single and len(nodes.base) > 1:
        raise UsageError("votes for one class of two, and base_values for both")
    found = _aggregated(*_votes(x, forest, call), "SUM", nodes.base, call).cast(dtypes.float32)
    labels = call.constant(np.asarray(classlabels_int64s, np.int64))
    if is_single:
        if after not in ("NONE", "LOGISTIC"):
            raise UsageError(f"votes for one class of two, and post_transform {after!r}")
        share = found.sigmoid() if after == "LOGISTIC" else found
        place = (share > 0.5).cast(dtypes.int64).reshape(-1)
        return labels.index_select(0, place), Tensor.cat([1 - share, share], dim=1)
    return labels.index_select(0, found.argmax(1)), transformed(found, after)
