"""Control flow: graphs within the graph that run once, many times, or not.

In       values, and blocks as attributes
Out      what the blocks give
Changes  nothing of their own
Next     sequence.py (lists of tensors), evaluate.py (how a block runs)

Conditions and counts are needed on the host. Those that are known are no cost; one that is computed waits for the
device in every turn, and keeps the call from being recorded.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.more.onnx.values import Value, of_array, of_tensor
from hcq.frontend.tensor import Tensor


@operator("If", since=1, raw=True)
def if_(condition: Any, *, then_branch: Any, else_branch: Any, call: Any) -> Any:
    """One of two graphs."""
    holds = bool(np.asarray(call.number(condition)).reshape(-1)[0])
    return tuple(call.run.turn(then_branch if holds else else_branch, {}, call.values))


@operator("Loop", since=1, raw=True)
def loop(most: Any = None, condition: Any = None, *states: Any, body: Any, call: Any) -> Any:
    """Turns until the count or the condition ends it; what each turn gives besides its states is stacked."""
    turns = inf if most is None else int(np.asarray(call.number(most)).reshape(-1)[0])
    goes_on = condition is None or bool(np.asarray(call.number(condition)).reshape(-1)[0])
    if condition is None and turns < inf:
        call.run.may_turn(turns)
    now = list(states)
    names = [info.name for info in body.inputs]
    stacks: list[list[Any]] = [[] for _ in body.outputs[1 + len(now) :]]
    turn = 0
    while goes_on and turn < turns:
        given = [of_array(np.asarray(turn, np.int64)), of_array(np.asarray(True)), *now]
        results = call.run.turn(body, dict(zip(names, given)), call.values)
        before = len(call.run.depends)
        goes_on = bool(np.asarray(call.number(results[0])).reshape(-1)[0])
        now = results[1 : 1 + len(now)]
        for stack, value in zip(stacks, results[1 + len(now) :]):
            stack.append(value)
        if len(call.run.depends) > before:  # the device has come so far: what else there is need not wait
            settle([*now, *(stack[-1] for stack in stacks)])
        turn += 1
    return (
        *now,
        *(stacked(stack, 0, call, info) for stack, info in zip(stacks, body.outputs[1 + len(now) :])),
    )


def settle(values: list[Any]) -> None:
    """Compute what is lazy, so that graphs do not grow with every turn."""
    tensors = [value._tensor for value in values if isinstance(value, Value) and value._tensor is not None]
    if tensors:
        tensors[0].realize(*tensors[1:])


def stacked(values: list[Any], axis: int, call: Any, info: Any = None) -> Any:
    """Values of all turns along a new axis; of no turns, nothing of the shape that the graph says."""
    if not values:
        from hcq.frontend.more.onnx.operators.shape import dtype_of

        sizes = () if info is None or info.shape is None else info.shape
        shape = (0, *(size if isinstance(size, int) else 0 for size in sizes))
        return Tensor.zeros(
            *shape, device=call.device, dtype=dtype_of(info.kind) if info and info.kind else None
        )
    if all(value.is_known and value.dtype.name == value.array().dtype.name for value in values):
        return np.stack([value.array() for value in values], axis)
    return Tensor.stack([call.tensor(value) for value in values], dim=axis)


@operator("Scan", since=9, raw=True)
def scan(
    *values: Any,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
    call: Any,
) -> Any:
    """A turn for each place of an axis; states go on, and what a turn gives besides is stacked."""
    count = len(values) - num_scan_inputs
    now = list(values[:count])
    tensors = [call.tensor(value) for value in values[count:]]
    axes = [a % t.ndim for a, t in zip(scan_input_axes or [0] * num_scan_inputs, tensors)]
    back = scan_input_directions or [0] * num_scan_inputs
    lengths = {t.shape[axis] for t, axis in zip(tensors, axes)}
    if len(lengths) != 1:
        raise UsageError(f"the scanned axes have {sorted(lengths)} elements: they must be as long")
    names = [info.name for info in body.inputs]
    length = lengths.pop()
    outputs: list[list[Any]] = [[] for _ in body.outputs[count:]]
    for turn in range(length):
        parts = [
            of_tensor(t.select(axis, length - 1 - turn if backwards else turn))
            for t, axis, backwards in zip(tensors, axes, back)
        ]
        results = call.run.turn(body, dict(zip(names, [*now, *parts])), call.values)
        now = results[:count]
        for stack, value in zip(outputs, results[count:]):
            stack.append(value)
    found = []
    for i, (stack, info) in enumerate(zip(outputs, body.outputs[count:])):
        stack = stack[::-1] if scan_output_directions and scan_output_directions[i] else stack
        rank = len(stack[0].shape) + 1 if stack else 1
        axis = (scan_output_axes[i] if scan_output_axes else 0) % rank
        found.append(stacked(stack, axis, call, info))
    return (*now, *found)


@operator("Scan", since=8, raw=True)
def scan_of_batches(
    lengths: Any, *values: Any, body: Any, num_scan_inputs: int, directions: Any = None, call: Any
) -> Any:
    """Of version 8: for each element of a batch, along the second axis. No lengths of their own."""
    if lengths is not None:
        raise UsageError("sequence_lens of version 8 are not computed: export with version 9 or newer")
    count = len(values) - num_scan_inputs
    tensors = [call.tensor(value) for value in values]
    rows = []
    for row in range(tensors[0].shape[0]):
        rows.append(
            scan(
                *[of_tensor(tensor[row]) for tensor in tensors],
                body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions, call=call,
            )
        )  # fmt: skip
    return (
        tuple(
            Tensor.stack([call.tensor(call.run.value(row[i])) for row in rows], dim=0)
            for i in range(len(rows[0]))
        )
        if count >= 0
        else ()
    )


@operator("SequenceMap", since=17, raw=True)
def sequence_map(first: Any, *others: Any, body: Any, call: Any) -> Any:
    """A turn for each element of a sequence; other inputs are sequences as long, or the same in every turn."""
    names = [info.name for info in body.inputs]
    lists: list[list[Any]] = [[] for _ in body.outputs]
    for turn, value in enumerate(first):
        given = [value, *(other[turn] if isinstance(other, list) else other for other in others)]
        for found, result in zip(lists, call.run.turn(body, dict(zip(names, given)), call.values)):
            found.append(result)
    return tuple(lists)
