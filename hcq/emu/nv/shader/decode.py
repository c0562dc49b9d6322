"""An instruction to a closure: operands become slots of the register file, every modifier must be claimed by a rule.

In       a Function, and rules: one per opcode, from the *_ops modules
Out      Decoded: slots with their first values, blocks of steps, how each block ends
Next     machine.py (runs the steps), opcodes.py (all rules together)

A step is step(registers, group): it computes for all threads at once, and keeps the old value of a register only where
other threads could still need it. A register is an array with one value per thread, or with a single value that all
threads share: NumPy's broadcasting makes arithmetic on shared values as cheap as it looks. Arrays are never written in
place, so a move is free.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.syntax import (
    Address,
    Discard,
    Function,
    Immediate,
    Instruction,
    Module,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
    placed,
)
from hcq.emu.nv.shader.types import SIXTEEN_BYTES, TYPES, Lanes, Type

Registers = list[Lanes]
Step = Callable[[Registers, Group], None]
Rule = Callable[["Code"], Step]
Write = Callable[[Registers, Group, Lanes], None]
Select = Callable[[Registers, Group], "Lanes | None"]
COPY_BY_THEMSELVES = {"cp", "wgmma", "tcgen05"}  # opcodes of what touches memory that threads must wait for
LOCAL_ALIGNMENT = 16
STACK = "the stack"  # among a function's variables: behind them all; no name of PTX has a blank


class Rules(dict[str, Rule]):
    """Opcode -> rule."""

    def on(self, *opcodes: str) -> Callable[[Rule], Rule]:
        """Decorator: this rule is for these opcodes."""

        def enter(rule: Rule) -> Rule:
            for opcode in opcodes:
                self[opcode] = rule
            return rule

        return enter


@dataclass
class DecodedBlock:
    """A block ready to run. `end` is None when it goes on with the only block of `next`."""

    steps: list[Step]
    next: list[int]
    rejoin: int
    order: int
    length: int  # instructions, for the step budget
    line: int
    # (machine, registers, path) -> the next block, or -1
    end: Callable[[Any, Registers, Any], int] | None = None
    warp_members: Callable[[Registers, Group], Lanes] | None = None
    cost: int = 1  # how much of a path's time slice running it takes: more where threads may spin
    retry: Any = None  # the RetryLoop that it is by itself, if it is one
    needs_warpgroup: bool = False  # all four warps of a warpgroup must be there, not only a warp
    waits: bool = False  # has a wait for an mbarrier, which may have failed
    source: flow.BasicBlock | None = None  # its instructions, where it may be compiled


@dataclass
class Decoded:
    """A function ready to run.

    first       the first values of all slots: zeros for registers, values for constants
    late        (slot, symbol): filled when the kernel starts, with the address or special register of that name
    offsets     where its local variables and .param variables are in its local memory
    stack       the slot of the stack pointer, of a function that takes memory from its stack
    slots       of registers, by name, and of constants
    lowering    what it was decoded with, where it may be compiled
    native      its machine code, by what that depends on; None where there can be none
    asked       for what code the disk was asked
    spent_ns    what its blocks have taken the interpreter, by estimate
    """

    function: Function
    first: Registers = field(default_factory=list)
    late: list[tuple[int, Symbol]] = field(default_factory=list)
    blocks: list[DecodedBlock] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    stack: int | None = None
    slots: dict[Any, int] = field(default_factory=dict)
    lowering: Lowering | None = None
    native: dict[Any, Any] = field(default_factory=dict)
    asked: set[Any] = field(default_factory=set)
    spent_ns: float = 0.0


class Lowering:
    """What decoding one function needs to know: its slots and its variables."""

    def __init__(self, module: Module, function: Function, kept: set[str]) -> None:
        self.module = module
        self.function = function
        self.decoded = Decoded(function)
        self.kept: set[int] = set()
        self.read = flow.read_registers(function)
        self.flow: list[flow.BasicBlock] = []  # all blocks, in order
        # of each block, and which loads are one of machine code, once somebody counts
        self.chains: list[Any] | None = None
        self.merged: dict[int, int] | None = None
        self.accumulators: dict[Any, Any] = {}  # of matrix products of warpgroups, by their registers
        self.of_products: set[str] | None = None  # registers of matrix products, once somebody has asked
        self._slots = self.decoded.slots
        for name, type_ in function.registers.items():
            slot = self._slots[name] = self._new(np.zeros(1, type_.bits))
            if name in kept:
                self.kept.add(slot)
        self._slots[flow.CARRY] = self._new(np.zeros(1, np.bool_))
        if flow.CARRY in kept:
            self.kept.add(self._slots[flow.CARRY])
        self._place_locals()

    @functools.cached_property
    def copies_by_itself(self) -> bool:
        """Whether anything in the module touches memory that its threads must wait for."""
        return any(
            one.opcode in COPY_BY_THEMSELVES for each in self.module.functions.values() for one in each.body
        )

    def _new(self, value: Lanes) -> int:
        self.decoded.first.append(value)
        return len(self.decoded.first) - 1

    def _place_locals(self) -> None:
        function = self.function
        mine = [variable for variable in function.variables.values() if variable.space in ("local", "param")]
        if not function.is_entry:
            mine += [*function.params, *function.results]
        end = 0
        for name, at, variable in placed(mine):
            self.decoded.offsets[name] = at
            end = at + variable.size_bytes
        self.decoded.local_bytes = -(-end // LOCAL_ALIGNMENT) * LOCAL_ALIGNMENT

    def register(self, name: str) -> int | None:
        """The slot of a register's name; None when it has none."""
        return self._slots.get(name)

    def constant(self, bits: int, scalar: Any) -> int:
        """The slot of a constant, given by its bits."""
        key = (scalar, bits)
        if key not in self._slots:
            size = np.dtype(scalar).itemsize
            self._slots[key] = self._new(np.frombuffer(bits.to_bytes(size, "little"), scalar))
        return self._slots[key]

    def late(self, symbol: Symbol, scalar: Any) -> int:
        """The slot of a value that is known when the kernel starts."""
        key = (scalar, symbol)
        if key not in self._slots:
            slot = self._slots[key] = self._new(np.zeros(1, scalar))
            self.decoded.late.append((slot, symbol))
        return self._slots[key]

    def stack_pointer(self) -> int:
        """The slot of the stack pointer, an address in local memory. All threads keep theirs."""
        if self.decoded.stack is None:
            self.decoded.offsets[STACK] = self.decoded.local_bytes
            slot = self.decoded.stack = self.late(Symbol(STACK), np.uint64)
            self.kept.add(slot)
        return self.decoded.stack

    def knows(self, name: str) -> bool:
        """Whether a name is a special register, a variable or a function here."""
        is_known = name.startswith("%") or name in self.decoded.offsets or name in self.module.functions
        return is_known or self.variable(name) is not None

    def variable(self, name: str) -> Variable | None:
        """A variable by name: the function's, else the module's."""
        for variable in (*self.function.params, *self.function.results):
            if variable.name == name:
                return variable
        return self.function.variables.get(name) or self.module.variables.get(name)


