"""A kernel as one function of LLVM IR that runs threadgroups, one after the other.

In       a Source, one of its kernels, the threads of a group
Out      Code: the text, the sites at which a thread may fail, and how much memory a group needs
Next     statements.py and what it stands on (the lines of statements), compiled.py (machine code of it, and its launch)
Source   Metal Shading Language Specification: "Threadgroup and SIMD-group Synchronization Functions", "SIMD-group
         Functions", "Threadgroup Address Space"

Between two barriers one vector of threads after the other runs (pieces.py). The text is written until it is known which
variables are numbers of all threads, and which memory races can be about. What machine.py finds is found here, too:
accesses outside (accesses.py), races in threadgroup memory (threadgroup_memory.py), barriers that some threads do not
reach (exchanges.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hcq.emu.compiled.symbols import NotTraced, llvm_type
from hcq.emu.compiled.writer import declarations
from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.lanes import BOOLEAN, Site
from hcq.emu.metal.shader.machine import SIMD, UNTOUCHED
from hcq.emu.metal.shader.meetings import returns_early, statement_count
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.pieces import SLOT_UNIT, Given, Key, Piece, Size, Variable
from hcq.emu.metal.shader.statements import Statements
from hcq.emu.metal.shader.syntax import Function
from hcq.emu.metal.shader.threadgroup_memory import Touched, notes
from hcq.emu.metal.shader.typed import PRODUCT, Made, Pointer, Value
from hcq.emu.metal.shader.types import BOOL, Type

ARGUMENTS = ("first", "last", "grid_x", "grid_y", "grid_z")
FAULT = len(ARGUMENTS)  # of the words of a launch: whether there is one, the site and its index
STOPPED = 2  # in the place of a fault: it was told to end
SCRATCH = FAULT + 3  # where its memory begins
STOP = SCRATCH + 1  # where the word is that says whether to stop
TABLE = STOP + 1  # and from here on, where each memory begins, and its bytes
SHORT = 24  # statements of a kernel that runs more threads as one vector:
WIDER, WIDEST = 128, 256  # so many, or more where it has a loop without accesses


@dataclass(frozen=True)
class Code:
    """A kernel's text for groups of `block` threads. A group needs so much memory."""

    text: str
    sites: list[Site]
    block: Size
    bytes: int

    @property
    def lines(self) -> int:
        """Of the text."""
        return self.text.count("\n")


def write(source: Source, kernel: Function, block: Size) -> Code:
    """The text of a kernel. Raises NotCompiled for what is interpreted only."""
    varying: set[Key] = set()
    known: list[Touched] | None = None
    width = _width(source, kernel, prod(block))
    while True:
        made = _Groups(source, kernel, width, block, varying, known)
        try:
            code = made.code()
        except NotTraced as problem:
            raise NotCompiled(str(problem)) from problem
        if not made.is_wrong and (not made.shared or made.touched() == known):
            return code
        known = made.touched()


def _width(source: Source, kernel: Function, threads: int) -> int:
    """Threads that run as one vector: more of a short kernel, whose numbers stay in registers."""
    bodies = [kernel.body, *(one.body for one in source.functions.values())]
    if sum(statement_count(body) for body in bodies) > SHORT or PRODUCT in repr(kernel.body):
        return SIMD
    computes = any(isinstance(one, syntax.For) and "Index(" not in repr(one) for one in kernel.body)
    fitting = (one for one in (WIDEST, WIDER) if not threads % one and (computes or one == WIDER))
    return next(fitting, SIMD)


