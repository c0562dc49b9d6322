"""Variables: whole numbers that stand for sizes and places, and are known only when the work runs.

In       `Variable("n", 1, 512)`, and a number for it: `n.bind(5)`
Out      a `Bound`: it stands in shapes and indices, and counts with ints and others of its kind (`n - 1`, `n // 2`)
Changes  device memory: four bytes for each number on each device that asks
Next     ../core/known_later.py (what every program asks for), ../core/sizes.py (which axes have such a size),
         jit/function.py (a Bound as an argument), docs/symbolic.md

A kernel reads the number from memory, so that one kernel, and one recording, serve all numbers of the variable's range.
A Bound is a sum of whole multiples of atoms and a number, so that equal ones are equal objects' contents: an atom is a
`Leaf`, a variable with its number, or a quotient or remainder of a Bound.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hcq.checks import is_whole, shown
from hcq.frontend.core import above, known_later
from hcq.frontend.core import data as formats
from hcq.frontend.core import device as devices
from hcq.frontend.core.errors import OutOfRange, UsageError
from hcq.frontend.core.known_later import MOST, KnownLater
from hcq.frontend.core.storage import Storage
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, const, toposort
from hcq.ir.op import Op

LARGEST = (1 << 63) - 1  # the largest number, to compute with
MAX_TRIED = 1 << 12  # numbers of a variable that a difference of terms is tried with
MAX_KEPT = 1024  # numbers of one variable whose memory is kept


class Variable:
    """A whole number from `low` to `high`, given by `bind`; its name is for messages and files.

    >>> n = hcq.Variable("n", 1, 10)
    >>> Tensor.arange(10)[: n.bind(3)].sum().item()
    3
    """

    __slots__ = ("_leaves", "high", "low", "name")

    def __init__(self, name: str, low: int, high: int):
        if not isinstance(name, str) or not name.isidentifier():
            raise UsageError(f"[Variable] name {shown(name)}: give a word, as in Variable('n', 1, 512).")
        for number in (low, high):
            if not is_whole(number) or not 0 <= number <= LARGEST:
                raise UsageError(
                    f"[Variable] {name} from {shown(low)} to {shown(high)}: bounds are 0 to {LARGEST}."
                )
        if low > high:
            raise UsageError(f"[Variable] {name} from {low} to {high}: there is no such number. Swap them.")
        known_later.note_use()
        self.name = name
        self.low = int(low)
        self.high = int(high)
        self._leaves: OrderedDict[int, Leaf] = OrderedDict()

    def bind(self, value: int) -> Bound:
        """The variable with this number.

        Raises  UsageError, an IndexError too, for a number outside of low to high

        >>> n = hcq.Variable("n", 1, 4)
        >>> x = hcq.tensor([1, 2, 3, 4])
        >>> [x[: n.bind(size)].sum().item() for size in (1, 4)]
        [1, 10]
        """
        if not is_whole(value):
            raise UsageError(f"[bind] {self.name} = {shown(value)}: give an int.")
        number = int(value.__index__())
        if not self.low <= number <= self.high:
            raise OutOfRange(
                f"[bind] {self.name} = {number} is outside of its range, {self.low} to {self.high}. "
                f"Make the variable with a wider range, or give a number inside."
            )
        leaf = self._leaves.get(number)
        if leaf is None:
            leaf = self._leaves[number] = Leaf(self, number)
            if len(self._leaves) > MAX_KEPT:
                self._leaves.popitem(last=False)
        self._leaves.move_to_end(number)
        return Bound({leaf: 1}, 0)

    @property
    def key(self) -> tuple[str, int, int]:
        """What it is compared by: equal variables make one recording.

        >>> hcq.Variable("n", 1, 4).key == hcq.Variable("n", 1, 4).key
        True
        """
        return self.name, self.low, self.high

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, {self.low}, {self.high})"


class Leaf:
    """A variable and its number, with the memory that holds it on each device.

    An argument's stand-in, while a function is recorded, has memory on the device of the recording alone.
    """

    __slots__ = ("is_stand_in", "now", "storages", "variable")

    def __init__(self, variable: Variable, now: int, stand_in: Storage | None = None):
        self.variable = variable
        self.now = now
        self.is_stand_in = stand_in is not None
        self.storages: dict[str, Storage] = {} if stand_in is None else {stand_in.device: stand_in}
        if stand_in is not None:
            stand_in.number = self

    @property
    def low(self) -> int:
        """The least number that it can be."""
        return self.variable.low

    @property
    def high(self) -> int:
        """The greatest number that it can be."""
        return self.variable.high

    def number(self, device: str) -> Node:
        """The number in a device's memory."""
        return self.storage(device).node()

    def storage(self, device: str) -> Storage:
        """The memory; written when it is first asked for."""
        storage = self.storages.get(device)
        if storage is not None and storage.buffer is not None and not storage.buffer.device.dead:
            return storage
        if self.is_stand_in:
            (there,) = self.storages
            raise UsageError(
                f"[jit] {self} is an argument of a recording on {there}, and is asked for on {device}. "
                "In a recording a variable is for one device."
            )
        dtype = _dtype_of(self.low, self.high)
        if devices.is_group(device):
            raw = formats.pack([self.now], dtype)  # every device has it
            storage = self.storages[device] = above.stored(device, dtype, (), raw, str(self.variable.name))
            storage.number = self
            return storage
        buffer = devices.get(device).memory.alloc_idle(dtype.itemsize, str(self.variable.name))
        buffer.write(formats.pack([self.now], dtype))
        buffer.is_constant = True
        storage = self.storages[device] = Storage(device, dtype, (), buffer)
        storage.number = self
        return storage

    def __str__(self) -> str:
        return self.variable.name


