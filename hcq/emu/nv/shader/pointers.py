"""Pointers of a kernel in PTX: from which of its parameters the address of each access was made.

In       a function, the values of its parameters in a launch
Out      `origins`: line -> Origin, for accesses by a register that points into buffers
Next     hcq/emu/shader/pointers.py (what an Origin is), checks.py (who asks), flow.py (the blocks)

Registers are followed through the blocks until nothing changes: what is said holds on every path.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
    Vector,
    placed,
)
from hcq.emu.nv.shader.types import TYPES
from hcq.emu.shader.pointers import NUMBER, UNKNOWN, Origin, added, joined, mixed, of_number

State = dict[str, Origin]
OfArgument = Callable[[int], Origin]
ACCESSES = ("ld", "ldu", "st", "atom", "red")
POINTER_BYTES = 8


class _Walk:
    """One function, with the parameters of a launch."""

    def __init__(self, function: Function, argument: OfArgument) -> None:
        self.argument = argument
        self.places = {name: at for name, at, _ in placed(function.params, function.param_base)}
        self.found: dict[int, Origin] = {}

    # ------------------------------------------------------------ values

    def of(self, operand: Operand, state: State) -> Origin:
        """Of an operand that is one value."""
        if isinstance(operand, Register):
            return state.get(operand.name, NUMBER)
        if isinstance(operand, Immediate):
            return NUMBER if operand.float_bytes else of_number(operand.value)
        if isinstance(operand, Symbol) and operand.name.startswith("%"):
            return NUMBER
        return UNKNOWN

    def results(self, one: Instruction, state: State, count: int) -> list[Origin]:
        """Of what an instruction writes."""
        operands, modifiers = one.operands, one.modifiers
        type_ = next((TYPES[name] for name in modifiers if name in TYPES), None)
        size = type_.size_bytes if type_ is not None else POINTER_BYTES
        if isinstance(operands[0], Vector) and len(operands[0].parts) != count:  # some are not wanted
            return [UNKNOWN if size >= POINTER_BYTES else NUMBER] * count
        if one.opcode in ("ld", "ldu"):
            return [self._loaded(operands[1], modifiers, size, index) for index in range(count)]
        if one.opcode in ("atom", "call"):
            return [UNKNOWN if size >= POINTER_BYTES else NUMBER] * count
        values = [self.of(operand, state) for operand in operands[1:]]
        if count == 1 and not isinstance(operands[0], Vector):
            if (
                one.opcode in ("mov", "cvta", "cvt")
                and len(values) == 1
                and not isinstance(operands[1], Vector)
            ):
                return values
            if one.opcode == "add" and len(values) == 2:
                return [added(*values)]
            if one.opcode == "sub" and len(values) == 2 and values[1] == NUMBER:
                return [values[0]]
            if one.opcode == "mad" and len(values) == 3:
                return [added(mixed(*values[:2]), values[2])]
            if one.opcode == "selp" and len(values) == 3:
                return [joined(*values[:2])]
        reads, _ = flow.reads_and_writes(one)
        has_symbol = any(isinstance(each, Symbol) and not each.name.startswith("%") for each in operands[1:])
        made = UNKNOWN if has_symbol else mixed(*(state.get(name, NUMBER) for name in reads))
        return [made] * count

    def _loaded(self, place: Operand, modifiers: tuple[str, ...], size: int, index: int) -> Origin:
        if size < POINTER_BYTES:
            return NUMBER
        is_parameter = any(word.startswith("param") for word in modifiers)
        if (
            is_parameter
            and isinstance(place, Address)
            and isinstance(place.base, Symbol)
            and size == POINTER_BYTES
        ):
            at = self.places.get(place.base.name)
            if at is not None:
                return self.argument(at + place.base.offset + place.offset + size * index)
        return UNKNOWN

    # ------------------------------------------------------------ instructions

    def step(self, one: Instruction, state: State, is_last: bool) -> None:
        """One instruction. is_last: nothing changes any more, so what it says of accesses is kept."""
        if is_last and one.opcode in ACCESSES:
            place = next((each for each in one.operands if isinstance(each, Address)), None)
            origin = self.of(place.base, state) if place is not None and place.base is not None else UNKNOWN
            self.found[one.line] = origin if one.line not in self.found else UNKNOWN
        _, writes = flow.reads_and_writes(one)
        if writes:
            for name, origin in zip(writes, self.results(one, state, len(writes))):
                state[name] = joined(state.get(name, origin), origin) if one.guard is not None else origin


def origins(function: Function, argument: OfArgument) -> dict[int, Origin]:
    """From which parameters addresses were made, for each line that has one access.

    argument  (offset of 8 bytes among the parameters) -> their Origin
    """
    walk, blocks = _Walk(function, argument), flow.blocks_of(function)
    before: dict[int, State] = {0: {}}
    pending = [0]
    while pending:
        number = pending.pop()
        if number >= len(blocks):
            continue
        state = dict(before[number])
        _through(walk, blocks[number], state, False)
        for after in blocks[number].next:
            if _meet(before, after, state) and after not in pending:
                pending.append(after)
    for number, state in before.items():
        if number < len(blocks):
            _through(walk, blocks[number], dict(state), True)
    return {line: origin for line, origin in walk.found.items() if origin}


def _through(walk: _Walk, block: flow.BasicBlock, state: State, is_last: bool) -> None:
    for one in (*block.body, *([block.end] if block.end is not None else [])):
        walk.step(one, state, is_last)


def _meet(before: dict[int, State], number: int, state: State) -> bool:
    """A path comes to a block in this state. Whether that is news."""
    known = before.get(number)
    if known is None:
        before[number] = dict(state)
        return True
    changed = False
    for name, origin in state.items():
        new = joined(known.get(name, origin), origin)
        if name not in known or known[name] != new:
            known[name], changed = new, True
    return changed
