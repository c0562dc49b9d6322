"""Declaration: what there is to say about one elementwise operation.

In       nothing
Out      `Elementwise`, one operation; `Spelling`, how one language writes it; the dtypes one may take; marks for slopes
Next     functions.py and operators.py (the declarations), table.py (what is made of them), CONTRIBUTING.md ("Add an
         elementwise op")

What is said here is data and functions of nodes: this floor knows no renderer. A spelling stands under the name of the
language, and the renderer of that language reads it:

    llvm    the words before the type: `fadd contract`, or an intrinsic by its name: `llvm.sqrt`
    c       an expression of C with {a}, {b}, {c} for the sources, {kind} for the type of the result, and {wide} for the
            unsigned type in which sums of it wrap. `cuda` and `metal` stand for one dialect and are preferred to `c`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from hcq.ir.dtype import DType, Kind, Scalar, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op

Rule = Callable[[Node, Node], Node]
Range = tuple[int, int]


class Flat:
    """The mark of a derivative that is zero almost everywhere."""

    def __repr__(self) -> str:
        return "FLAT"


FLAT = Flat()


class Takes(NamedTuple):
    """The kinds of numbers that an operation computes with, and their name in a refusal."""

    kinds: frozenset[Kind]
    words: str


_INTEGERS = frozenset({Kind.INT, Kind.UINT, Kind.INDEX})
FLOATS = Takes(frozenset({Kind.FLOAT}), "floats")
INTEGERS = Takes(_INTEGERS, "integers")
BITS = Takes(_INTEGERS | {Kind.BOOL}, "integers and bools")
NUMBERS = Takes(_INTEGERS | {Kind.BOOL, Kind.FLOAT}, "numbers")


class Spelling(NamedTuple):
    """How a language writes an operation, by the kind of its sources. What is left out is taken from the next one:
    `doubles` from `floats`, `unsigned` and `indices` from `integers`, all of them from `every`."""

    floats: str = ""
    integers: str = ""
    bools: str = ""
    unsigned: str = ""
    indices: str = ""
    doubles: str = ""
    every: str = ""

    def of(self, dtype: DType) -> str:
        """The words for sources of a dtype; "" where the declaration has none."""
        kind = dtype.kind
        if kind is Kind.FLOAT:
            found = self.doubles if dtype.scalar is dtypes.float64 else ""
            return found or self.floats or self.every
        if kind is Kind.BOOL:
            return self.bools or self.every
        found = self.unsigned if kind is Kind.UINT else self.indices if kind is Kind.INDEX else ""
        return found or self.integers or self.every


WRITTEN = Spelling()  # the renderer has a function of its own for it


class Elementwise(NamedTuple):
    """One operation on single numbers, whose name stands in op.py in the group of its number of sources.

    meaning        (dtype of the result, dtype of the last source, the numbers) -> the number, before it is rounded or
                   wrapped to the dtype: exact, or in float64
    slopes         for each source a rule (node, gradient of the result) -> gradient of the source; FLAT where it is
                   zero almost everywhere, None where there is none. How many there are says how many sources it has
    takes          the kinds of numbers it computes with. Sources have one dtype, which is the result's; a comparison
                   gives bool
    moves_bits     True for what computes nothing: formats that are for storage only may pass through it
    bounds         (node, (least, greatest) of each source that is no float) -> those of the result; None for what the
                   dtype can hold
    spelled        language -> how it is written there
    made_of        the same in other operations, of the same sources, for targets without it
    commutes       True where the two sources may change places
    is_costly      True for what takes many instructions: it is computed once and kept rather than repeated
    keeps_format   True where the result for float16 values is a float16 value without being rounded
    """

    op: Op
    meaning: Callable[..., Scalar]
    slopes: tuple[Rule | Flat | None, ...]
    takes: Takes = NUMBERS
    moves_bits: bool = False
    bounds: Callable[..., Range | None] | None = None
    spelled: Mapping[str, Spelling] = {}
    made_of: Callable[..., Node] | None = None
    commutes: bool = False
    is_costly: bool = False
    keeps_format: bool = False

    @property
    def is_spelled(self) -> bool:
        """Whether each of the languages of this tree has words for it, so that every target has it by itself."""
        names = self.spelled
        return "llvm" in names and ("c" in names or ("cuda" in names and "metal" in names))


def carrier(dtype: DType) -> DType:
    """The format a gradient is held in: the value's own, or float32 where the format cannot be computed with."""
    return dtypes.float32 if dtype.is_storage_only else dtype


def times(g: Node, x: Node) -> Node:
    """g * x, in the format of the gradient g."""
    return Node(Op.MUL, g.dtype, (g, x.cast(g.dtype)))


def over(g: Node, x: Node) -> Node:
    """g / x, in the format of the gradient g."""
    return Node(Op.DIV, g.dtype, (g, x.cast(g.dtype)))
