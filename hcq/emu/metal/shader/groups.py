"""A kernel as one function of LLVM IR that runs threadgroups, one after the other.

In       a Source, one of its kernels
Out      Code: the text, the sites at which a thread may fail, and how much memory a group needs
Changes  nothing
Next     together.py and what it stands on (the lines of statements), compiled.py (machine code of it, and its launch)
Source   Metal Shading Language Specification: "Threadgroup and SIMD-group Synchronization Functions", "SIMD-group
         Functions", "Threadgroup Address Space"

Between two places where threads meet (a barrier, an exchange), one thread after the other runs (pieces.py). A loop or
a condition around such a place is run by all threads together (together.py). What machine.py finds is found here, too:
accesses outside (expressions.py), races in threadgroup memory (threadgroup_memory.py), barriers that some threads do
not reach (exchanges.py).
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.emu.metal.shader.expressions import Site, spelled
from hcq.emu.metal.shader.machine import UNTOUCHED
from hcq.emu.metal.shader.meetings import returns_early
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.pieces import Given, Piece, Variable
from hcq.emu.metal.shader.syntax import Function
from hcq.emu.metal.shader.together import Together
from hcq.emu.metal.shader.typed import Made, Pointer, Value
from hcq.emu.metal.shader.types import BOOL, Type

ARGUMENTS = (
    "first",
    "last",
    "threads",
    "rows",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
)
FAULT = len(ARGUMENTS)  # of the words of a launch: the site and its index
TABLE = FAULT + 2  # and from here on, where each memory begins, and its bytes


class Code(NamedTuple):
    """A kernel's text. A group needs fixed_bytes, and slot_bytes for each row."""

    text: str
    sites: list[Site]
    fixed_bytes: int
    slot_bytes: int

    @property
    def lines(self) -> int:
        """Of the text."""
        return self.text.count("\n")


def write(source: Source, kernel: Function) -> Code:
    """The text of a kernel. Raises NotCompiled for what is interpreted only."""
    return _Groups(source, kernel).code()