class Code:
    """One instruction being decoded: a rule takes its modifiers and operands, and returns a step."""

    def __init__(self, lowering: Lowering, instruction: Instruction) -> None:
        self.lowering = lowering
        self.instruction = instruction
        self.operands = list(instruction.operands)
        self.rest = list(instruction.modifiers)

    # -- modifiers

    def take(self, *names: str) -> str:
        """The first modifier that is one of these, claimed; "" when none is there."""
        for name in self.rest:
            if name in names:
                self.rest.remove(name)
                return name
        return ""

    def flag(self, name: str) -> bool:
        """Whether this modifier is there; claims it."""
        return self.take(name) != ""

    def type(self, *allowed: str) -> Type:
        """The next modifier that is a type, claimed. Without `allowed`: any that something can be computed in."""
        for name in self.rest:
            if name in TYPES:
                self.rest.remove(name)
                if name not in allowed if allowed else TYPES[name].bits is SIXTEEN_BYTES:
                    raise self.refuse(f"{self.instruction.opcode} does not take the type .{name}")
                return TYPES[name]
        raise self.refuse("a type is missing" + (f"; .{self.rest[-1]} is none" if self.rest else ""))

    def done(self) -> None:
        """All modifiers must have been claimed."""
        if self.rest:
            raise self.refuse(f"the modifier .{self.rest[0]} is not supported here")

    def refuse(self, why: str) -> PtxError:
        """The error for this instruction, with its line and text."""
        return PtxError(self.instruction.line, why, self.instruction.text)

    # -- operands

    def expect(self, *counts: int) -> None:
        """Refuse another number of operands."""
        if len(self.operands) not in counts:
            raise self.refuse(
                f"{len(self.operands)} operands, not {' or '.join(str(count) for count in counts)}"
            )

    def source(self, index: int, type_: Type, is_wide: bool = False) -> int:
        """The slot of a source operand of this type. `is_wide`: the register may be wider than the type."""
        if index >= len(self.operands):
            raise self.refuse(f"operand {index + 1} is missing")
        return self.slot(self.operands[index], type_, is_wide)

    def slot(self, operand: Operand, type_: Type, is_wide: bool = False) -> int:
        """Where a source operand of this type is read. Raises PtxError for one that does not fit."""
        if isinstance(operand, Register):
            if operand.negated or operand.minus:
                raise self.refuse(f"{operand.name} cannot be negated here")
            return self._register(operand, type_, is_wide)
        if isinstance(operand, Immediate):
            return self.lowering.constant(self._immediate(operand, type_), type_.bits)
        if isinstance(operand, Symbol):
            return self._late(operand, type_.bits)
        raise self.refuse(f"expected a register or a number where {type(operand).__name__.lower()} stands")

    def _late(self, symbol: Symbol, scalar: Any) -> int:
        """The slot of an address or special register, which has to be declared."""
        if not self.lowering.knows(symbol.name):
            raise self.refuse(f"{symbol.name!r} is not declared in this function or its module")
        variable = self.lowering.variable(symbol.name)
        if variable is not None and variable.space == "texture":
            raise self.refuse(f"{symbol.name!r} is a texture, a sampler or a surface, which are not emulated")
        return self.lowering.late(symbol, scalar)

    def _register(self, operand: Register, type_: Type, is_wide: bool) -> int:
        if operand.part:
            raise self.refuse(
                f"{operand.name}.{operand.part}: only video instructions select parts of registers"
            )
        slot = self.lowering.register(operand.name)
        if slot is None:
            raise self.refuse(f"{operand.name} is not declared")
        scalar = self.lowering.decoded.first[slot].dtype.type
        fits = scalar == type_.bits or (
            is_wide
            and scalar not in (np.bool_, SIXTEEN_BYTES)
            and type_.kind != "pred"
            and np.dtype(scalar).itemsize >= type_.size_bytes
        )
        if not fits:
            raise self.refuse(
                f"{operand.name} holds {np.dtype(scalar).name}, which does not suit .{type_.name}"
            )
        return slot

    def _immediate(self, operand: Immediate, type_: Type) -> int:
        if type_.kind == "pred":
            return int(operand.value != 0)
        if operand.float_bytes == 0 and type_.is_float and type_.packed == 1:
            if operand.value == 0:
                return 0
            if type_.name in ("f32", "f64"):
                raise self.refuse("an integer stands where a float is expected; write 0f... or 0d...")
        if operand.float_bytes == 8 and type_.size_bytes == 4 and type_.name in ("f32", "b32"):
            value = struct.unpack("<d", operand.value.to_bytes(8, "little"))[0]
            return int.from_bytes(struct.pack("<f", value), "little")
        if operand.float_bytes == 4 and type_.name == "f64":
            value = struct.unpack("<f", operand.value.to_bytes(4, "little"))[0]
            return int.from_bytes(struct.pack("<d", value), "little")
        return operand.value % (1 << type_.width)

    def predicate(self, operand: Operand) -> Callable[[Registers], Lanes]:
        """A predicate source, with its ! applied."""
        if isinstance(operand, Register) and operand.negated:
            inverted = self._register(operand, TYPES["pred"], False)
            return lambda registers: ~registers[inverted]
        slot = self.slot(operand, TYPES["pred"])
        return lambda registers: registers[slot]

    def destination(self, operand: Operand, type_: Type, is_wide: bool = False) -> int:
        """The slot of a result; a fresh one when it is discarded."""
        if isinstance(operand, Discard):
            return self.lowering._new(np.zeros(1, type_.bits))
        if not isinstance(operand, Register) or operand.negated or operand.minus:
            raise self.refuse("the result must be a register")
        return self._register(operand, type_, is_wide)

    def is_read(self, operand: Operand) -> bool:
        """Whether any instruction reads a result: compilers write `atom` also where nobody wants the old value."""
        return not isinstance(operand, Register) or operand.name in self.lowering.read

    def parts(self, operand: Operand, count: int) -> list[Operand]:
        """The members of a vector operand; an operand that is no vector stands for itself."""
        if count == 1 and not isinstance(operand, Vector):
            return [operand]
        if not isinstance(operand, Vector) or len(operand.parts) != count:
            raise self.refuse(f"expected a vector of {count} registers")
        return list(operand.parts)

    def pair(self, operand: Operand) -> tuple[Operand, Operand | None]:
        """An operand written `d|p` as its two, any other with None."""
        return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)

    def address(self, operand: Operand) -> tuple[Address, int]:
        """An [address] and the slot of its base as uint64 or uint32."""
        if not isinstance(operand, Address):
            raise self.refuse("expected an [address]")
        if operand.base is None:
            return operand, self.lowering.constant(0, np.uint64)
        if isinstance(operand.base, Symbol):
            return operand, self._late(operand.base, np.uint64)
        slot = self.lowering.register(operand.base.name)
        if slot is None:
            raise self.refuse(f"{operand.base.name} is not declared")
        if self.lowering.decoded.first[slot].dtype.type not in (np.uint32, np.uint64):
            raise self.refuse(f"{operand.base.name} cannot hold an address")
        return operand, slot

    # -- guards, results

    @property
    def guard(self) -> tuple[int, bool] | None:
        """The slot of the predicate before the instruction, and whether it is negated; None without one."""
        guard = self.instruction.guard
        return None if guard is None else (self._register(guard, TYPES["pred"], False), guard.negated)

    def select(self) -> Select:
        """Which threads really do this: None for every thread of the machine, else their numbers."""
        guard = self.guard
        if guard is None:
            return lambda registers, group: group.lanes
        slot, negated = guard

        def select(registers: Registers, group: Group) -> Lanes | None:
            chosen = registers[slot]
            if negated:
                chosen = ~chosen
            if len(chosen) == 1:
                return group.lanes if chosen[0] else _NO_LANES
            if group.mask is not None:
                chosen = chosen & group.mask
            return np.flatnonzero(chosen)

        return select

    def writer(self, slot: int) -> Write:
        """How a result reaches its register: everywhere, or only in the threads that execute."""
        guard = self.guard
        is_kept = slot in self.lowering.kept
        if guard is None:
            if not is_kept:

                def write(registers: Registers, group: Group, value: Lanes) -> None:
                    registers[slot] = value

                return write

            def write_kept(registers: Registers, group: Group, value: Lanes) -> None:
                registers[slot] = (
                    value if group.is_whole else np.where(group.full_mask, value, registers[slot])
                )

            return write_kept
        chooser, negated = guard

        def write_guarded(registers: Registers, group: Group, value: Lanes) -> None:
            chosen = registers[chooser]
            if negated:
                chosen = ~chosen
            if not group.is_whole:
                chosen = chosen & group.mask
            registers[slot] = np.where(chosen, value, registers[slot])

        return write_guarded

    def step(self, compute: Callable[..., Lanes], result: Type, *sources: Type) -> Step:
        """A step whose result is the first operand, computed from all others, which have these types."""
        self.expect(len(sources) + 1)
        slots = [self.source(i + 1, type_) for i, type_ in enumerate(sources)]
        return self.pure(compute, self.destination(self.operands[0], result), *slots)

    def result(self, type_: Type, index: int = 0) -> Write:
        """What writes an operand of this type."""
        return self.writer(self.destination(self.operands[index], type_))

    def pure(self, compute: Callable[..., Lanes], destination: int, *sources: int) -> Step:
        """A step that computes one register from others."""
        if self.guard is None and destination not in self.lowering.kept:
            return _unguarded(compute, destination, sources)
        write = self.writer(destination)
        if len(sources) == 2:
            a, b = sources

            def binary(registers: Registers, group: Group) -> None:
                write(registers, group, compute(registers[a], registers[b]))

            return binary

        def step(registers: Registers, group: Group) -> None:
            write(registers, group, compute(*[registers[slot] for slot in sources]))

        return step


_NO_LANES = np.zeros(0, np.int64)


def _unguarded(compute: Callable[..., Lanes], d: int, sources: tuple[int, ...]) -> Step:
    """The common steps, spelled out for 1, 2 and 3 sources: this is the interpreter's inner loop."""
    if len(sources) == 1:
        (a,) = sources

        def unary(registers: Registers, group: Group) -> None:
            registers[d] = compute(registers[a])

        return unary
    if len(sources) == 2:
        a, b = sources

        def binary(registers: Registers, group: Group) -> None:
            registers[d] = compute(registers[a], registers[b])

        return binary
    if len(sources) == 3:
        a, b, c = sources

        def ternary(registers: Registers, group: Group) -> None:
            registers[d] = compute(registers[a], registers[b], registers[c])

        return ternary

    def step(registers: Registers, group: Group) -> None:
        registers[d] = compute(*[registers[slot] for slot in sources])

    return step
