"""Pieces: the code between two barriers, which runs for one vector of threads after the other.

In       lines of LLVM IR, as lanes.py writes them
Out      the lines around threads, those of each piece, and what threads keep from one piece to the next
Changes  the text under construction
Next     groups.py (puts the text together), threadgroup_memory.py (what threads share)

A Piece is a loop over the threads of the group, `width` at a time. What threads keep from one piece to the next has
slots; what they need in one piece only stays in registers of the host. Where all threads of a group fit into one
vector there are no slots.

A variable is one number for all threads until something else is put into it. Where it was used before, the text is
written again (groups.py), and `varying` remembers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hcq.emu.compiled.symbols import Symbol
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.lanes import BOOLEAN, I32, I64, Lanes
from hcq.emu.metal.shader.machine import SIMD
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.typed import Value
from hcq.emu.metal.shader.types import Type

SLOT_UNIT = 64  # slots begin at a multiple of as many bytes
Key = tuple[Any, ...]
Size = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Variable(Value):  # is_uniform alone may change, by `part`
    """A variable of threads; its text is its name.

    key      what it is in the tree, the same whenever the text is written
    level    of masks, where it is declared: what threads do that part inside must not change it for the others
    """

    key: Key = ()
    is_uniform: bool = False
    level: int = 0

    def part(self) -> None:
        """From now on each thread has its own."""
        object.__setattr__(self, "is_uniform", False)

    def cells(self) -> list[str]:
        """The names of its numbers."""
        return [f"{self.text}.{number}" for number in range(self.kind.lanes)]


@dataclass(frozen=True)
class Given(Value):
    """What hardware says of a thread."""


@dataclass
class Piece:
    """A loop over the threads. uses: the variables in it, and whether they are written."""

    name: str
    lines: list[str] = field(default_factory=list)
    uses: dict[Variable, bool] = field(default_factory=dict)


class Pieces(Lanes):
    """A text of lines around threads and of pieces, in which threads run. block: the threads of a group."""

    def __init__(self, source: Source, width: int, block: Size, varying: set[Key]) -> None:
        super().__init__(source, width)
        self.block = block
        self.threads = int(np.prod(block))
        self.vectors = -(-self.threads // width)
        self.varying = varying
        self.is_wrong = False  # what was written before it was known that threads part
        self.outer = self.w.lines  # those around threads, with the name of a piece where threads run
        self.pieces: dict[str, Piece] = {}
        self.piece: Piece | None = None
        self.variables: list[Variable] = []
        self.touched_variables: set[Variable] = set()
        self.path: Key = ()  # the calls of functions that are written here
        self.level = self.levels = 0
        self.live: Variable | None = None  # the threads that have not ended

    def enter(self) -> None:
        """Threads run, if they do not already."""
        if self.piece is not None:
            return
        made = Piece(self.fresh("piece"))
        self.say(f"; {made.name}")
        self.pieces[f"; {made.name}"] = self.piece = made
        self.into(made.lines)
        self.mask = None
        if self.threads % self.width:
            self.mask = self.w.compare("ult", self.thread, np.array(self.threads, np.int32))
        if self.live is not None:
            self.mask = self.both_of(self.mask, self.got(self.live).text)

    def leave(self) -> None:
        """All of them have come here."""
        if self.piece is not None:
            self.piece, self.mask = None, None
            self.into(self.outer)

    @property
    def first(self) -> str:
        """The number of the vector of threads that run."""
        assert self.piece is not None
        return f"%{self.piece.name}.c"

    @property
    def thread(self) -> Symbol:
        """The numbers in their group of the threads that run."""
        if self.piece is None:
            raise NotCompiled("threads that part around a barrier")
        lanes = ", ".join(f"i32 {lane}" for lane in range(self.width))
        begin = self.of(f"%{self.piece.name}.t", I32, False)
        return self.w.binary("add", I32, begin, self.of(f"<{lanes}>", I32))

    # ------------------------------------------------------------ variables

    def variable_of(self, stem: str, kind: Type, what: object) -> Variable:
        """A new one."""
        if kind.lanes > 1 and kind.scalar == "bool":
            raise NotCompiled(f"a variable of {kind}")
        key = (*self.path, id(what), stem)
        is_uniform = key not in self.varying
        made = Variable(
            self.fresh(stem.replace(":", "_")), kind, key=key, is_uniform=is_uniform, level=self.level
        )
        self.variables.append(made)
        return made

    def place_of(self, one: Variable, cell: str, is_written: bool) -> str:
        """Where a number of a variable is now."""
        self.touched_variables.add(one)
        if self.piece is None:
            if not one.is_uniform:
                raise NotCompiled("threads that part around a barrier")
            return f"%{cell}"
        self.piece.uses[one] = self.piece.uses.get(one, False) or is_written
        return f"%{cell}" if self.vectors == 1 else f"%{cell}.{self.piece.name}"

    def put(self, one: Variable, value: Any) -> None:
        """Its new value, for the threads that are there."""
        values = value if isinstance(value, tuple) else (value,)
        is_masked = self.mask is not None and self.level != one.level
        if one.is_uniform and (is_masked or any(each.is_vector for each in values)):
            self.varying.add(one.key)
            self.is_wrong = self.is_wrong or one in self.touched_variables
            one.part()
        if is_masked:
            assert self.mask is not None
            old = self.got(one).text
            before = old if isinstance(old, tuple) else (old,)
            values = tuple(self.w.select(self.mask, *pair) for pair in zip(values, before))
        kind = self.w.type_of(np.dtype(one.kind.numpy), not one.is_uniform)
        for cell, each in zip(one.cells(), values):
            text = each.text if one.is_uniform else self.w.wide(each)
            self.say(f"store {kind} {text}, ptr {self.place_of(one, cell, True)}")

    def got(self, one: Variable) -> Value:
        """What it has."""
        dtype = np.dtype(one.kind.numpy)
        kind = self.w.type_of(dtype, not one.is_uniform)
        found = tuple(
            self.of(
                self.word(f"load {kind}, ptr {self.place_of(one, cell, False)}"), dtype, not one.is_uniform
            )
            for cell in one.cells()
        )
        return Value(found if one.kind.lanes > 1 else found[0], one.kind)

    def named(self, name: str) -> Value:
        found = self.find(name)
        if isinstance(found, Variable):
            return self.got(found)
        if isinstance(found, Given):
            return self.given(found)
        return super().named(name)

    def given(self, what: Given) -> Value:
        """What hardware says of a thread, or of its group."""
        name, kind = what.text, what.kind
        plain = ("thread_index_in_threadgroup", "thread_index_in_simdgroup", "simdgroup_index_in_threadgroup")
        if name in plain:
            found = self.thread
            if name == plain[1]:
                found = self.w.binary("and", I32, found, np.array(SIMD - 1, np.int32))
            if name == plain[2]:
                found = self.w.binary("lshr", I32, found, np.array(SIMD.bit_length() - 1, np.int32))
            return Value(self.w.convert(found, np.dtype(kind.numpy)), kind)
        lanes = []
        for axis in range(kind.lanes):
            group, size = self.of(f"%group.{'xyz'[axis]}", I64, False), np.array(self.block[axis], np.int64)
            if name == "threadgroup_position_in_grid":
                found = group
            elif name == "threads_per_threadgroup":
                found = self.w.constant(size, I64)
            elif name == "threadgroups_per_grid":
                found = self.of(f"%grid_{'xyz'[axis]}", I64, False)
            elif name == "thread_position_in_threadgroup":
                found = self.inside(axis)
            elif name == "thread_position_in_grid":
                begin = self.w.convert(self.w.binary("mul", I64, group, size), I32)
                found = self.w.binary("add", I32, self.inside(axis), begin)
            else:
                raise NotCompiled(f"[[{name}]]")
            lanes.append(self.w.convert(found, np.dtype(kind.numpy)))
        return Value(lanes[0] if kind.lanes == 1 else tuple(lanes), kind)

    def inside(self, axis: int) -> Symbol:
        """A coordinate of the threads in their group."""
        below, size = int(np.prod(self.block[:axis])), self.block[axis]
        found = self.thread
        if below > 1:
            found = self.w.binary("udiv", I32, found, np.array(below, np.int32))
        if below * size < self.threads:
            found = self.w.binary("urem", I32, found, np.array(size, np.int32))
        return found

    def truth_mask(self) -> Symbol:
        """The mask as a vector."""
        return self.vector_of(self.mask if self.mask is not None else self.w.constant(True, BOOLEAN))
