"""The text of a Metal kernel, run piece by piece, so that it can be saved between two rounds of a loop and go on there.

In       the function that MSL was translated to, as a tree, with its calls before each statement (metal.py)
Out      Text, its pieces; Run, one batch of threads on its way through them; State, such a run as it was
Changes  memory and variables, as the function does
Next     metal.py (who runs it), hcq/emu/metal/shader/translate.py (the text: loops are `while True`, with a break)

A function of Python cannot be left in the middle and entered there again. So its loops and branches are followed here,
and only what is straight between them is Python's. What an inner function of MSL does is one piece.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from hcq.debug.moment import Array
from hcq.emu.metal.shader.machine import Machine, Marks, Memory, OwnMemory, SharedMemory

FIELDS = ("who", "phase", "is_clean")  # of marks


class Block(NamedTuple):
    """Pieces one after the other. is_loop: again and again, until one breaks."""

    pieces: tuple[CodeType | Branch | Block | None, ...]  # None: break
    is_loop: bool


class Branch(NamedTuple):
    """`if`."""

    test: CodeType
    body: Block
    otherwise: Block


class Text:
    """A function's pieces. parameters: its names for what it is given; base: the names that all of it sees."""

    def __init__(self, function: ast.FunctionDef, file_name: str, base: dict[str, Any]) -> None:
        self.file_name, self.base = file_name, base
        self.parameters = [one.arg for one in function.args.args]
        self.block = Block(self._pieces(function.body), False)

    def _pieces(self, body: Sequence[ast.stmt]) -> tuple[CodeType | Branch | Block | None, ...]:
        found: list[CodeType | Branch | Block | None] = []
        straight: list[ast.stmt] = []

        def finish() -> None:
            if straight:
                found.append(compile(ast.Module([*straight], []), self.file_name, "exec"))
                straight.clear()

        for one in body:
            if isinstance(one, ast.If):
                finish()
                test = compile(ast.Expression(one.test), self.file_name, "eval")
                branches = (Block(self._pieces(part), False) for part in (one.body, one.orelse))
                found.append(Branch(test, *branches))
            elif isinstance(one, ast.While):
                finish()
                assert isinstance(one.test, ast.Constant) and not one.orelse
                found.append(Block(self._pieces(one.body), True))
            elif isinstance(one, ast.Break):
                finish()
                found.append(None)
            else:
                straight.append(one)
        finish()
        return tuple(found)


class State(NamedTuple):
    """A batch between two rounds of a loop, without device memory. first: the number of its first group.

    stack    blocks, and which piece of each comes next
    names    the variables; memory in them as Kept
    shared   of each threadgroup memory its bytes, and its marks
    """

    first: int
    stack: tuple[tuple[Block, int], ...]
    names: dict[str, Any]
    shared: tuple[tuple[Array, tuple[tuple[Any, ...], ...]], ...]
    phases: Array | None


class Kept(NamedTuple):
    """Memory in a saved variable. name: of the parameter that it is; own: an array of each thread's own."""

    name: str
    own: OwnMemory | None


class Run:
    """One batch. between: called between two rounds of a loop."""

    def __init__(
        self, text: Text, machine: Machine, given: Sequence[Any], between: Callable[[Run], None]
    ) -> None:
        self.text, self.machine, self.between = text, machine, between
        self.given = dict(zip(text.parameters, (machine, *given)))
        self.names = {**text.base, **self.given}
        self.stack: list[list[Any]] = [[text.block, 0]]

    def go(self) -> None:
        """To its end."""
        stack, names = self.stack, self.names
        while stack:
            block, at = top = stack[-1]
            if at == len(block.pieces):
                if block.is_loop:
                    top[1] = 0
                    self.between(self)
                else:
                    stack.pop()
                continue
            top[1] = at + 1
            piece = block.pieces[at]
            if isinstance(piece, CodeType):
                exec(piece, names)
            elif isinstance(piece, Branch):
                stack.append([piece.body if eval(piece.test, names) else piece.otherwise, 0])
            elif piece is not None:
                stack.append([piece, 0])
            else:
                while not stack.pop()[0].is_loop:
                    pass

    # ------------------------------------------------------------ in and out of a state

    def save(self) -> State:
        """As it is now. Arrays of numbers are never changed once they are made, and are shared."""
        places = {id(value): name for name, value in self.given.items() if isinstance(value, Memory)}
        copies: dict[int, Kept] = {}

        def keep(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(map(keep, value))
            if not isinstance(value, Memory):
                return value
            if id(value) not in copies:
                own = _copied(value, self.machine) if isinstance(value, OwnMemory) else None
                copies[id(value)] = Kept(places.get(id(value), ""), own)
            return copies[id(value)]

        names = {
            name: keep(value)
            for name, value in self.names.items()
            if name not in self.text.base and not isinstance(value, Machine)
        }
        shared = tuple((one.data.copy(), _marks_of(one)) for one in self.machine.shared)
        phases = None if self.machine.phases is None else self.machine.phases.count.copy()
        stack = tuple((block, at) for block, at in self.stack)
        return State(self.machine.first, stack, names, shared, phases)

    def restore(self, state: State) -> None:
        """As it was then, in the memory of now."""
        copies: dict[int, OwnMemory] = {}

        def back(value: Any) -> Any:
            if isinstance(value, Kept):
                if value.own is None:
                    return self.given[value.name]
                if id(value) not in copies:
                    copies[id(value)] = _copied(value.own, self.machine)
                return copies[id(value)]
            if isinstance(value, (list, tuple)):
                return type(value)(map(back, value))
            return value

        self.names |= {name: back(value) for name, value in state.names.items()}
        self.stack = [[block, at] for block, at in state.stack]
        for memory, (data, marks) in zip(self.machine.shared, state.shared):
            memory.data[:] = data
            for one, fields in zip((memory.writer, memory.reader, memory.changer), marks):
                for name, value in zip(FIELDS, fields):
                    setattr(one, name, value.copy() if hasattr(value, "copy") else value)
        if self.machine.phases is not None and state.phases is not None:
            self.machine.phases.count[:] = state.phases


def _copied(memory: OwnMemory, machine: Machine) -> OwnMemory:
    made = machine.own(memory.name, memory.size_bytes)
    made.data[:] = memory.data
    return made


def _marks_of(memory: SharedMemory) -> tuple[tuple[Any, ...], ...]:
    def fields(marks: Marks) -> tuple[Any, ...]:
        found = (getattr(marks, name) for name in FIELDS)
        return tuple(value.copy() if hasattr(value, "copy") else value for value in found)

    return tuple(fields(one) for one in (memory.writer, memory.reader, memory.changer))