class _Groups(Together):
    def __init__(self, source: Source, kernel: Function) -> None:
        super().__init__(source, kernel)
        self.passed: list[str] = []

    def code(self) -> Code:
        """The text."""
        self.place_memories()
        scope: dict[str, Made] = {}
        for one in self.kernel.parameters:
            if not one.kind.space:
                scope[one.name] = Given(one.attribute, one.kind)
            elif one.kind.space == "constant":
                scope[one.name] = self.reference(one.name, one.kind.element)
            else:
                scope[one.name] = Pointer(one.name, one.kind.element, None, one.is_const)
        for name, (kind, _) in self.kernel.shared.items():
            scope[name] = Pointer(name, kind)
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
            self.live = self.variable_of("live", BOOL)
            self.enter(())
            self.put(self.live, "true")
            self.leave()
            self.masks = (self.live,)
        self.statements(self.kernel.body)
        self.leave()
        self.jump("group.end")
        return self.finished()

    def reference(self, name: str, kind: Type) -> Value:
        """A number that all threads are passed."""
        one = "i8" if kind == BOOL else spelled(kind)
        self.passed.append(f"  %passed.{name} = load {one}, ptr %base.{name}, align 1")
        if kind == BOOL:
            self.passed.append(f"  %passed.{name}.holds = icmp ne i8 %passed.{name}, 0")
        return Value(f"%passed.{name}" + (".holds" if kind == BOOL else ""), kind)

    def finished(self) -> Code:
        """Where each variable is, is known now."""
        users: dict[Variable, int] = {}
        for piece in self.pieces.values():
            for one in piece.uses:
                users[one] = users.get(one, 0) + 1
        slots: dict[Variable, int] = {}
        at = 0
        for one in self.variables:
            if one in self.slotted or users.get(one, 0) > 1:
                slots[one] = at
                at += one.kind.size_bytes
        body: list[str] = []
        for line in self.outer:
            inside = self.pieces.get(line.strip())
            body += [line] if inside is None else self.around(inside, slots)
        lines = [
            *sorted(self.declared.values()),
            "define i32 @run(ptr %launch, ptr noalias %scratch) {",
            "entry:",
            *self.entry(slots),
            "  br label %group.head",
            "group.head:",
            "  %group = phi i64 [%first, %entry], [%group.next, %group.end]",
            "  %group.more = icmp ult i64 %group, %last",
            "  br i1 %group.more, label %group.body, label %finished",
            *body,
            "group.end:",
            "  %group.next = add i64 %group, 1",
            "  br label %group.head",
            "finished:",
            "  ret i32 0",
        ]
        for number, index in enumerate(self.failing):
            lines += [
                f"failed.{number}:",
                f"  store i64 {number}, ptr %fault.site",
                f"  store i64 {index}, ptr %fault.index",
                "  ret i32 1",
            ]
        return Code("\n".join([*lines, "}"]) + "\n", self.sites, self.fixed_bytes, at)

    def entry(self, slots: dict[Variable, int]) -> list[str]:
        """What is read and placed once."""
        lines = [*self.allocated, "  %epoch = alloca i32", "  store i32 0, ptr %epoch"]
        for piece in self.pieces.values():
            lines += [f"  %{one.text}.{piece.name} = alloca {spelled(one.kind)}" for one in piece.uses]
        for number, name in enumerate(ARGUMENTS):
            lines.append(f"  %{name}.at = getelementptr i64, ptr %launch, i64 {number}")
            lines.append(f"  %{name} = load i64, ptr %{name}.at")
        lines += [
            "  %layer = mul i64 %block_x, %block_y",
            f"  %fault.site = getelementptr i64, ptr %launch, i64 {FAULT}",
            f"  %fault.index = getelementptr i64, ptr %launch, i64 {FAULT + 1}",
        ]
        place = TABLE
        for one in self.kernel.parameters:
            if one.kind.space:
                lines += [
                    f"  %base.{one.name}.at = getelementptr i64, ptr %launch, i64 {place}",
                    f"  %base.{one.name} = load ptr, ptr %base.{one.name}.at",
                    f"  %bytes.{one.name}.at = getelementptr i64, ptr %launch, i64 {place + 1}",
                    f"  %bytes.{one.name} = load i64, ptr %bytes.{one.name}.at",
                ]
                place += 2
        for name, size in sorted(self.sizes):
            lines.append(f"  %count.{name}.{size} = udiv i64 %bytes.{name}, {size}")
        lines += self.passed
        for name, shared in self.shared.items():
            for stem, at in (
                ("base", shared.at),
                ("writers", shared.writers_at),
                ("readers", shared.readers_at),
            ):
                lines.append(f"  %{stem}.{name} = getelementptr i8, ptr %scratch, i64 {at}")
        for variable, prefix in slots.items():
            name = variable.text
            lines += [
                f"  %prefix.{name} = mul i64 %rows, {prefix}",
                f"  %offset.{name} = add i64 %prefix.{name}, {self.fixed_bytes}",
                f"  %slots.{name} = getelementptr i8, ptr %scratch, i64 %offset.{name}",
            ]
        return lines

    def around(self, piece: Piece, slots: dict[Variable, int]) -> list[str]:
        """A piece with its loop; what it has of other pieces is in registers meanwhile."""
        name = piece.name
        lines = [
            f"{name}.start:",
            f"  br label %{name}.head",
            f"{name}.head:",
            f"  %{name}.t = phi i64 [0, %{name}.start], [%{name}.next, %{name}.latch]",
        ]
        for number, mask in enumerate(piece.masks):
            lines += [
                f"  %{name}.at{number} = getelementptr i1, ptr %slots.{mask.text}, i64 %{name}.t",
                f"  %{name}.is{number} = load i1, ptr %{name}.at{number}",
                f"  br i1 %{name}.is{number}, label %{name}.mask{number}, label %{name}.latch",
                f"{name}.mask{number}:",
            ]
        lines += [f"  br label %{name}.begun", f"{name}.begun:"]
        end = []
        for one, is_written in piece.uses.items():
            if one not in slots:
                continue
            own, kind = f"%{one.text}.{name}", spelled(one.kind)
            lines += [
                f"  {own}.slot = getelementptr {kind}, ptr %slots.{one.text}, i64 %{name}.t",
                f"  {own}.old = load {kind}, ptr {own}.slot",
                f"  store {kind} {own}.old, ptr {own}",
            ]
            if is_written:
                end += [
                    f"  {own}.new = load {kind}, ptr {own}",
                    f"  store {kind} {own}.new, ptr {own}.slot",
                ]
        return [
            *lines,
            *piece.lines,
            f"{name}.end:",
            *end,
            f"  br label %{name}.latch",
            f"{name}.latch:",
            f"  %{name}.next = add i64 %{name}.t, 1",
            f"  %{name}.more = icmp ult i64 %{name}.next, %threads",
            f"  br i1 %{name}.more, label %{name}.head, label %{name}.done",
            f"{name}.done:",
        ]