class _Groups(Statements):
    def code(self) -> Code:
        """The text."""
        self.results: list[tuple[Variable, Any]] = []
        self.loops: list[tuple[Variable | None, Variable | None]] = []
        self.passed: list[str] = []
        self.place_memories()
        scope: dict[str, Made] = {}
        for one in self.kernel.parameters:
            if not one.kind.space:
                scope[one.name] = Given(one.attribute, one.kind)
            elif one.kind.space == "constant" and one.kind.is_reference:
                scope[one.name] = self.reference(one.name, one.kind.element)
            else:
                scope[one.name] = Pointer(
                    one.name, one.kind.element, None, one.is_const, is_variable=one.kind.is_reference
                )
        for name, (kind, _) in self.kernel.shared.items():
            sizes = self.kernel.shapes[name]
            scope[name] = Pointer(name, kind, sizes=sizes[1:], is_variable=not sizes)
        self.scopes = [scope]
        self.label("group.body")
        for axis, text in (
            ("x", "urem i64 %group, %grid_x"),
            ("y.all", "udiv i64 %group, %grid_x"),
            ("y", "urem i64 %group.y.all, %grid_y"),
            ("z", "udiv i64 %group.y.all, %grid_y"),
        ):
            self.say(f"%group.{axis} = {text}")
        for name, shared in self.shared.items():
            self.fill(f"%base.{name}", UNTOUCHED, shared.size_bytes)
        self.next_epoch()
        if returns_early(self.kernel.body):
            live = self.variable_of("live", BOOL, self.kernel)
            self.enter()
            self.put(live, self.vector_of(self.w.constant(True, BOOLEAN)))
            self.leave()
            self.live = live
        self.statements(self.kernel.body)
        self.leave()
        self.jump("group.end")
        return self.finished()

    def reference(self, name: str, kind: Type) -> Value:
        """A number that all threads are passed."""
        dtype = np.dtype(np.uint8 if kind == BOOL else kind.numpy)
        self.passed.append(f"%passed.{name} = load {llvm_type(dtype)}, ptr %base.{name}, align 1")
        if kind != BOOL:
            return Value(self.of(f"%passed.{name}", dtype, False), kind)
        self.passed.append(f"%passed.{name}.holds = icmp ne i8 %passed.{name}, 0")
        return Value(self.of(f"%passed.{name}.holds", BOOLEAN, False), kind)

    def finished(self) -> Code:
        """Where each variable is, is known now."""
        slots: dict[str, tuple[Variable, int]] = {}
        at = self.fixed_bytes
        users: dict[Variable, int] = {}
        for piece in self.pieces.values():
            for one in piece.uses:
                users[one] = users.get(one, 0) + 1
        for one in self.variables if self.vectors > 1 else ():
            if not one.is_uniform and users.get(one, 0) > 1:
                for cell in one.cells():
                    slots[cell] = one, at
                    at += self.slot_bytes(one) * self.vectors
        body: list[str] = []
        for line in self.outer:
            inside = self.pieces.get(line)
            body += [line] if inside is None else self.around(inside, slots)
        lines = [
            "define i32 @run(ptr %launch) #0 {",
            "entry:",
            *self.entry(),
            "br label %group.head",
            "group.head:",
            "%group = phi i64 [%first, %entry], [%group.next, %group.end]",
            "%group.more = icmp ult i64 %group, %last",
            "br i1 %group.more, label %group.look, label %finished",
            "group.look:",
            "%group.stop = load volatile i64, ptr %stop",
            "%group.stops = icmp ne i64 %group.stop, 0",
            "br i1 %group.stops, label %stopped, label %group.body",
            *body,
            "group.end:",
            "%group.next = add i64 %group, 1",
            "br label %group.head",
            "finished:",
            "store i64 0, ptr %fault.is",
            "ret i32 0",
            "stopped:",
            f"store i64 {STOPPED}, ptr %fault.is",
            "ret i32 0",
            "}",
        ]
        text = "\n".join(lines) + "\n"
        known = notes(self.width) if self.notes else ""
        own = ("llvm.masked", "llvm.cttz", ".sat.", "llvm.memset")
        declared = {
            *(one for one in self.declared.values() if one not in known),
            *declarations([line for line in lines if not any(name in line for name in own)]),
        }
        text += known + "\n".join(sorted(declared)) + '\nattributes #0 = { "min-legal-vector-width"="512" }\n'
        return Code(text, self.sites, self.block, at)

    def slot_bytes(self, one: Variable) -> int:
        """Of one number of a variable, of the threads of a vector."""
        size = self.width * np.dtype(one.kind.numpy).itemsize
        return -(-size // SLOT_UNIT) * SLOT_UNIT

    def entry(self) -> list[str]:
        """What is read and placed once."""
        lines = ["%epoch = alloca i32", "%every = alloca i1", "%some = alloca i1", "store i32 0, ptr %epoch"]
        for one in self.variables:
            kind = self.w.type_of(np.dtype(one.kind.numpy), not one.is_uniform)
            lines += [f"%{cell} = alloca {kind}" for cell in one.cells()]
        if self.vectors > 1:
            for piece in self.pieces.values():
                for one in piece.uses:
                    kind = self.w.type_of(np.dtype(one.kind.numpy), not one.is_uniform)
                    lines += [f"%{cell}.{piece.name} = alloca {kind}" for cell in one.cells()]
        for number, name in enumerate(ARGUMENTS):
            lines.append(f"%{name}.at = getelementptr i64, ptr %launch, i64 {number}")
            lines.append(f"%{name} = load i64, ptr %{name}.at")
        lines += [
            f"%fault.is = getelementptr i64, ptr %launch, i64 {FAULT}",
            f"%fault.site = getelementptr i64, ptr %launch, i64 {FAULT + 1}",
            f"%fault.index = getelementptr i64, ptr %launch, i64 {FAULT + 2}",
            "store i64 1, ptr %fault.is",
            f"%stop.at = getelementptr i64, ptr %launch, i64 {STOP}",
            "%stop = load ptr, ptr %stop.at",
            f"%nowhere.at = getelementptr i64, ptr %launch, i64 {SCRATCH}",
            "%nowhere = load ptr, ptr %nowhere.at",
        ]
        place = TABLE
        for given in self.kernel.parameters:
            if given.kind.space:
                lines += [
                    f"%base.{given.name}.at = getelementptr i64, ptr %launch, i64 {place}",
                    f"%base.{given.name} = load ptr, ptr %base.{given.name}.at",
                    f"%bytes.{given.name}.at = getelementptr i64, ptr %launch, i64 {place + 1}",
                    f"%bytes.{given.name} = load i64, ptr %bytes.{given.name}.at",
                ]
                place += 2
        for name, size in sorted(self.sizes):
            lines.append(f"%wide.{name}.{size} = udiv i64 %bytes.{name}, {size}")
            lines.append(f"%count.{name}.{size} = trunc i64 %wide.{name}.{size} to i32")
        lines += self.passed
        for name, shared in self.shared.items():
            for stem, at in (
                ("base", shared.at),
                ("writers", shared.writers_at),
                ("readers", shared.readers_at),
                ("changers", shared.changers_at),
            ):
                lines.append(f"%{stem}.{name} = getelementptr i8, ptr %nowhere, i64 {at}")
        return lines

    def around(self, piece: Piece, slots: dict[str, tuple[Variable, int]]) -> list[str]:
        """A piece with its loop; what it has of other pieces is in registers meanwhile."""
        if self.vectors == 1:
            return [f"%{piece.name}.t = add i32 0, 0", *piece.lines]
        name = piece.name
        lines = [
            f"br label %{name}.start",
            f"{name}.start:",
            f"br label %{name}.head",
            f"{name}.head:",
            f"%{name}.c = phi i64 [0, %{name}.start], [%{name}.next, %{name}.end]",
            f"%{name}.c32 = trunc i64 %{name}.c to i32",
            f"%{name}.t = mul i32 %{name}.c32, {self.width}",
        ]
        end: list[str] = []
        done: list[str] = []
        for one, is_written in piece.uses.items():
            kind = self.w.type_of(np.dtype(one.kind.numpy), not one.is_uniform)
            for cell in one.cells():
                own = f"%{cell}.{name}"
                where = f"%{cell}"
                if not one.is_uniform:
                    if cell not in slots:
                        continue
                    where = f"{own}.slot"
                    lines += [
                        f"{own}.step = mul i64 %{name}.c, {self.slot_bytes(one)}",
                        f"{own}.far = add i64 {own}.step, {slots[cell][1]}",
                        f"{where} = getelementptr i8, ptr %nowhere, i64 {own}.far",
                    ]
                lines += [f"{own}.old = load {kind}, ptr {where}", f"store {kind} {own}.old, ptr {own}"]
                if is_written:
                    back = [f"{own}.new = load {kind}, ptr {own}", f"store {kind} {own}.new, ptr {where}"]
                    done += back if one.is_uniform else []
                    end += back if not one.is_uniform else []
        return [
            *lines,
            *piece.lines,
            *end,
            f"br label %{name}.end",
            f"{name}.end:",
            f"%{name}.next = add i64 %{name}.c, 1",
            f"%{name}.more = icmp ult i64 %{name}.next, {self.vectors}",
            f"br i1 %{name}.more, label %{name}.head, label %{name}.done",
            f"{name}.done:",
            *done,
        ]
