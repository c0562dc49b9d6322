"""Sequences and optionals: lists of tensors, and what may be missing.

In       values; a sequence is a list of them, an empty optional is None
Out      values
Changes  table.py's table
Next     control.py (SequenceMap), shape.py (Concat and Split of tensors)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.table import operator, operators
from hcq.frontend.tensor import Tensor

Sequence = list[Any]


def _place(position: Any, size: int, call: Any) -> int:
    place = int(np.asarray(call.number(position)).reshape(-1)[0])
    if not -size <= place <= size:
        raise UsageError(f"position {place} of a sequence of {size}")
    return place + size if place < 0 else place


@operator("SequenceInsert", since=11, raw=True)
def sequence_insert(sequence: Any, value: Any, position: Any = None, *, call: Any) -> Any:
    """With a tensor at a position; at the end without one."""
    place = len(sequence) if position is None else _place(position, len(sequence), call)
    return [*sequence[:place], value, *sequence[place:]]


@operator("SequenceErase", since=11, raw=True)
def sequence_erase(sequence: Any, position: Any = None, *, call: Any) -> Any:
    """Without the tensor at a position; without the last by default."""
    place = len(sequence) - 1 if position is None else _place(position, len(sequence), call)
    return [*sequence[:place], *sequence[place + 1 :]]


@operator("SequenceAt", since=11, raw=True)
def sequence_at(sequence: Any, position: Any, *, call: Any) -> Any:
    """The tensor at a position."""
    place = _place(position, len(sequence), call)
    if place == len(sequence):
        raise UsageError(f"position {place} of a sequence of {len(sequence)}")
    return sequence[place]


@operator("ConcatFromSequence", since=11, raw=True)
def concat_from_sequence(sequence: Any, *, axis: int, new_axis: int = 0, call: Any) -> Any:
    """All tensors along an axis, or along a new one."""
    tensors = [call.tensor(value) for value in sequence]
    return Tensor.stack(tensors, dim=axis) if new_axis else Tensor.cat(tensors, dim=axis)


@operator("SplitToSequence", since=11, raw=True)
def split_to_sequence(x: Any, split: Any = None, *, axis: int = 0, keepdims: int = 1, call: Any) -> Any:
    """A tensor in parts along an axis."""
    tensor = call.tensor(x)
    axis %= tensor.ndim
    size = tensor.shape[axis]
    if split is None:
        sizes = [1] * size
    else:
        given = np.asarray(call.number(split))
        sizes = [int(n) for n in given.reshape(-1)]
        if given.ndim == 0:
            step = sizes[0]
            sizes = [min(step, size - at) for at in range(0, size, step)]
    starts = np.cumsum([0, *sizes])
    parts = [tensor.narrow(axis, int(start), n) for start, n in zip(starts, sizes)]
    if split is None and not keepdims:
        parts = [part.squeeze(axis) for part in parts]
    return [call.run.value(part) for part in parts]


@operator("OptionalGetElement", since=15, raw=True)
def optional_get_element(value: Any) -> Any:
    """The value of an optional. Nothing is refused."""
    if value is None:
        raise UsageError("the optional is empty")
    return value


operators(
    {
        "SequenceEmpty": (11, lambda *, dtype=1: []),  # a sequence of nothing
        "SequenceConstruct": (11, lambda *values: list(values)),  # a sequence of these
        "SequenceLength": (11, lambda sequence: np.asarray(len(sequence), np.int64)),  # how many there are
        "Optional": (15, lambda value=None, *, type=None: value),  # a value, or nothing
        # whether there is a value
        "OptionalHasElement": (15, lambda value=None: np.asarray(value is not None)),
    },
    raw=True,
)
