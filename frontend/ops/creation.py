"""Creation: tensors from a shape and a rule, without data.

In       shapes, numbers
Out      lazy tensors of constants and counts: they take no memory until something needs them in it
Next     ../tensor.py (tensors from data), random.py (random numbers)
"""

from __future__ import annotations

import math
from typing import Any

from hcq.checks import is_whole, shown
from hcq.frontend.core import device as devices
from hcq.frontend.core import known_later, views
from hcq.frontend.core.base import Core, check_count, room_args
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.known_later import room_of
from hcq.frontend.core.nodes import (
    constant,
    constant_element,
    expanded,
    iota,
    ordinal,
    permuted,
    scalar_dtype,
)
from hcq.frontend.core.sizes import counts_of, with_counts
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.symbolic.conditions import require
from hcq.frontend.symbolic.variable import Bound
from hcq.ir.dtype import DType, Scalar, dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op


class Creation(Methods):
    """zeros, ones, full, arange, linspace, logspace, eye, and their like-another forms."""

    __slots__ = ()

    @classmethod
    def full(
        cls,
        shape: Any,
        fill_value: Scalar | Bound,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Every element the same number; its dtype is the number's (int64, float32, bool) unless given.

        shape           sizes: an int, or several in a tuple or list; bound Variables among them
        fill_value      a number, or a bound Variable, whose dtype is that of `Tensor(n)`
        requires_grad   as in `Tensor(data)`; every method that makes a tensor has dtype, device and requires_grad
        Raises          UsageError for a negative size, and for a number that does not fit the dtype

        >>> Tensor.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
        """
        given = shape if isinstance(shape, (tuple, list)) else (shape,)
        sizes = room_args("full", (given,))
        if any(size < 0 for size in sizes):
            raise UsageError(f"[full] shape {sizes}: sizes are 0 or more.")
        check_count("full", sizes)
        where = [each.device for each in (fill_value, *given) if isinstance(each, Bound)]
        if where:  # a stand-in of a recording is on its device
            device = devices.canonical(device or next(filter(None, where), None))
        if isinstance(fill_value, Bound):
            assert device is not None
            node = fill_value.number(device)
            node = node if dtype is None else node.cast(dtype)
        else:
            node = constant_element("full", fill_value, dtype or scalar_dtype(fill_value))
        if not where:
            return cls._leaf(expanded(node, sizes), device, requires_grad)
        assert device is not None
        counts = [(axis, size.node(device)) for axis, size in enumerate(given) if isinstance(size, Bound)]
        return cls._leaf(with_counts(expanded(node, sizes), counts), device, requires_grad)

    @classmethod
    def _leaf(cls, node: Node, device: str | None, requires_grad: bool) -> Self:
        tensor = cls._of(node, devices.default() if device is None else devices.canonical(device))
        if requires_grad:
            tensor.requires_grad_()
        return tensor

    @classmethod
    def zeros(
        cls, *shape: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Self:
        """All zero; float32 unless another dtype is given. `zeros(2, 3)` and `zeros((2, 3))` are the same.

        A size may be a bound Variable.

        >>> Tensor.zeros(2, 3).shape, Tensor.zeros((2, 0)).numel()
        ((2, 3), 0)
        """
        return cls.full(_sizes("zeros", shape), 0, dtype or dtypes.float32, device, requires_grad)

    @classmethod
    def ones(
        cls, *shape: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Self:
        """All one; float32 unless another dtype is given.

        >>> Tensor.ones(2, 2).tolist(), Tensor.ones(2, dtype=hcq.int32).dtype
        ([[1.0, 1.0], [1.0, 1.0]], dtypes.int32)
        """
        return cls.full(_sizes("ones", shape), 1, dtype or dtypes.float32, device, requires_grad)

    @classmethod
    def empty(
        cls, *shape: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Self:
        """Zeros too, float32 unless another dtype is given: memory is never shown before it is written.

        >>> Tensor.empty(2, 3).shape
        (2, 3)
        """
        return cls.full(_sizes("empty", shape), 0, dtype or dtypes.float32, device, requires_grad)

    @classmethod
    def arange(
        cls,
        start: Scalar | Bound,
        end: Scalar | Bound | None = None,
        step: Scalar | Bound = 1,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """A vector of start, start + step, ... before end; int64 for ints, float32 if any number is a float.

        start, end, step   numbers; or bound Variables, beside which the others are ints

        Raises             UsageError for numbers that do not fit the dtype

        >>> Tensor.arange(1, 7, 2).tolist()
        [1, 3, 5]
        """
        if end is None:
            start, end = 0, start
        if isinstance(start, Bound) or isinstance(end, Bound) or isinstance(step, Bound):
            node, device = _counted_from(start, end, step, device)
            return cls._leaf(node.cast(dtype or dtypes.int64), device, requires_grad)
        numbers = (start, end, step)
        if dtype is not None and dtype.is_integer and all(-(2**63) < n < 2**63 for n in numbers):
            start, end, step = (int(n) for n in numbers)  # PyTorch rounds the bounds, not the numbers
        if step == 0:
            raise UsageError(f"[arange] from {start} to {end} by step 0 never ends. Use another step.")
        is_whole = not any(isinstance(number, float) for number in (start, end, step))
        if dtype is None:
            dtype = dtypes.int64 if is_whole else dtypes.float32
        try:
            steps = range(int(start), int(end), int(step)) if is_whole else math.ceil((end - start) / step)
            count = steps if isinstance(steps, int) else len(steps)
        except (OverflowError, ValueError):  # an infinity, NaN, a number of many digits
            count = 2**63
        if count >= 2**63:
            raise UsageError(
                f"[arange] {shown(start)} to {shown(end)} by {shown(step)}: their number does not fit 64 bits. "
                "Give finite numbers that are nearer."
            )
        count = max(0, count)
        if is_whole and dtype.is_integer and count:
            for each in (start, start + (count - 1) * step):
                constant_element("arange", each, dtype)  # which refuses what does not fit
        number = dtypes.int64 if is_whole else dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
        node = iota(count, 0, (count,)).cast(number)
        if step != 1:
            node = Node(Op.MUL, number, (node, constant("arange", step, number)))
        if start != 0:
            node = Node(Op.ADD, number, (node, constant("arange", start, number)))
        return cls._leaf(node.cast(dtype), device, requires_grad)

    @classmethod
    def linspace(
        cls,
        start: Any,
        end: Any,
        steps: int,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """A vector of `steps` numbers from start to end, both included, evenly apart; float32 unless given.

        start, end   numbers, or tensors of shape ()

        >>> Tensor.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        if steps < 0:
            raise UsageError(f"[linspace] steps={steps}: use 0 or more.")
        dtype = dtype or dtypes.float32
        if dtype.is_bool:
            raise UsageError("[linspace] bool has no numbers between two. Give a dtype of numbers.")
        wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
        bounds = (("start", start), ("end", end))
        first, last = (_bound("linspace", name, each, wide, dtype.is_integer) for name, each in bounds)
        for each in (first, last):
            device = each.device if isinstance(each, Core) and device is None else device
        number = cls._leaf(iota(steps, 0, (steps,)), device, False)
        gap = (last - first) / max(1, steps - 1)
        rising = number.cast(wide) * gap + first
        falling = (steps - 1 - number).cast(wide) * -gap + last
        both = (number < (steps + 1) // 2).where(rising, falling)
        return cls._leaf(both.cast(dtype).node, device, requires_grad)

    @classmethod
    def logspace(
        cls,
        start: Any,
        end: Any,
        steps: int,
        base: float = 10.0,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """`base` to the powers that `linspace` gives: from base ** start to base ** end; `base` positive.

        >>> Tensor.logspace(0, 2, 3, base=2.0).tolist()
        [1.0, 2.0, 4.0]
        """
        dtype = dtype or dtypes.float32
        wide = dtypes.float32 if dtype.is_float and dtype.itemsize <= 4 else dtypes.float64
        bounds = (("start", start), ("end", end))
        first, last = (_bound("logspace", name, each, wide, dtype.is_integer) for name, each in bounds)
        exponents = cls.linspace(first, last, steps, wide, device)
        powers = exponents._like(const(base, wide)) ** exponents
        if base == int(base):  # a whole power of a whole number is whole, and not what rounding leaves of it
            is_whole = (exponents >= 0.0) & (exponents == exponents.round())
            powers = is_whole.where(powers.round(), powers)
        return cls._leaf(powers.cast(dtype).node, exponents.device, requires_grad)

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """An n x m matrix, or n x n, with ones on its diagonal and zeros elsewhere; float32 unless given.

        >>> Tensor.eye(2, 3).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        """
        shape = (n, n if m is None else m)
        if min(shape) < 0:
            raise UsageError(f"[eye] of {shape[0]} x {shape[1]}: sizes are 0 or more.")
        rows = cls._leaf(ordinal(shape[0], 0, shape), device, False)
        same = rows == rows._like(ordinal(shape[1], 1, shape))
        return cls._leaf(same.cast(dtype or dtypes.float32).node, device, requires_grad)

    def full_like(
        self,
        fill_value: Scalar,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """One number in this tensor's shape, and in its dtype and on its device unless others are given.

        >>> hcq.tensor([1, 2]).full_like(7).tolist()
        [7, 7]
        """
        number = constant_element("full_like", fill_value, dtype or self.node.dtype)
        counts = counts_of(self.node)
        if device is None and devices.is_group(self.device) and not counts:
            x = self._like(self._placed_alike(expanded(number, self.node.shape)))
        elif device is None or counts:
            x = self._like(with_counts(expanded(number, self.node.shape), counts)).to(device)
        else:
            x = self._of(expanded(number, self.node.shape), devices.canonical(device))
        return x.requires_grad_() if requires_grad else x

    def _placed_alike(self, node: Node) -> Node:
        """A value of this tensor's group, split over the devices as this one is where it is in memory."""
        base = self.node
        while base.op is Op.DETACH:
            base = base.src[0]
        split = getattr(base.arg, "split", None) if base.op is Op.BUFFER else None
        if split is None:
            return node
        from hcq.frontend.devices.sharding.placement import Placement

        return Node(Op.COPY, node.dtype, (node,), Placement(self.device, split.axis, True))

    def zeros_like(
        self, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Self:
        """Zeros in this tensor's shape, and in its dtype and on its device unless others are given.

        >>> Tensor([1.5, 2.5]).zeros_like(dtype=hcq.int64).tolist()
        [0, 0]
        """
        return self.full_like(0, dtype, device, requires_grad)

    def ones_like(
        self, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Self:
        """Ones in this tensor's shape, and in its dtype and on its device unless others are given.

        >>> hcq.tensor([[True], [False]]).ones_like().tolist()
        [[True], [True]]
        """
        return self.full_like(1, dtype, device, requires_grad)

    def empty_like(
        self, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
    ) -> Self:
        """Zeros in this tensor's shape, and in its dtype and on its device unless others are given.

        >>> hcq.tensor([1, 2]).empty_like().dtype
        dtypes.int64
        """
        return self.full_like(0, dtype, device, requires_grad)

    # -- triangles and diagonals --

    def tril(self, diagonal: int | Bound = 0) -> Self:
        """The lower triangle of the last two axes, zero above the diagonal; `diagonal` moves it up. The shape stays.

        >>> Tensor.ones(3, 3).tril(-1).tolist()
        [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
        """
        return self._triangle("tril", diagonal, lower=True)

    def triu(self, diagonal: int | Bound = 0) -> Self:
        """The upper triangle of the last two axes, zero below the diagonal; `diagonal` moves it up. The shape stays.

        >>> Tensor.ones(2, 3).triu(1).tolist()
        [[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
        """
        return self._triangle("triu", diagonal, lower=False)

    def _triangle(self, call: str, diagonal: int | Bound, lower: bool) -> Self:
        shape = self.node.shape
        if len(shape) < 2:
            raise UsageError(f"[{call}] shape {shape}: a triangle needs 2 axes. Use unsqueeze first.")
        row = self._like(ordinal(shape[-2], 0, shape[-2:]))
        column = self._like(ordinal(shape[-1], 1, shape[-2:]))
        inside = (column <= row + diagonal) if lower else (column >= row + diagonal)
        return self._zero_unless(inside)

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The diagonal of two axes, which becomes the last axis: (n, m) -> (min(n, m),).

        offset   how many columns right of the main diagonal; negative, rows below it
        Raises   UsageError unless dim1 and dim2 are two axes

        >>> hcq.tensor([[1, 2], [3, 4]]).diagonal(1).tolist()
        [2]
        """
        first, second = self._axis_of("diagonal", dim1), self._axis("diagonal", dim2)
        if first == second:
            raise UsageError(f"[diagonal] dim1 {dim1} and dim2 {dim2} are one axis. Name two.")
        rest = [axis for axis in range(len(self.node.shape)) if axis not in (first, second)]
        strides, _ = views.lies(self.node)
        if strides[first] < strides[second]:  # as rows lie in memory, a row is one view
            first, second, offset = second, first, -offset
        x = self._view(permuted(self.node, (*rest, first, second)))
        *lead, n, m = x.node.shape
        rows, columns = max(0, -offset), max(0, offset)
        size = max(0, min(n - rows, m - columns))
        axis = len(lead)
        if size == 0:
            return x._part(axis, 0, 0)._part(axis + 1, 0, 0)._reshape((*lead, 0))
        # of the elements in a row, every one that is a row and a column further
        start = rows * m + columns
        in_rows = x._reshape((*lead, n * m))
        if not lead and views.core_of(in_rows.node) is in_rows.node:  # of a part, whose rows lie apart
            found = views.line_of(x.node, (rows, columns), size)
            if found is not None:
                return x._view(found)
        return in_rows._part(axis, start, start + (size - 1) * (m + 1) + 1, m + 1)

    def diag(self, diagonal: int = 0) -> Self:
        """A matrix with this vector on a diagonal, (n,) -> (n, n) for the main one; or that diagonal of a matrix.

        >>> hcq.tensor([1, 2]).diag(1).tolist(), hcq.tensor([[1, 2], [3, 4]]).diag().tolist()
        ([[0, 1, 0], [0, 0, 2], [0, 0, 0]], [1, 4])
        """
        if len(self.node.shape) != 1:
            if len(self.node.shape) != 2:
                raise UsageError(f"[diag] shape {self.node.shape}: give a vector or a matrix.")
            return self.diagonal(diagonal)
        return self.diag_embed(diagonal)

    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """The last axis on a diagonal of two new axes, zero around it: the inverse of `diagonal`.

        >>> Tensor.ones(5, 3).diag_embed().shape, hcq.tensor([7]).diag_embed(1).tolist()
        ((5, 3, 3), [[0, 7], [0, 0]])
        """
        if not self.node.shape:
            raise UsageError("[diag_embed] a tensor of shape () has no axis for a diagonal.")
        *lead, size = self.node.shape
        self._refuse_cut("diag_embed", len(lead))
        full = size + abs(offset)
        first, second = self._axis("diag_embed", dim1, extra=1), self._axis("diag_embed", dim2, extra=1)
        if first == second:
            raise UsageError(f"[diag_embed] dim1 {dim1} and dim2 {dim2} are one axis. Name two.")
        if first > second:
            first, second, offset = second, first, -offset
        grown = self.pad((max(0, -offset), max(0, offset)))._reshape((*lead, full, 1))
        shape = (full, full)
        row, column = self._like(iota(full, 0, shape)), self._like(iota(full, 1, shape))
        inside = (column == row + offset) & (row >= max(0, -offset)) & (row < max(0, -offset) + size)
        matrix = grown._zero_unless(inside)
        rank = len(lead) + 2
        order = list(range(rank - 2))
        order.insert(first, rank - 2)
        order.insert(second, rank - 1)
        return self._like(permuted(matrix.node, tuple(order)))

    def diagflat(self, offset: int = 0) -> Self:
        """A matrix with all elements, in row-major order, on a diagonal.

        >>> hcq.tensor([[1], [2]]).diagflat().tolist()
        [[1, 0], [0, 2]]
        """
        return self.flatten().diag_embed(offset)

    def _zero_unless(self, condition: Self) -> Self:
        """This tensor where the condition holds, elsewhere zero, or False."""
        return condition.where(self, self._like(const(0, self.node.dtype)))


def _sizes(call: str, given: tuple[Any, ...]) -> Any:
    """Sizes, loose or in one tuple, for `full`; what is wrong with them is said of this call."""
    found = tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    rooms = room_args(call, (found,))
    return found if known_later.in_use else rooms


def _bound(call: str, name: str, value: Any, dtype: DType, is_whole: bool) -> Any:
    """An end of a range: a float, or a tensor of one number in that dtype; rounded to zero for a range of integers."""
    if isinstance(value, Methods):
        if value.node.shape:
            raise UsageError(f"[{call}] {name} of shape {value.node.shape}: give a number, or shape ().")
        return value.cast(dtype).trunc() if is_whole else value.cast(dtype)
    if isinstance(value, (bool, int, float)) or hasattr(value, "__float__"):
        return float(int(value)) if is_whole else float(value)
    raise UsageError(f"[{call}] {name}={shown(value)}: takes a number, or a tensor of shape ().")


def _counted_from(start: Any, end: Any, step: Any, device: str | None) -> tuple[Node, str]:
    """start, start + step, ... before end, where some of them are Bounds; and the device that knows these numbers."""
    words = f"[arange] from {start} to {end} by {step}"
    for number in (start, end, step):
        if not isinstance(number, Bound) and not is_whole(number):
            raise UsageError(f"{words}: with a bound Variable in it takes ints. Multiply what comes of it.")
    if (step.high if isinstance(step, Bound) else step) < 0:
        gap, stride = start - end, -step
    else:
        gap, stride = end - start, step
    if (stride.low if isinstance(stride, Bound) else stride) < 1:
        raise UsageError(f"{words}: the step may be 0. Give the variable a range from 1 on.")
    require(gap, f"{words} has to go towards its end")
    count = (gap + stride - 1) // stride
    known = next((n.device for n in (start, end, step) if isinstance(n, Bound) and n.device), None)
    device = devices.canonical(device) if device is not None else known or devices.default()
    numbers = [
        number.number(device).cast(dtypes.int64)
        if isinstance(number, Bound)
        else const(int(number), dtypes.int64)
        for number in (start, step)
    ]
    room = room_of(count)
    check_count("arange", (room,))
    node = iota(room, 0, (room,)) * numbers[1] + numbers[0]
    return with_counts(node, [(0, count.node(device))] if isinstance(count, Bound) else []), device
