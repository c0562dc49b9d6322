"""The interpreter: what a graph computes, by NumPy, one node after the other; the answer that every target must match.

In       nodes of the tensor stage and a way to read their leaves, or one kernel and the arrays of its arguments
Out      arrays (arrays.py says how each dtype is held); a kernel writes its results into the arguments' arrays
Changes  only the arrays that a kernel stores to
Next     ir/meaning.py (the same for single numbers), ir/op.py (the semantics in words), compiler/ (the fast way)

Transcendental functions are computed in float64 and rounded once; floating point sums and products are accumulated in
float64 and rounded once, because the order of a reduction is the target's choice. All else is exact to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hcq.ir.dtype import DType
from hcq.ir.elementwise.table import ELEMENTWISE
from hcq.ir.node import Node, toposort
from hcq.ir.op import ARITHMETIC, COMPARE, MOVEMENT, Op
from tests.interpreter.arrays import (
    Array,
    array,
    bitcast,
    convert,
    is_held_as_float32,
    numpy_dtype,
    round_floats,
)


def evaluate(roots: Sequence[Node], read: Callable[[Node], Array]) -> list[Array]:
    """The values of tensor-stage nodes.

    read    gives the array of a leaf (BUFFER or PARAM), in its shape and dtype

    ASSIGN has the value that is written; nothing is written to the leaf's array.
    """
    done: dict[Node, Array] = {}
    with np.errstate(all="ignore"):
        for node in toposort(roots):
            if node.op in (Op.BUFFER, Op.PARAM):
                done[node] = array(read(node), node.dtype)
            elif node.op in (Op.SINK, Op.STORE):
                raise ValueError(
                    f"[evaluate] {node.op.name} is a kernel's: give the SINK and its arrays to evaluate_kernel"
                )
            else:
                done[node] = _tensor_value(node, [done[source] for source in node.src])
    return [done[root] for root in roots]


def evaluate_kernel(sink: Node, params: Sequence[Array]) -> None:
    """Run a kernel, as the scheduler made it (tensor stage) or as lowering made it (ranges and indices).

    sink    SINK(STORE(...), ...)
    params  one array per PARAM index, any shape with the PARAM's number of elements, in row-major order; the arrays
            must be contiguous, since the kernel writes into them
    Raises  IndexError when a valid access is outside its PARAM, ValueError for an op that belongs to another stage
    """
    if sink.op is not Op.SINK:
        raise ValueError(f"[evaluate_kernel] the root is {sink.op.name}; a kernel is SINK(STORE(...), ...)")
    flat: list[Array] = []
    for place, values in enumerate(params):
        if not values.flags.c_contiguous:
            raise ValueError(
                f"[evaluate_kernel] params[{place}] is not contiguous; pass numpy.ascontiguousarray of it"
            )
        flat.append(values.reshape(-1))
    with np.errstate(all="ignore"):
        if all(len(store.src) == 2 for store in sink.src):
            _run_tensor_kernel(sink, flat)
        else:
            _run_ranged_kernel(sink, flat)


# -- the tensor stage --------------------------------------------------------------------------------------------------


def _tensor_value(node: Node, src: list[Array]) -> Array:
    op = node.op
    if op in ARITHMETIC:
        return arithmetic(node, src)
    if op is Op.CONST:
        return array(node.arg, node.dtype)
    if op is Op.IOTA:
        return array(np.arange(node.arg), node.dtype)
    if op in MOVEMENT:
        return _movement(node, src[0])
    if op is Op.REDUCE_AXIS:
        how, axes = node.arg
        return reduce_axes(how, node.dtype, src[0], tuple(axes))
    if op is Op.GATHER:
        return _gather(src[0], src[1], node.arg)
    if op is Op.SCATTER_ADD:
        return _scatter_add(node.dtype, src[0], src[1], src[2], node.arg)
    if op is Op.SCATTER:
        return _scatter(src[0], src[1], src[2], node.arg)
    if op is Op.BUCKET:
        shift, bits = node.arg[:2]
        rows = src[0].reshape(len(src[0]), -1)
        return np.take_along_axis(rows, np.argsort(rows >> shift & ((1 << bits) - 1), 1, kind="stable"), 1)
    if op is Op.SCAN_AXIS:
        how, axis = node.arg
        return scan_axis(how, node.dtype, src, axis)
    if op is Op.CAT:
        return np.concatenate(src, node.arg)
    if op in (Op.CONTIGUOUS, Op.DETACH, Op.FUNCTION, Op.COPY):
        return src[0]
    if op is Op.ASSIGN:
        return src[1]
    raise ValueError(f"[evaluate] {op.name} is not an op of the tensor stage")


def _movement(node: Node, x: Array) -> Array:
    op, arg = node.op, node.arg
    if op is Op.RESHAPE:
        return np.reshape(x, arg)
    if op is Op.PERMUTE:
        return np.transpose(x, arg)
    if op is Op.EXPAND:
        return np.broadcast_to(x, arg)
    if op is Op.PAD:
        return np.pad(x, arg)
    if op is Op.SHRINK:
        return np.asarray(x[tuple([slice(start, stop, step) for start, stop, step in arg])])
    if op is Op.FLIP:
        return np.flip(x, arg)
    axis, length, step, dilation = arg
    if op is Op.WINDOW:
        count = (x.shape[axis] - dilation * (length - 1) - 1) // step + 1
        places = np.arange(count)[:, None] * step + np.arange(length) * dilation
        return np.moveaxis(np.take(x, places, axis), axis + 1, -1)
    count, size = x.shape[axis], x.shape[-1]  # UNWINDOW
    spread = np.zeros((*x.shape[:axis], length, *x.shape[axis + 1 :]), x.dtype)
    target, source = np.moveaxis(spread, (axis, -1), (0, 1)), np.moveaxis(x, (axis, -1), (0, 1))
    for place in range(size):
        windows = [o for o in range(count) if 0 <= o * step + place * dilation < length]
        target[[o * step + place * dilation for o in windows], place] = source[windows, place]
    return spread


def _gather(x: Array, places: Array, axis: int) -> Array:
    size = x.shape[axis]
    if size == 0:
        return np.zeros(places.shape, x.dtype)
    inside = (places >= 0) & (places < size)
    found = np.take_along_axis(x, np.where(inside, places, 0).astype(np.int64), axis)
    return np.where(inside, found, np.zeros((), x.dtype))


def _scatter_add(dtype: DType, base: Array, places: Array, x: Array, axis: int) -> Array:
    x = x[tuple([slice(size) for size in places.shape])]
    total = base.astype(np.float64) if dtype.is_float else base.copy()
    inside = (places >= 0) & (places < base.shape[axis])
    position = list(np.nonzero(inside))
    position[axis] = places[inside].astype(np.int64)
    np.add.at(total, tuple(position), x[inside])
    return array(total, dtype)


def _scatter(base: Array, places: Array, x: Array, axis: int) -> Array:
    x, made = np.broadcast_to(x, places.shape), base.copy()
    for turn in range(places.shape[axis]):  # one after the other: the last stays
        here = [slice(None)] * places.ndim
        here[axis] = slice(turn, turn + 1)
        line = places[tuple(here)]
        inside = (line >= 0) & (line < base.shape[axis])
        position = list(np.nonzero(inside))
        position[axis] = line[inside].astype(np.int64)
        made[tuple(position)] = x[tuple(here)][inside]
    return np.asarray(made)


def reduce_axes(how: Op, dtype: DType, x: Array, axes: tuple[int, ...]) -> Array:
    """ADD, MUL, MAX or MIN over axes that stay with size 1; of nothing it is 0, 1, the least or the greatest value."""
    _refuse_storage_only(how, dtype)
    if how in (Op.MAX, Op.MIN):
        edge = array(dtype.min if how is Op.MAX else dtype.max, dtype)[()]
        extreme = np.maximum if how is Op.MAX else np.minimum
        return np.asarray(extreme.reduce(x, axis=axes, keepdims=True, initial=edge))
    if how not in (Op.ADD, Op.MUL):
        raise ValueError(f"[reduce] {how.name} is not a reduction; known: ADD, MUL, MAX, MIN")
    if dtype.is_bool:
        decide = np.any if how is Op.ADD else np.all
        return np.asarray(decide(x, axis=axes, keepdims=True))
    gather = np.sum if how is Op.ADD else np.prod
    kept = np.float64 if dtype.is_float else numpy_dtype(dtype)
    return array(gather(x, axis=axes, keepdims=True, dtype=kept), dtype)


def scan_axis(how: Op, dtype: DType, src: Sequence[Array], axis: int) -> Array:
    """The running ADD or MUL along an axis, from the second source where there is one."""
    line = np.concatenate([*src[1:], src[0]], axis)
    kept = np.float64 if dtype.is_float else numpy_dtype(dtype)
    made = array((np.cumsum if how is Op.ADD else np.cumprod)(line, axis, dtype=kept), dtype)
    return np.take(made, range(line.shape[axis] - src[0].shape[axis], line.shape[axis]), axis)


# -- arithmetic, both stages -------------------------------------------------------------------------------------------


def arithmetic(node: Node, src: list[Array]) -> Array:
    """The value of one arithmetic node, of sources that broadcast against each other."""
    op, dtype, source = node.op, node.dtype.scalar, node.src[0].dtype.scalar
    if op is Op.CAST:
        return convert(src[0], source, dtype)
    if op is Op.BITCAST:
        return bitcast(src[0], source, dtype)
    if op is Op.WHERE:
        return np.where(src[0], src[1], src[2])
    _refuse_storage_only(op, source)
    if op in (Op.EXP, Op.EXP2, Op.LOG, Op.LOG2, Op.SIN, Op.COS):
        function = {
            Op.EXP: np.exp,
            Op.EXP2: np.exp2,
            Op.LOG: np.log,
            Op.LOG2: np.log2,
            Op.SIN: np.sin,
            Op.COS: np.cos,
        }
        return array(function[op](src[0].astype(np.float64)), dtype)
    if op not in _EXACT:  # what NumPy has no function for is computed as it is declared, number by number
        meaning = ELEMENTWISE[op].meaning
        held = np.float64 if dtype.is_float else object
        return array(np.vectorize(lambda *x: meaning(dtype, source, *x), otypes=[held])(*src), dtype)
    result = np.asarray(_EXACT[op](source, *src))
    if op in COMPARE:
        return result
    return (
        round_floats(result, dtype)
        if is_held_as_float32(dtype)
        else result.astype(numpy_dtype(dtype), copy=False)
    )


def _refuse_storage_only(op: Op, dtype: DType) -> None:
    if dtype.is_storage_only:
        raise ValueError(
            f"[{op.name.lower()}] {dtype.name} is for storage only: cast to float32, compute, and cast back"
        )


def _not(dtype: DType, x: Array) -> Any:
    return np.logical_not(x) if dtype.is_bool else np.invert(x)


def _floordiv(dtype: DType, a: Array, b: Array) -> Any:
    zero, one, minus_one = (array(value, dtype) for value in (0, 1, -1))
    # apart: NumPy is of two minds about INT_MIN // -1
    by_minus_one = (b == minus_one) & (not dtype.is_unsigned)
    quotient = np.floor_divide(a, np.where((b == zero) | by_minus_one, one, b))
    return np.where(b == zero, zero, np.where(by_minus_one, np.subtract(zero, a), quotient))


def _mod(dtype: DType, a: Array, b: Array) -> Any:
    zero, one, minus_one = (array(value, dtype) for value in (0, 1, -1))
    trivial = (b == zero) | ((b == minus_one) & (not dtype.is_unsigned))
    return np.where(trivial, zero, np.remainder(a, np.where(trivial, one, b)))


def _shl(dtype: DType, x: Array, count: Array) -> Any:
    small = (count >= 0) & (count < dtype.bits)
    return np.where(small, np.left_shift(x, np.where(small, count, 0).astype(x.dtype)), np.zeros((), x.dtype))


def _shr(dtype: DType, x: Array, count: Array) -> Any:
    small = (count >= 0) & (count < dtype.bits)
    if not dtype.is_unsigned:
        return np.right_shift(x, np.where(small, count, dtype.bits - 1).astype(x.dtype))
    return np.where(
        small, np.right_shift(x, np.where(small, count, 0).astype(x.dtype)), np.zeros((), x.dtype)
    )


def _numpy(name: str, name_for_bool: str | None = None) -> Callable[..., Any]:
    """The NumPy function of that name, found when first called."""

    def call(dtype: DType, *src: Array) -> Any:
        return getattr(np, name_for_bool if name_for_bool and dtype.is_bool else name)(*src)

    return call


_EXACT: dict[
    Op, Callable[..., Any]
] = {  # (dtype of the sources, the sources) -> value, before rounding to the dtype
    Op.NEG: _numpy("negative", "asarray"),
    Op.NOT: _not,
    Op.SQRT: _numpy("sqrt"),
    Op.TRUNC: _numpy("trunc"),
    Op.ADD: _numpy("add", "logical_or"),
    Op.MUL: _numpy("multiply", "logical_and"),
    Op.DIV: _numpy("divide"),
    Op.FLOORDIV: _floordiv,
    Op.MOD: _mod,
    Op.MAX: _numpy("maximum"),
    Op.MIN: _numpy("minimum"),
    Op.AND: _numpy("bitwise_and"),
    Op.OR: _numpy("bitwise_or"),
    Op.XOR: _numpy("bitwise_xor"),
    Op.SHL: _shl,
    Op.SHR: _shr,
    Op.CMPLT: _numpy("less"),
    Op.CMPLE: _numpy("less_equal"),
    Op.CMPEQ: _numpy("equal"),
    Op.CMPNE: _numpy("not_equal"),
}


# -- kernels -----------------------------------------------------------------------------------------------------------


def _run_tensor_kernel(sink: Node, params: list[Array]) -> None:
    """STORE(target, value) with a target that is a PARAM under movement ops: move the element numbers the same way."""

    def read(leaf: Node) -> Array:
        return np.reshape(params[leaf.arg.index], leaf.arg.shape)

    values = evaluate([store.src[1] for store in sink.src], read)
    for store, value in zip(sink.src, values, strict=True):
        target = store.src[0]
        path = toposort([target])
        places = np.arange(params[path[0].arg.index].size).reshape(path[0].arg.shape)
        for view in path[1:]:
            places = _movement(view, places)
        params[path[0].arg.index][places] = np.broadcast_to(value, places.shape)


def _run_ranged_kernel(sink: Node, params: list[Array]) -> None:
    """Every RANGE is one axis of a grid; a value has size 1 along the ranges it does not depend on."""
    order = toposort([sink])
    ranges = [node for node in order if node.op is Op.RANGE]
    axis_of = {node: axis for axis, node in enumerate(ranges)}
    flat = (1,) * len(ranges)
    done: dict[Node, Array] = {}
    stores: list[Node] = []
    for node in order:
        src = [done[source] for source in node.src if source in done]
        if node.op in ARITHMETIC:
            done[node] = arithmetic(node, src)
        elif node.op is Op.CONST:
            done[node] = array(node.arg, node.dtype).reshape(flat)
        elif node.op is Op.RANGE:
            shape = [1] * len(ranges)
            shape[axis_of[node]] = int(src[0].item())
            done[node] = np.arange(shape[axis_of[node]]).reshape(shape)
        elif node.op is Op.LOAD:
            done[node] = _load(node, params, src)
        elif node.op is Op.REDUCE:
            over = {axis_of[r]: done[r].shape[axis_of[r]] for r in node.src[1:]}
            full = [over.get(axis, size) for axis, size in enumerate(src[0].shape)]
            done[node] = reduce_axes(node.arg, node.dtype, np.broadcast_to(src[0], full), tuple(over))
        elif node.op is Op.SCAN:
            axis = axis_of[node.src[1]]
            full = [max(size, done[node.src[1]].shape[i]) for i, size in enumerate(src[0].shape)]
            wide = [np.broadcast_to(src[0], full)]
            if len(node.src) > 2:
                wide.append(
                    np.broadcast_to(src[2], [1 if i == axis else size for i, size in enumerate(full)])
                )
            done[node] = scan_axis(node.arg, node.dtype, wide, axis)
        elif node.op is Op.STORE:
            stores.append(node)
        elif node.op not in (Op.PARAM, Op.SINK):
            raise ValueError(f"[evaluate_kernel] {node.op.name} is not an op of the kernel stage")
    for node in stores:  # after every load: a kernel reads the values from before it, or its own element
        _store(node, params, done)


def _check_inside(node: Node, places: Array, valid: Array, size: int) -> Array:
    """Places that are safe to use, zero where invalid; IndexError when a valid one is outside."""
    outside = valid & ((places < 0) | (places >= size))
    if outside.any():
        worst = np.broadcast_to(places, outside.shape)[outside][0]
        raise IndexError(
            f"[evaluate_kernel] {node.op.name} of PARAM {node.src[0].arg.index} at element {worst}, but it has {size}"
        )
    return np.where(valid, places, 0)


def _load(node: Node, params: list[Array], src: list[Array]) -> Array:
    memory = params[node.src[0].arg.index]
    places, valid = src[0], src[1] if len(src) > 1 else np.array(True)
    safe = _check_inside(node, places, valid, memory.size)
    if memory.size == 0:
        return np.zeros(safe.shape, memory.dtype)
    return np.where(valid, array(memory, node.dtype)[safe], np.zeros((), numpy_dtype(node.dtype)))


def _store(node: Node, params: list[Array], done: dict[Node, Array]) -> None:
    """Write the valid elements; where a store adds to the element it reads (scatter), every contribution counts."""
    memory, value = params[node.src[0].arg.index], node.src[2]
    scattered = _scattered(node)
    valid = done[node.src[3]] if len(node.src) > 3 else np.array(True)
    places, values, valid = np.broadcast_arrays(done[node.src[1]], done[scattered or value], valid)
    safe = _check_inside(node, places, valid, memory.size)[valid]
    if scattered is None:
        memory[safe] = values[valid]
    else:
        memory[:] = _scatter_add(value.dtype, memory, safe, values[valid], 0)


def _scattered(store: Node) -> Node | None:
    """x of STORE(p, i, ADD(LOAD(p, i), x)), None for any other store."""
    value = store.src[2]
    if value.op is Op.ADD:
        for own, added in (value.src, value.src[::-1]):
            if own.op is Op.LOAD and own.src[:2] == store.src[:2]:
                return added
    return None
