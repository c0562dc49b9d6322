"""Nodes: the steps of a graph as functions, below tensors; methods, gradients and derivatives are made of them.

In       nodes of the tensor stage, shapes, Python numbers
Out      nodes; none is made where nothing would change
Next     ops/ (which check what a user gives, and then come here), grad/derivatives.py, hcq/ir/op.py (meanings)

Shapes and axes are taken as they are: a caller has checked them. What can be wrong with a number or with two operands
is checked here, for all callers.
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.checks import shown
from hcq.frontend.core import above, known_later, sizes
from hcq.frontend.core.errors import OutOfRange, UsageError
from hcq.ir.dtype import DType, Scalar, dtypes, element, promote, truncate
from hcq.ir.node import Node, Shape, binary, const
from hcq.ir.op import MOVEMENT, Op

# what is in memory whoever reads it
IN_MEMORY_ANYWAY = frozenset(
    {Op.CONTIGUOUS, Op.REDUCE_AXIS, Op.CAT, Op.SCATTER, Op.SCAN_AXIS, Op.BUCKET, Op.ROUTINE}
)

# -- movement ---------------------------------------------------------------------------------------------------------


def reshaped(node: Node, shape: Shape) -> Node:
    """The same elements in row-major order under another shape."""
    if node.shape == shape:
        return node
    if node.op is Op.RESHAPE:
        return reshaped(node.src[0], shape)
    return Node(Op.RESHAPE, node.dtype, (node,), shape)


def met(a: Node, b: Node) -> DType:
    """The dtype that two operands meet in: one of no axes takes the other's, unless it is of a higher kind."""
    if a.dtype is b.dtype:
        return a.dtype
    if (a.shape == ()) is not (b.shape == ()):
        one, other = (a, b) if a.shape == () else (b, a)
        if _height(one.dtype) <= _height(other.dtype):
            return other.dtype
    return promote(a.dtype, b.dtype)


def _height(dtype: DType) -> int:
    return 0 if dtype.is_bool else 2 if dtype.is_float else 1


def permuted(node: Node, order: tuple[int, ...]) -> Node:
    """Axes in another order."""
    if order == tuple(range(len(order))):
        return node
    if node.op is Op.PERMUTE:
        return permuted(node.src[0], tuple(node.arg[axis] for axis in order))
    return Node(Op.PERMUTE, node.dtype, (node,), order)


def expanded(node: Node, shape: Shape) -> Node:
    """RESHAPE for missing axes in front, then EXPAND. A constant expands too: its shape becomes explicit."""
    have = node.shape
    if have == shape:
        return node
    if len(have) < len(shape):
        node = reshaped(node, (1,) * (len(shape) - len(have)) + have)
        if node.shape == shape:
            return node
    if node.op is Op.EXPAND:
        node = node.src[0]
    return Node(Op.EXPAND, node.dtype, (node,), shape)


def padded(node: Node, pads: tuple[tuple[int, int], ...], value: float = 0.0) -> Node:
    """PAD; another value than zero is chosen by a padded mask."""
    if not any(low or high for low, high in pads):
        return node
    for axis, _ in sizes.counts_of(node):
        if any(pads[axis]):
            beyond = constant("pad", value, node.dtype)
            return padded(above.padded_by_numbers(node, axis, *pads[axis], beyond), _but(axis, pads), value)
    zeros = Node(Op.PAD, node.dtype, (node,), pads)
    if value == 0:
        return zeros
    inside = Node(Op.PAD, dtypes.bool, (expanded(const(True, dtypes.bool), node.shape),), pads)
    return Node(Op.WHERE, node.dtype, (inside, zeros, constant("pad", value, node.dtype)))


