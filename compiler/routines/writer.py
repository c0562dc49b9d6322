"""Writer: the words that routines are written in: numbers, arrays, loops, threads.

In       the kernel's parameters, the target, how many groups there are, how many columns the widest loop has
Out      a Program
Next     ../linear/emitter.py (where instructions go), cholesky.py (a short routine)

A routine is written once. Each group does one matrix, or some columns of one. What can be done at the same time is a
loop over columns: on a CPU these are vectors, with a mask for the rest, on a GPU the group's threads. Everything else
runs in order, and on a GPU in every thread alike, so what one thread wrote is read by another behind a `barrier`.

    for i in w.range(0, n):                  a loop, in order
        for c in w.columns(i, n):            columns i .. n-1 side by side; the body is written for vectors and the rest
            a[i, c] = a[i, c] * 2.0          a row's elements at these columns
        w.barrier()                          what all threads wrote is seen by all
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import NamedTuple

from hcq.compiler.linear.emitter import Emitter
from hcq.compiler.linear.program import BUFFERS, Instruction, LoopFacts, Program
from hcq.compiler.target import GPU_TARGETS, Target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.meaning import identity
from hcq.ir.node import Node
from hcq.ir.op import COMPARE, Op

STRIP = 4  # vectors that a step over columns takes at once
FEWEST_THREADS, MOST_THREADS = 32, 256


class Number:
    """A value of the routine: of its float format, an index, or a condition; one number, or a vector of them."""

    __slots__ = ("it", "writer")

    def __init__(self, writer: Writer, it: Instruction):
        self.writer = writer
        self.it = it

    def __add__(self, other: Number | int | float) -> Number:
        return self.writer.binary(Op.ADD, self, other)

    def __radd__(self, other: int | float) -> Number:
        return self.writer.binary(Op.ADD, self, other)

    def __mul__(self, other: Number | int | float) -> Number:
        return self.writer.binary(Op.MUL, self, other)

    def __rmul__(self, other: int | float) -> Number:
        return self.writer.binary(Op.MUL, self, other)

    def __neg__(self) -> Number:
        if self.it.dtype.is_integer:
            return self.writer.binary(Op.MUL, self, -1)
        return self.writer.unary(Op.NEG, self)

    def __sub__(self, other: Number | int | float) -> Number:
        return self + (-other)

    def __rsub__(self, other: int | float) -> Number:
        return -self + other

    def __truediv__(self, other: Number | int | float) -> Number:
        return self.writer.binary(Op.DIV, self, other)

    def __rtruediv__(self, other: int | float) -> Number:
        return self.writer.like(other, self).__truediv__(self)

    def __floordiv__(self, other: int) -> Number:
        return self.writer.binary(Op.FLOORDIV, self, other)

    def __mod__(self, other: int) -> Number:
        return self.writer.binary(Op.MOD, self, other)

    def __lt__(self, other: Number | int | float) -> Number:
        return self.writer.binary(Op.CMPLT, self, other)

    def __le__(self, other: Number | int | float) -> Number:
        return self.writer.binary(Op.CMPLE, self, other)

    def __gt__(self, other: Number | int | float) -> Number:
        return self.writer.like(other, self) < self

    def __ge__(self, other: Number | int | float) -> Number:
        return self.writer.like(other, self) <= self

    def __and__(self, other: Number) -> Number:
        return self.writer.binary(Op.AND, self, other)

    def __or__(self, other: Number) -> Number:
        return self.writer.binary(Op.OR, self, other)

    def equals(self, other: Number | int | float) -> Number:
        """Whether both are the same number."""
        return self.writer.binary(Op.CMPEQ, self, other)

    def negated(self) -> Number:
        """Of a condition: whether it does not hold."""
        return self.writer.unary(Op.NOT, self)

    def sqrt(self) -> Number:
        """The square root; NaN of what is less than zero."""
        return self.writer.unary(Op.SQRT, self)

    def size(self) -> Number:
        """Without its sign."""
        return self.writer.where(self < 0.0, -self, self)


class Variable:
    """A number that changes while the routine runs."""

    __slots__ = ("it", "writer")

    def __init__(self, writer: Writer, it: Instruction):
        self.writer = writer
        self.it = it

    @property
    def value(self) -> Number:
        """What it is here."""
        return Number(self.writer, self.it)

    def set(self, value: Number | int | float) -> None:
        """It is this from now on."""
        writer = self.writer
        new = writer.like(value, self.value)
        writer.place(Op.UPDATE, self.it.dtype, (self.it, new.it))
        for facts in writer.open_loops[self.it.depth :]:
            if self.it not in facts.carried:
                facts.carried.append(self.it)


class Columns(NamedTuple):
    """Some columns next to each other."""

    at: Number  # the first of them
    lanes: int
    mask: Instruction | None  # which of them there are; None for all

    def __add__(self, other: Number | int) -> Columns:  # type: ignore[override]
        return Columns(self.at + other, self.lanes, self.mask)


class Array:
    """Rows in memory, from an element on: `a[i, c]` of a matrix, `a[c]` of a vector; c is an index, or Columns."""

    __slots__ = ("address", "dtype", "start", "stride", "writer")

    def __init__(self, writer: Writer, address: Instruction, dtype: DType, start: Number, stride: int):
        self.writer = writer
        self.address = address
        self.dtype = dtype
        self.start = start
        self.stride = stride

    def _place(self, key: object) -> tuple[Number, int, Instruction | None]:
        row, column = key if isinstance(key, tuple) and not isinstance(key, Columns) else (None, key)
        at = self.start if row is None else self.start + row * self.stride
        if isinstance(column, Columns):
            return at + column.at, column.lanes, column.mask
        return at + column, 1, None  # type: ignore[operator]

    def __getitem__(self, key: object) -> Number:
        at, lanes, mask = self._place(key)
        src = (self.address, at.it) if mask is None else (self.address, at.it, mask)
        return Number(self.writer, self.writer.place(Op.LOAD, self.dtype.vec(lanes), src, 0))

    def __setitem__(self, key: object, value: Number | int | float) -> None:
        at, lanes, mask = self._place(key)
        writer = self.writer
        if not isinstance(value, Number):
            value = Number(writer, writer.number(float(value), self.dtype))
        src = (self.address, at.it, writer.broadcast(value.it, lanes))
        writer.place(Op.STORE, dtypes.index, src if mask is None else (*src, mask), 0)


class Writer(Emitter):
    """A routine while it is written down. `dtype` is the format it computes in, `group` the number of its group."""

    def __init__(self, params: Sequence[Node], target: Target, groups: int, columns: int):
        super().__init__()
        self.dtype = params[0].dtype
        self.groups = groups
        self.is_gpu = target.name in GPU_TARGETS and not target.codegen
        self.is_cpu = target.name == "cpu" and not target.codegen
        self.threads = 1
        if self.is_gpu:
            self.threads = min(MOST_THREADS, max(FEWEST_THREADS, 1 << (columns - 1).bit_length()))
        self.lanes = max(1, target.vector_bits // self.dtype.bits) if self.is_cpu else 1
        self.open_loops: list[LoopFacts] = []
        self.params = list(params)
        self.addresses = [self.emit(Op.PARAM, node.dtype, (), node.arg) for node in params]
        self.thread: Number | None = None
        if self.is_gpu:
            self.thread = Number(self, self.emit(Op.SPECIAL, dtypes.index, (), "thread"))
        first = self.emit(Op.SPECIAL, dtypes.index, (), "first")
        last = self.emit(Op.SPECIAL, dtypes.index, (), "last")
        self._group_loop = self.begin("group", first, last, runs=False)
        self.open_loops.append(self._group_loop.arg)
        self.group = Number(self, self._group_loop)

    def finish(self, name: str) -> Program:
        """The whole program."""
        self.end(self._group_loop)
        digits = (self.threads,) if self.is_gpu else ()
        params = [(node.arg, node.dtype) for node in self.params]
        return Program(name, params, self.scopes[0].instructions, 0, self.groups, digits)

    # -- numbers ------------------------------------------------------------------------------------------------------

    def like(self, value: Number | int | float, other: Number) -> Number:
        """A value as a Number of another one's format."""
        if isinstance(value, Number):
            return value
        dtype = other.it.dtype.scalar
        return Number(self, self.number(float(value) if dtype.is_float else int(value), dtype))

    def integer(self, value: Number | int) -> Number:
        """An index."""
        return value if isinstance(value, Number) else Number(self, self.number(value))

    def _made(self, op: Op, dtype: DType, *src: Instruction) -> Number:
        """An operation: once, as far out as can be; of a variable here, where it is what it is."""
        if any(source.op is Op.ACCUMULATOR for source in src):
            return Number(self, self.place(op, dtype, src))
        return Number(self, self.emit(op, dtype, src))

    def unary(self, op: Op, a: Number) -> Number:
        """An operation on one number."""
        return self._made(op, a.it.dtype, a.it)

    def binary(self, op: Op, a: Number, other: Number | int | float) -> Number:
        """An operation on two; one number beside a vector is that number in every lane."""
        b = self.like(other, a)
        lanes = max(a.it.dtype.lanes, b.it.dtype.lanes)
        x, y = self.broadcast(a.it, lanes), self.broadcast(b.it, lanes)
        if x.dtype is dtypes.index and op in (Op.ADD, Op.MUL):
            return Number(self, self.arithmetic(op, x, y))
        return self._made(op, dtypes.bool.vec(lanes) if op in COMPARE else x.dtype, x, y)

    def where(self, condition: Number, a: Number | int | float, b: Number | int | float) -> Number:
        """One of two numbers."""
        known = a if isinstance(a, Number) else b
        assert isinstance(known, Number)
        sources = [condition.it, self.like(a, known).it, self.like(b, known).it]
        lanes = max([it.dtype.lanes for it in sources])
        sources = [self.broadcast(it, lanes) for it in sources]
        return self._made(Op.WHERE, sources[1].dtype, *sources)

    def at_most(self, a: Number, b: Number | int) -> Number:
        """The lesser of two indices."""
        return self.binary(Op.MIN, a, b)

    def at_least(self, a: Number, b: Number | int) -> Number:
        """The greater of two indices."""
        return self.binary(Op.MAX, a, b)

    def as_float(self, index: Number | int) -> Number:
        """An index as a number to compute with: exact up to 2 ** 24."""
        if isinstance(index, int):
            return Number(self, self.number(float(index), self.dtype))
        whole = self._made(Op.CAST, dtypes.int32, index.it)
        return self._made(Op.CAST, self.dtype, whole.it)

    def as_index(self, value: Number, high: int) -> Number:
        """A whole number as an index of 0 .. high."""
        whole = self._made(Op.CAST, dtypes.int32, value.it)
        index = self._made(Op.CAST, dtypes.index, whole.it)
        return self.at_most(self.at_least(index, 0), high)

    def constant(self, value: float) -> Number:
        """A number of the routine's format."""
        return Number(self, self.number(value, self.dtype))

    def variable(self, value: Number | float) -> Variable:
        """A number that will change, and begins as this."""
        start = value if isinstance(value, Number) else self.constant(value)
        return Variable(self, self.place(Op.ACCUMULATOR, start.it.dtype, (start.it,)))

    # -- memory -------------------------------------------------------------------------------------------------------

    def array(self, param: int, start: Number | int, stride: int = 0) -> Array:
        """The elements of a parameter (0: what is stored) from one on, in rows of `stride`."""
        return Array(self, self.addresses[param], self.params[param].dtype, self.integer(start), stride)

    def size_of(self, param: int, groups: int) -> int:
        """How many elements of a parameter each of so many matrices has."""
        return prod(self.params[param].arg.shape) // groups

    # -- loops and threads --------------------------------------------------------------------------------------------

    def range(self, low: Number | int, high: Number | int, name: str = "i") -> Iterator[Number]:
        """A loop, in order. Its body is what follows in the `for` statement."""
        a, b = self.integer(low).it, self.integer(high).it
        if a.op is Op.CONST and b.op is Op.CONST and a.arg >= b.arg:
            return
        loop = self.begin(name, a, b, runs=a.op is Op.CONST and b.op is Op.CONST)
        self.open_loops.append(loop.arg)
        yield Number(self, loop)
        self.open_loops.pop()
        self.end(loop)

    def when(self, condition: Number) -> Iterator[None]:
        """What follows is done where a condition holds; on a GPU it must be the same in all threads at a barrier."""
        count = self._made(Op.WHERE, dtypes.index, condition.it, self.number(1), self.number(0))
        for _ in self.range(0, count, "when"):
            yield None

    def one_thread(self) -> Iterator[None]:
        """What follows is done by one thread of the group."""
        if self.thread is None:
            yield None
            return
        for _ in self.when(self.thread.equals(0)):
            yield None

    def barrier(self) -> None:
        """Threads wait for each other; what they wrote to buffers is seen by all."""
        if self.is_gpu:
            self.place(Op.BARRIER, dtypes.index, (), BUFFERS)

    def elements(self, low: Number | int, high: Number | int) -> Iterator[Number]:
        """The indices low .. high-1 one by one: on a GPU each in one of the threads."""
        low, high = self.integer(low), self.integer(high)
        if self.thread is None:
            yield from self.range(low, high)
            return
        first = low + self.thread
        count = (high - first + (self.threads - 1)) // self.threads
        for turn in self.range(0, self.at_least(count, 0), "turn"):
            yield first + turn * self.threads

    def widths(self, most: int) -> tuple[int, ...]:
        """How many columns the bodies of a loop over `most` columns take at once."""
        if self.lanes == 1 or most == 1:
            return (1,)
        return (STRIP * self.lanes, self.lanes) if most >= STRIP * self.lanes else (self.lanes,)

    def columns(self, low: Number | int, high: Number | int, most: int) -> Iterator[Columns]:
        """Columns low .. high-1, of which there are never more than `most`: vectors, or threads. The body is written
        down once for each of `widths`."""
        if self.is_gpu or self.lanes == 1 or most == 1:
            for at in self.elements(low, high):
                yield Columns(at, 1, None)
            return
        low, high = self.integer(low), self.integer(high)
        wide, *rest = self.widths(most)
        if rest:
            whole = self.at_least(high - low, 0) // wide
            for turn in self.range(0, whole, "strip"):
                yield Columns(low + turn * wide, wide, None)
            low = low + whole * wide
        lanes = self.lanes
        count = self.at_least(high - low + (lanes - 1), 0) // lanes
        numbers = self.emit(
            Op.VECTOR,
            dtypes.int32.vec(lanes),
            tuple([self.number(lane, dtypes.int32) for lane in range(lanes)]),
        )
        for turn in self.range(0, count, "rest"):
            at = low + turn * lanes
            left = self._made(Op.CAST, dtypes.int32, (high - at).it)
            mask = self.emit(Op.CMPLT, dtypes.bool.vec(lanes), (numbers, self.broadcast(left.it, lanes)))
            yield Columns(at, lanes, mask)

    # -- folds --------------------------------------------------------------------------------------------------------

    def across(self, op: Op, *values: Number) -> list[Number]:
        """What all threads have together, of several values."""
        if not self.is_gpu:
            return list(values)
        sources = [
            Number(self, self.place(Op.ADD, v.it.dtype, (v.it, self.number(0.0, v.it.dtype)))) for v in values
        ]
        return [Number(self, self.place(Op.ACROSS, v.it.dtype, (v.it,), (op, (0,)))) for v in sources]

    def sums(
        self,
        low: Number | int,
        high: Number | int,
        most: int,
        terms: Callable[[Columns], Sequence[Number]],
        count: int,
    ) -> list[Number]:
        """The sums of `count` terms over columns. What a mask leaves out was read as zero, and has to add zero."""
        zero = self.number(identity(Op.ADD, self.dtype), self.dtype)
        parts = {
            lanes: [self.variable(Number(self, self.broadcast(zero, lanes))) for _ in range(count)]
            for lanes in self.widths(most)
        }
        for c in self.columns(low, high, most):
            for part, term in zip(parts[c.lanes], terms(c), strict=True):
                part.set(part.value + term)
        totals = []
        for number in range(count):
            lanes, *rest = [self._folded(made[number].it) for made in parts.values()]
            for other in rest:
                lanes = lanes + other
            totals.append(lanes)
        return self.across(Op.ADD, *totals)

    def _folded(self, it: Instruction) -> Number:
        """The sum of a vector's lanes."""
        while it.dtype.lanes > 1:
            lanes = it.dtype.lanes // 2
            half = it.dtype.vec(lanes)
            low = self.place(Op.LANE, half, (it,), tuple(range(lanes)))
            high = self.place(Op.LANE, half, (it,), tuple(range(lanes, 2 * lanes)))
            it = self.place(Op.ADD, half, (low, high))
        if it.op is Op.ACCUMULATOR:
            it = self.place(Op.ADD, it.dtype, (it, self.number(0.0, it.dtype)))
        return Number(self, it)
