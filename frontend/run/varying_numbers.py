"""Varying numbers: a graph that comes again with another number in it reads that number from memory.

In       roots whose structure has no plan yet
Out      the same roots with the numbers that vary as leaves in memory; the memory they are in
Changes  what it remembers of graphs: the numbers each came with last; small buffers that hold numbers
Next     realize.py (who asks, when there is no plan), plan.py (what is compiled then), docs/semantics.md ("Numbers")

The first time, numbers are part of the kernels, where they cost nothing. When a graph comes that differs from one
before in numbers alone, those that differ are arguments from then on: `x + float(i)` in a loop compiles twice. The
result is the same bit for bit, because numbers that a compiler simplifies by stay in the kernel: see `may_vary`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import isfinite
from typing import Any

from hcq.frontend.core import device as devices
from hcq.frontend.core.storage import Storage
from hcq.frontend.core.structure import Structure
from hcq.ir.dtype import DType, Scalar, to_bits
from hcq.ir.node import Node, substitute, toposort
from hcq.ir.op import Op

MAX_NODES = 4096  # of a graph: larger ones are models, which come as they are
MAX_FAMILIES = 2048
MAX_NUMBERS = 256  # kept in memory, each in a block of 64 bytes

_COMPARE_LIKE = frozenset({Op.CMPLT, Op.CMPLE, Op.CMPEQ, Op.CMPNE, Op.MAX, Op.MIN})


_SPREAD = frozenset({Op.RESHAPE, Op.EXPAND})
_KEPT = frozenset({Op.CONTIGUOUS, Op.ASSIGN})


class _Family:
    """Graphs that differ in numbers alone: those of the last one, and at which places others were seen."""

    __slots__ = ("numbers", "varying")

    def __init__(self, numbers: list[Scalar]) -> None:
        self.numbers = numbers
        self.varying: set[int] = set()


_families: OrderedDict[bytes, _Family] = OrderedDict()
_numbers: OrderedDict[tuple[str, DType, Scalar], Storage] = OrderedDict()


def as_arguments(structure: Structure, roots: Sequence[Node], device: str) -> list[Node] | None:
    """The roots with numbers that vary read from memory; None where all numbers belong into the kernels."""
    if len(structure.key) > MAX_NODES:
        return None
    holes = holes_of(roots)
    if not holes:
        return None
    words = [
        (*word[:2], "number") if word[0] is Op.CONST and (word[1], word[2]) in holes else word
        for word in structure.key[:-1]
    ]
    import hashlib

    name = hashlib.sha256(repr((device, words, structure.key[-1])).encode()).digest()
    numbers = [node.arg for node in holes.values()]
    family = _families.get(name)
    if family is None:
        if len(_families) >= MAX_FAMILIES:
            _families.popitem(last=False)
        _families[name] = _Family(numbers)
        return None
    _families.move_to_end(name)
    family.varying.update(
        i for i, (old, new) in enumerate(zip(family.numbers, numbers, strict=True)) if old != new
    )
    family.numbers = numbers
    if not family.varying:
        return None
    constants = list(holes.values())
    return substitute(
        roots,
        {constants[i]: stored(device, constants[i].dtype, numbers[i]).node() for i in sorted(family.varying)},
    )


def holes_of(roots: Sequence[Node]) -> dict[tuple[DType, Scalar], Node]:
    """The numbers of a graph that may be arguments, by dtype and value, in the order in which a walk meets them."""
    found: dict[Node, bool] = {root: False for root in roots if root.op is Op.CONST}
    # integers made of positions: kernels leave out what such a comparison rules out
    counts: set[Node] = set()
    spread: dict[Node, Node] = {}  # a number in every place of a shape, and the number
    for node in toposort(roots):
        is_count = node.op is Op.IOTA or any(source in counts for source in node.src)
        if is_count and (node.dtype.is_integer or node.dtype.is_bool):
            counts.add(node)
        for place, source in enumerate(node.src):
            number = source if source.op is Op.CONST else spread.get(source)
            if number is None:
                continue
            if node.op in _SPREAD:
                spread[node] = number
                may = True  # it depends on who uses that
            elif node.op in _KEPT and node in roots and place == len(node.src) - 1:
                may = _is_number(number)  # written to memory as it is
            elif number is source:
                may = may_vary(node, place, number) and not (is_count and number.dtype.is_integer)
            else:
                may = False
            found[number] = found.get(number, True) and may
    for root in roots:
        if root in spread and not _is_number(spread[root]):
            found[spread[root]] = False
    return {(node.dtype, node.arg): node for node, is_hole in found.items() if is_hole}


def may_vary(user: Node, place: int, number: Node) -> bool:
    """Whether a number may be an argument where `user` has it as source `place`: the compiler does not simplify by it.

    Never     bools; zero; infinities and NaN; whatever an operation needs to know while it is compiled: a divisor of
              integers, a count of bits; integers that meet positions (`holes_of`)
    + max <   any other number
    *         not 1 or -1; of integers no power of two, by which a product is a sum or a shift
    /         not 1 or -1
    where     not 1: a mask as a number is a conversion
    """
    value = number.arg
    if not _is_number(number):
        return False
    op = user.op
    if op is Op.ADD or op in _COMPARE_LIKE:
        return True
    if op is Op.MUL or op is Op.DIV:
        return abs(value) != 1 and (number.dtype.is_float or not _is_power_of_two(value))
    return op is Op.WHERE and place > 0 and abs(value) != 1


def _is_number(number: Node) -> bool:
    """Whether it is a finite number other than zero, of a dtype that is computed with."""
    value, dtype = number.arg, number.dtype
    if dtype.is_bool or dtype.is_storage_only or not value or not (dtype.is_float or dtype.is_integer):
        return False
    return type(value) is not float or isfinite(value)


def stored(device: str, dtype: DType, value: Scalar) -> Storage:
    """The memory that holds a number on a device; written when it is first asked for."""
    key = device, dtype, value
    storage = _numbers.get(key)
    if storage is None or storage.buffer is None or storage.buffer.device.dead:
        opened: Any = devices.get(device)
        buffer = opened.memory.alloc_idle(dtype.itemsize, "number")
        buffer.write(to_bits(value, dtype).to_bytes(dtype.itemsize, "little"))
        buffer.is_constant = True
        storage = _numbers[key] = Storage(device, dtype, (), buffer)
        if len(_numbers) > MAX_NUMBERS:
            _numbers.popitem(last=False)
    _numbers.move_to_end(key)
    return storage


def is_number(storage: Storage) -> bool:
    """Whether the memory is one that holds a number of a graph, and nothing else can write to it."""
    return any(storage is known for known in _numbers.values())


def _is_power_of_two(value: Scalar) -> bool:
    return isinstance(value, int) and abs(value) & (abs(value) - 1) == 0


def _forget(device: str) -> None:
    for key in [key for key in _numbers if key[0] == device]:
        del _numbers[key]


devices.on_close.append(_forget)