class Part(NamedTuple):
    """A quotient or a remainder, as an atom of another Bound."""

    op: Op  # FLOORDIV, MOD or MUL
    of: Bound
    by: int | Bound

    def _of_ends(self) -> list[int]:
        """What it is where both are at their ends: a quotient and a product are least and greatest there."""
        by = (self.by.low, self.by.high) if isinstance(self.by, Bound) else (self.by,)
        return [_combined(self.op, a, b) for a in (self.of.low, self.of.high) for b in by]

    @property
    def low(self) -> int:
        """The least number that it can be."""
        return 0 if self.op is Op.MOD else min(self._of_ends())

    @property
    def high(self) -> int:
        """The greatest number that it can be."""
        if self.op is not Op.MOD:
            return max(self._of_ends())
        most = (self.by.high if isinstance(self.by, Bound) else self.by) - 1
        return min(most, self.of.high) if self.of.low >= 0 else most

    def at(self, number: int) -> int:
        """What it is where its variables are this number."""
        by = self.by.at(number) if isinstance(self.by, Bound) else self.by
        return _combined(self.op, self.of.at(number), by)

    @property
    def now(self) -> int:
        """What it is in this call."""
        return _combined(self.op, self.of.now, self.by.now if isinstance(self.by, Bound) else self.by)

    def number(self, device: str) -> Node:
        """It as a graph."""
        of = self.of.number(device)
        by = (
            self.by.number(device)
            if isinstance(self.by, Bound)
            else const(self.by, _dtype_of(self.by, self.by))
        )
        dtypes_of = (_dtype_of(self.low, self.high), of.dtype, by.dtype)
        dtype = dtypes.int64 if dtypes.int64 in dtypes_of else dtypes.int32
        return Node(self.op, dtype, (of.cast(dtype), by.cast(dtype))).cast(dtypes_of[0])

    def leaves(self) -> list[Leaf]:
        """The variables with their numbers that it is made of."""
        return self.of.leaves() + (self.by.leaves() if isinstance(self.by, Bound) else [])

    def with_leaves(self, new: Callable[[Leaf], Leaf]) -> Part:
        """The same of other leaves."""
        by = self.by.with_leaves(new) if isinstance(self.by, Bound) else self.by
        return Part(self.op, self.of.with_leaves(new), by)

    def __str__(self) -> str:
        first, second = (
            f"({each})" if isinstance(each, Bound) and not each.is_one_word else str(each)
            for each in (self.of, self.by)
        )
        return f"{first} {_SIGNS[self.op]} {second}"


_SIGNS = {Op.FLOORDIV: "//", Op.MOD: "%", Op.MUL: "*"}


def _combined(op: Op, a: int, b: int) -> int:
    if op is Op.MUL:
        return a * b
    return a // b if op is Op.FLOORDIV else a % b


Atom = Any  # Leaf | Part: both have low, high, now, number


def _dtype_of(low: int, high: int) -> DType:
    """The format for numbers from low to high. Raises UsageError where none has them all."""
    if max(-low, high) > LARGEST:
        raise UsageError(f"[Variable] numbers from {low} to {high}: give the variables a narrower range.")
    return dtypes.int32 if max(-low, high) <= MOST else dtypes.int64


