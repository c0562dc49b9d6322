"""Classical machine learning: linear models, scalers, labels, of the domain ai.onnx.ml.

In       (batch, features); models as attributes
Out      (batch, targets), or labels
Changes  table.py's table
Next     trees.py (ensembles of trees), product.py (matrices)

Labels and categories that are strings are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.table import ML, operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


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
    return transformed(found, post_transform)


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
    return labels.index_select(0, found.argmax(1)), transformed(found, post_transform)


def transformed(x: Tensor, how: str) -> Tensor:
    """Scores by post_transform."""
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


@operator("Imputer", domain=ML)
def imputer(
    x: Tensor,
    *,
    imputed_value_floats: Any = None,
    imputed_value_int64s: Any = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
    call: Any,
) -> Any:
    """One number, NaN perhaps, replaced by another, or by one for each feature."""
    if x.dtype.is_float:
        gone = x.isnan() if np.isnan(replaced_value_float) else x == replaced_value_float
        values = imputed_value_floats
    else:
        gone, values = x == replaced_value_int64, imputed_value_int64s
    if not values:
        raise UsageError(f"it has no values for {x.dtype.name}")
    return gone.where(call.constant(np.asarray(values)).cast(x.dtype), x)


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(
    x: Tensor, *, cats_int64s: Any = None, cats_strings: Any = None, zeros: int = 1, call: Any
) -> Any:
    """1 at the place of the category, along a new last axis; zeros for what is none, if `zeros` allows it."""
    if cats_strings or not cats_int64s:
        raise UsageError("categories that are strings are not computed here")
    found = x.cast(dtypes.int64).unsqueeze(-1) == call.constant(np.asarray(cats_int64s, np.int64))
    if not zeros and not bool(found.any(-1).all().item()):
        raise UsageError("an element is no category, and zeros=0 forbids it")
    return found.cast(dtypes.float32)


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(*tensors: Tensor, inputdimensions: Any = None) -> Any:
    """The columns of all, as float32."""
    rows = [(x if x.ndim == 2 else x.reshape(1, -1)).cast(dtypes.float32) for x in tensors]
    sizes = inputdimensions or [x.shape[1] for x in rows]
    return Tensor.cat([x[:, :size] for x, size in zip(rows, sizes)], dim=1)