def _but(axis: int, pads: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return (*pads[:axis], (0, 0), *pads[axis + 1 :])


def shrunk(node: Node, parts: tuple[tuple[int, int, int], ...]) -> Node:
    """The part (start, stop, step) of each axis."""
    if all(start == 0 and step == 1 and stop == size for (start, stop, step), size in zip(parts, node.shape)):
        return node
    return Node(Op.SHRINK, node.dtype, (node,), parts)


def flipped(node: Node, axes: tuple[int, ...]) -> Node:
    """Backwards along some axes."""
    for axis, _ in sizes.counts_of(node):
        if axis in axes:
            return flipped(
                above.flipped_by_numbers(node, axis), tuple([other for other in axes if other != axis])
            )
    return Node(Op.FLIP, node.dtype, (node,), axes) if axes else node


def joined(parts: Sequence[Node], axis: int) -> Node:
    """Nodes of one dtype, one after the other along an axis."""
    if len(parts) > 1 and known_later.in_use and any(axis in dict(sizes.counts_of(part)) for part in parts):
        return above.joined_by_numbers(parts, axis)
    return parts[0] if len(parts) == 1 else Node(Op.CAT, parts[0].dtype, tuple(parts), axis)


def spread(node: Node, axis: int, step: int) -> Node:
    """Elements `step` apart with zeros between them: an UNWINDOW of windows of size 1."""
    count = node.shape[axis]
    if step == 1 or count <= 1:
        return node
    windows = reshaped(node, (*node.shape, 1))
    wide = Node(Op.UNWINDOW, node.dtype, (windows,), (axis, (count - 1) * step + 1, step, 1))
    return reshaped(wide, wide.shape[:-1])


# -- values without memory --------------------------------------------------------------------------------------------


def filled(value: Scalar, shape: Shape, dtype: DType) -> Node:
    """One number everywhere."""
    return expanded(const(value, dtype), shape)


def iota(count: int, axis: int, shape: Shape, dtype: DType = dtypes.int64) -> Node:
    """0, 1, 2, ... along one axis of that shape."""
    line = Node(Op.IOTA, dtype, (), count)
    ones = tuple([count if d == axis else 1 for d in range(len(shape))])
    return expanded(reshaped(line, ones), shape)


def ordinal(count: int, axis: int, shape: Shape) -> Node:
    """`iota` to be compared: in int32 where that holds it, because twice as many lanes fit a vector."""
    return iota(count, axis, shape, dtypes.int32 if count < 1 << 30 else dtypes.int64)


_constants: dict[tuple[DType, Scalar], Node] = {}


def constant(call: str, value: Scalar, dtype: DType) -> Node:
    """A number as a node: rounded to a float format, whole for an integer one, refused where it does not fit.

    Recent ones are kept, so that `x + 1` in a loop makes 1 once.
    """
    if not isinstance(value, (float, int)):
        raise UsageError(f"[{call}] {shown(value)} is no number. Give a number.")
    if value == 0 and type(value) is float:  # 0.0 and -0.0 are one key and two constants
        return const(value, dtype)
    node = _constants.get((dtype, value))
    if node is None:
        if len(_constants) >= 1024:
            _constants.clear()
        node = _constants[dtype, value] = const(_fitting(call, value, dtype), dtype)
    return node


def constant_element(call: str, value: Scalar, dtype: DType) -> Node:
    """`constant`, for a number that elements become: -1 is 255 in uint8."""
    return constant(call, element(value, dtype), dtype)


def _fitting(call: str, value: Scalar, dtype: DType) -> Scalar:
    if dtype.is_bool:
        return bool(value)
    try:
        if dtype.is_float:
            return truncate(float(value), dtype)
        whole = int(value)
        if dtype.min <= whole <= dtype.max:
            return whole
    except (OverflowError, ValueError):  # an int beyond every float, a NaN or an infinity as an integer
        pass
    known = "" if dtype.is_float else f" ({dtype.min} to {dtype.max})"
    raise UsageError(f"[{call}] {value} does not fit in {dtype.name}{known}. Use a wider dtype.")


def scalar_dtype(value: Scalar) -> DType:
    """The dtype of a tensor made of one Python number."""
    if isinstance(value, bool):
        return dtypes.bool
    return dtypes.int64 if isinstance(value, int) else dtypes.float32


# -- arithmetic -------------------------------------------------------------------------------------------------------


def negated(x: Node) -> Node:
    """-x."""
    return Node(Op.NEG, x.dtype, (x,))


def minus(a: Node, b: Node) -> Node:
    """a - b, as -b + a: there is no subtraction among the ops."""
    return a + negated(b)


def divided(a: Node, b: Node) -> Node:
    """a / b, of floats."""
    return Node(Op.DIV, a.dtype, (a, b))


def reciprocal(x: Node) -> Node:
    """1 / x, of floats."""
    return Node(Op.DIV, x.dtype, (const(1.0, x.dtype), x))


def truncated(x: Node) -> Node:
    """Rounded towards zero."""
    return Node(Op.TRUNC, x.dtype, (x,))


def absolute(x: Node) -> Node:
    """The distance from zero; of -0.0 it is -0.0."""
    return (x < 0.0).where(negated(x), x)


def exponential(x: Node) -> Node:
    """e ** x."""
    return Node(Op.EXP, x.dtype, (x,))


def logarithm(x: Node) -> Node:
    """The natural logarithm."""
    return Node(Op.LOG, x.dtype, (x,))


def both(a: Node, b: Node) -> Node:
    """a and b, of bool."""
    return binary(Op.AND, a, b)


def either(a: Node, b: Node) -> Node:
    """a or b, of bool."""
    return binary(Op.OR, a, b)


def reduced(op: Op, x: Node, axes: Sequence[int]) -> Node:
    """ADD, MUL, MAX or MIN over some axes, which stay with size 1; sums of 16-bit floats are taken in float32."""
    if not axes:
        return x
    x = sizes.masked(op, x, tuple(axes))
    dtype = x.dtype
    if dtype.itemsize < 4 and dtype.is_float and op in (Op.ADD, Op.MUL):
        wide = dtypes.float32
        return Node(Op.REDUCE_AXIS, wide, (x.cast(wide),), (op, tuple(axes))).cast(dtype)
    return Node(Op.REDUCE_AXIS, dtype, (x,), (op, tuple(axes)))


def scanned(op: Op, x: Node, axis: int) -> Node:
    """ADD or MUL of each element and all before it along an axis; 16-bit floats are accumulated in float32."""
    dtype = x.dtype
    if dtype.itemsize < 4 and dtype.is_float:
        return scanned(op, x.cast(dtypes.float32), axis).cast(dtype)
    return Node(Op.SCAN_AXIS, dtype, (x,), (op, axis))


def sum_of_products(x: Node, y: Node, axes: Sequence[int], is_wide: bool = False) -> Node:
    """The sum of x * y over axes, which stay with size 1; narrow floats are widened before, and rounded after unless
    `is_wide`.
    """
    dtype = x.dtype
    wide = dtypes.float32 if dtype.is_float and dtype.itemsize < 4 else dtype
    return reduced(Op.ADD, Node(Op.MUL, wide, (_widened(x, wide), _widened(y, wide))), axes).cast(
        wide if is_wide else dtype
    )


def _widened(x: Node, dtype: DType) -> Node:
    """A cast below the views: the gradient's sums over what they repeat are then taken before they are rounded, too."""
    if x.dtype is dtype:
        return x
    views = []
    while x.op in MOVEMENT:
        views.append(x)
        x = x.src[0]
    x = x.cast(dtype)
    for view in reversed(views):
        x = Node(view.op, dtype, (x,), view.arg)
    return x


# -- two operands meet ------------------------------------------------------------------------------------------------


def broadcast(call: str, a: Node, b: Node) -> tuple[Node, Node]:
    """Two nodes of one shape (or one of shape ()): sizes of 1 repeat, missing axes come in front."""
    if a.shape == b.shape or not a.shape or not b.shape:
        return a, b
    shape = broadcast_shape(call, a.shape, b.shape)
    return expanded(a, shape), expanded(b, shape)


def broadcast_shape(call: str, *shapes: Shape) -> Shape:
    """The shape in which all meet; UsageError names the axis where two sizes differ and neither is 1."""
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size == 1 or size == result[axis]:
                continue
            if result[axis] != 1:
                kind = OutOfRange if call == "index" else UsageError
                raise kind(
                    f"[{call}] shapes {' and '.join(map(str, shapes))} do not broadcast: axis {axis - rank} has "
                    f"sizes {result[axis]} and {size}. Reshape one, or add an axis with unsqueeze."
                )
            result[axis] = size
    return tuple(result)