class Bound(KnownLater):
    """A number that is known when the work runs; see `Variable`. `value` is what it is now."""

    __slots__ = ("_range", "constant", "terms")

    def __init__(self, terms: dict[Atom, int], constant: int):
        self.terms = {atom: times for atom, times in terms.items() if times}
        self.constant = constant
        self._range: tuple[int, int] | None = None

    # -- what it can be --

    @property
    def low(self) -> int:
        """The least number that it can be."""
        return self._ends()[0]

    @property
    def high(self) -> int:
        """The greatest number that it can be."""
        return self._ends()[1]

    def _ends(self) -> tuple[int, int]:
        """The least and the greatest: by trying where a variable with few numbers stands in several terms."""
        if self._range is None:
            leaves = self.leaves()
            if len(self.terms) > 1 and len(leaves) == 1 and leaves[0].high - leaves[0].low < MAX_TRIED:
                found = [self.at(number) for number in range(leaves[0].low, leaves[0].high + 1)]
                self._range = min(found), max(found)
            else:
                terms = self.terms.items()
                self._range = (
                    self.constant + sum(n * (a.low if n > 0 else a.high) for a, n in terms),
                    self.constant + sum(n * (a.high if n > 0 else a.low) for a, n in terms),
                )
        return self._range

    def at(self, number: int) -> int:
        """What it is where its variables are this number."""
        return self.constant + sum(
            times * (atom.at(number) if isinstance(atom, Part) else number)
            for atom, times in self.terms.items()
        )

    @property
    def value(self) -> int:
        """What it is now. Raises UsageError while a function is recorded that has it as an argument."""
        for leaf in self.leaves():
            if leaf.is_stand_in:
                raise UsageError(
                    f"[jit] the value of {leaf} is not known while a recording is made, which serves all values. "
                    f"Use {self} itself, in shapes and indices, or as Tensor({self})."
                )
        return self.now

    @property
    def now(self) -> int:
        """What it is in this call, be it recorded or not."""
        return self.constant + sum(times * atom.now for atom, times in self.terms.items())

    @property
    def device(self) -> str | None:
        """Where its number is, of an argument while a function is recorded; else None: it may be on any device."""
        return next((there for leaf in self.leaves() if leaf.is_stand_in for there in leaf.storages), None)

    def leaves(self) -> list[Leaf]:
        """The variables with their numbers that it is made of, each once."""
        found: dict[Leaf, None] = {}
        for atom in self.terms:
            found.update(dict.fromkeys(atom.leaves() if isinstance(atom, Part) else (atom,)))
        return list(found)

    def with_leaves(self, new: Callable[[Leaf], Leaf]) -> Bound:
        """The same of other leaves."""
        terms: dict[Atom, int] = {}
        for atom, times in self.terms.items():
            changed = atom.with_leaves(new) if isinstance(atom, Part) else new(atom)
            terms[changed] = terms.get(changed, 0) + times
        return Bound(terms, self.constant)

    def key(self, numbers: dict[Leaf, int]) -> tuple[Any, ...]:
        """What it is apart from its numbers; leaves are numbered as they are met."""
        words: list[Any] = [self.constant]
        for atom, times in self.terms.items():
            if isinstance(atom, Part):
                by = atom.by.key(numbers) if isinstance(atom.by, Bound) else atom.by
                words.append((times, atom.op.name, by, atom.of.key(numbers)))
            else:
                words.append((times, atom.variable.key, numbers.setdefault(atom, len(numbers))))
        return tuple(words)

    def node(self, device: str) -> Node:
        """It as a size or a place: a graph, an int32 of shape ()."""
        return self.number(device).cast(dtypes.int32)

    def number(self, device: str) -> Node:
        """It as a number to compute with: an int32 of shape (), or an int64 where it may be one."""
        atoms = [(atom.number(device), times) for atom, times in self.terms.items()]
        own = _dtype_of(self.low, self.high)
        dtype = dtypes.int64 if any(node.dtype is dtypes.int64 for node, _ in atoms) else own
        total: Node | None = None
        for node, times in atoms:
            term = node.cast(dtype)
            term = term if times == 1 else term * times
            total = term if total is None else total + term
        if total is None:
            return const(self.constant, own)
        return (total + self.constant if self.constant else total).cast(own)

    # -- arithmetic --

    def _with(self, other: Any, sign: int) -> Any:
        if isinstance(other, Bound):
            terms = dict(self.terms)
            for atom, times in other.terms.items():
                terms[atom] = terms.get(atom, 0) + sign * times
            return _plain(Bound(terms, self.constant + sign * other.constant))
        if not is_whole(other):
            return NotImplemented
        return _plain(Bound(self.terms, self.constant + sign * int(other)))

    def __add__(self, other: Any) -> Any:
        return self._with(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (self * -1) + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Bound):
            first, second = sorted((self, other), key=str)
            return Bound({Part(Op.MUL, first, second): 1}, 0)
        if not is_whole(other):
            return NotImplemented
        times = int(other)
        return _plain(Bound({atom: times * have for atom, have in self.terms.items()}, times * self.constant))

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __truediv__(self, other: Any) -> Any:
        raise UsageError(
            f"[/] {self} / {other}: sizes are whole numbers, and {self} is known only when the work runs. Use //, or "
            f"compute with Tensor({self})."
        )

    def __rtruediv__(self, other: Any) -> Any:
        raise UsageError(
            f"[/] {other} / {self}: sizes are whole numbers, and {self} is known only when the work runs. "
            f"Compute with Tensor({self})."
        )

    def __floordiv__(self, other: Any) -> Any:
        return self._part(Op.FLOORDIV, other)

    def __mod__(self, other: Any) -> Any:
        return self._part(Op.MOD, other)

    def _part(self, op: Op, other: Any) -> Any:
        if not is_whole(other) and not isinstance(other, Bound):
            return NotImplemented
        by = other if isinstance(other, Bound) else int(other)
        least = by.low if isinstance(by, Bound) else by
        if least < 1:
            raise UsageError(
                f"[{_SIGNS[op]}] {self} by {by}, which may be {least}: takes a divisor from 1 on. Give the variable a "
                "range from 1 on."
            )
        exact = self.divided(by) if isinstance(by, int) else 1 if self == by else None
        if exact is not None:
            return exact if op is Op.FLOORDIV else 0
        return _plain(Bound({Part(op, self, by): 1}, 0))

    def divided(self, by: int) -> Any:
        """The quotient, where every number that it can be is a multiple; else None."""
        if self.constant % by or any(times % by for times in self.terms.values()):
            return None
        return _plain(Bound({atom: times // by for atom, times in self.terms.items()}, self.constant // by))

    # -- comparisons: decided for all numbers, or refused --

    def __eq__(self, other: object) -> bool:
        """Whether it is the same for all numbers."""
        if isinstance(other, Bound):
            return self.terms == other.terms and self.constant == other.constant
        return False

    def __hash__(self) -> int:
        return hash((frozenset(self.terms.items()), self.constant))

    def _decided(self, sign: str, other: Any, holds: Callable[[int], bool]) -> bool:
        gap = self - other
        low, high = (gap.low, gap.high) if isinstance(gap, Bound) else (gap, gap)
        if holds(low) == holds(high):
            return holds(low)
        raise UsageError(
            f"[{sign}] {self} {sign} {other} is so for some of its numbers ({self.low} to {self.high}), and not for "
            f"others: what is recorded serves all of them. Choose by a tensor, as (Tensor({self}) {sign} {other})."
            "where(a, b), or by the int that it was bound to."
        )

    def __lt__(self, other: Any) -> bool:
        return self._decided("<", other, lambda gap: gap < 0)

    def __le__(self, other: Any) -> bool:
        return self._decided("<=", other, lambda gap: gap <= 0)

    def __gt__(self, other: Any) -> bool:
        return self._decided(">", other, lambda gap: gap > 0)

    def __ge__(self, other: Any) -> bool:
        return self._decided(">=", other, lambda gap: gap >= 0)

    @property
    def is_one_word(self) -> bool:
        """Whether it is a variable alone."""
        return self.constant == 0 and all(
            times == 1 and isinstance(atom, Leaf) for atom, times in self.terms.items()
        )

    def __bool__(self) -> bool:
        return self._decided(">", 0, lambda gap: gap > 0) if self.low >= 0 else True

    def __str__(self) -> str:
        parts = []
        for atom, times in self.terms.items():
            sign = "-" if times < 0 else "+"
            parts.append(f"{sign} {atom if abs(times) == 1 else f'{abs(times)} * {atom}'}")
        if self.constant:
            parts.append(f"{'-' if self.constant < 0 else '+'} {abs(self.constant)}")
        text = " ".join(parts) or "0"
        return text[2:] if text.startswith("+ ") else text

    def __repr__(self) -> str:
        leaves = self.leaves()
        if any(leaf.is_stand_in for leaf in leaves):
            return str(self)
        return f"{self} = {self.now}"


def _plain(bound: Bound) -> Any:
    return bound if bound.terms else bound.constant


def bound_of(node: Node) -> Any:
    """What a graph of `Bound.node` stands for; an int for a number."""
    if node.op is Op.BUFFER:
        return Bound({node.arg.number: 1}, 0)
    if node.op is Op.CONST:
        return node.arg
    if node.op is Op.CAST:
        return bound_of(node.src[0])
    first, second = node.src
    if node.op is Op.ADD:
        return bound_of(first) + bound_of(second)
    if node.op is Op.MUL:
        return bound_of(first) * bound_of(second)
    if node.op is Op.FLOORDIV:
        return bound_of(first) // bound_of(second)
    assert node.op is Op.MOD, node
    return bound_of(first) % bound_of(second)


def place_of(numbers: Sequence[Node]) -> str:
    """The device in whose memory the graphs of Bounds find their numbers."""
    return next(str(node.arg.device) for node in toposort(numbers) if node.op is Op.BUFFER)
