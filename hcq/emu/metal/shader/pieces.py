"""Pieces: the code between two synchronisation points, which runs for one thread after the other.

In       lines of LLVM IR, as expressions.py writes them
Out      the lines around threads, those of each piece, and what a thread keeps from one piece to the next
Changes  the text under construction
Next     groups.py (puts the text together), threadgroup_memory.py (what threads share)

A Piece is a loop over the threads of the group. What a thread keeps from one piece to the next has a slot for each
thread; what it needs in one piece only stays in a register.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.expressions import Expressions, spelled
from hcq.emu.metal.shader.machine import SIMD
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.typed import Value
from hcq.emu.metal.shader.types import BOOL, Type

SLOT_UNIT = 16  # slots are for a multiple of so many threads, and begin at a multiple of as many bytes


@dataclass(frozen=True)
class Variable(Value):
    """A variable of a thread; its text is its name. is_uniform: one for all of them."""

    is_uniform: bool = False


@dataclass(frozen=True)
class Given(Value):
    """What hardware says of a thread."""


@dataclass
class Piece:
    """A loop over the threads.

    uses    the variables in it, and whether they are written
    shared  of them, those that threads read of each other: as they were before the piece
    """

    name: str
    masks: tuple[Variable, ...]
    lines: list[str] = field(default_factory=list)
    uses: dict[Variable, bool] = field(default_factory=dict)
    shared: set[Variable] = field(default_factory=set)

    @property
    def written(self) -> set[Variable]:
        """Variables that are not yet in their slots."""
        return {one for one, is_written in self.uses.items() if is_written}


class Pieces(Expressions):
    """A text of lines around threads and of pieces, in which threads run."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.outer = self.lines  # those around threads, with the name of a piece where threads run
        self.pieces: dict[str, Piece] = {}
        self.piece: Piece | None = None
        self.masks: tuple[Variable, ...] = ()
        self.variables: list[Variable] = []
        self.slotted: set[Variable] = set()  # read by other threads, so never in a register
        self.allocated: list[str] = []

    def enter(self, masks: tuple[Variable, ...] | None = None) -> None:
        """Threads run, if they do not already: those of the masks."""
        if self.piece is not None:
            return
        made = Piece(self.fresh("piece"), self.masks if masks is None else masks)
        self.slotted.update(made.masks)
        self.jump(f"{made.name}.start")
        self.say(made.name)
        self.pieces[made.name] = self.piece = made
        self.lines, self.block = made.lines, f"{made.name}.begun"

    def leave(self) -> None:
        """All of them have come here."""
        if self.piece is None:
            return
        self.jump(f"{self.piece.name}.end")
        self.lines, self.block, self.piece = self.outer, f"{self.piece.name}.done", None

    @property
    def thread(self) -> str:
        """The number of the thread that runs."""
        assert self.piece is not None
        return f"%{self.piece.name}.t"

    # ------------------------------------------------------------ variables

    def variable_of(self, stem: str, kind: Type, is_uniform: bool = False) -> Variable:
        """A new one."""
        if kind.lanes > 1 and kind.scalar == "bool":
            raise NotCompiled(f"a variable of {kind}")
        made = Variable(self.fresh(stem.replace(":", "_")), kind, None, is_uniform)
        if is_uniform:
            self.allocated.append(f"  %{made.text} = alloca {spelled(kind)}")
        else:
            self.variables.append(made)
        return made

    def flag(self, stem: str, value: str) -> Variable:
        """A bool that all threads have together, as it is now."""
        self.leave()
        made = self.variable_of(stem, BOOL, True)
        self.put(made, value)
        return made

    def cell(self, one: Variable, is_written: bool) -> str:
        """Where a variable is while this piece runs."""
        if one.is_uniform:
            return f"%{one.text}"
        self.enter()
        assert self.piece is not None
        self.piece.uses[one] = self.piece.uses.get(one, False) or is_written
        return f"%{one.text}.{self.piece.name}"

    def put(self, one: Variable, value: str) -> None:
        """Its new value."""
        cell = self.cell(one, True)
        self.say(f"store {spelled(one.kind)} {value}, ptr {cell}")

    def got(self, one: Variable) -> Value:
        """What it has."""
        cell = self.cell(one, False)
        return self.let(f"load {spelled(one.kind)}, ptr {cell}", one.kind)

    def slot(self, one: Variable, thread: str) -> str:
        """Where the variable of any thread is kept between pieces."""
        self.slotted.add(one)
        return self.word(f"getelementptr {spelled(one.kind)}, ptr %slots.{one.text}, i64 {thread}")

    def named(self, name: str) -> Value:
        found = self.find(name)
        if isinstance(found, Variable):
            return self.got(found)
        if isinstance(found, Given):
            return self.given(found)
        return super().named(name)

    def given(self, what: Given) -> Value:
        """What hardware says of a thread, or of its group."""
        self.enter()
        thread, name = self.thread, what.text
        plain = {
            "thread_index_in_threadgroup": thread,
            "thread_index_in_simdgroup": f"and i64 {thread}, {SIMD - 1}",
            "simdgroup_index_in_threadgroup": f"lshr i64 {thread}, {SIMD.bit_length() - 1}",
        }
        if name in plain:
            text = plain[name] if name == "thread_index_in_threadgroup" else self.word(plain[name])
            return self.narrowed(text, what.kind)
        lanes = []
        for axis in "xyz"[: what.kind.lanes]:
            if name == "threadgroup_position_in_grid":
                text = f"%group.{axis}"
            elif name == "threads_per_threadgroup":
                text = f"%block_{axis}"
            elif name == "threadgroups_per_grid":
                text = f"%grid_{axis}"
            elif name in ("thread_position_in_threadgroup", "thread_position_in_grid"):
                text = self.inside(axis)
                if name == "thread_position_in_grid":
                    text = self.word(f"add i64 {text}, {self.word(f'mul i64 %group.{axis}, %block_{axis}')}")
            else:
                raise NotCompiled(f"[[{name}]]")
            lanes.append(self.narrowed(text, Type(what.kind.scalar)))
        return lanes[0] if what.kind.lanes == 1 else self.vector(lanes, what.kind)

    def inside(self, axis: str) -> str:
        """A coordinate of the thread in its group."""
        if axis == "x":
            return self.word(f"urem i64 {self.thread}, %block_x")
        if axis == "y":
            return self.word(f"urem i64 {self.word(f'udiv i64 {self.thread}, %block_x')}, %block_y")
        return self.word(f"udiv i64 {self.thread}, %layer")

    def narrowed(self, text: str, kind: Type) -> Value:
        """A word of 64 bits as a whole number."""
        return self.converted(Value(text, Type("ulong")), Type(kind.scalar))
