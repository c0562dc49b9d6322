"""What compiled code and who runs it agree on: numbers of places, a table, which block goes first, what is read later.

In       basic blocks
Out      EXIT, PLACES: numbers and a table; `ordered`: the blocks, so that, loops apart, what follows comes later;
         `lives`: by place, the registers that are read from there on
Next     native_text.py (who asks), flow.py (basic blocks)
Source   "weak topological order": the blocks of a loop stand together, so that threads that have left it wait behind it
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.emu.compiled import accesses
from hcq.emu.nv.shader.decode import Decoded
from hcq.emu.nv.shader.flow import BasicBlock, reads_and_writes
from hcq.emu.nv.shader.syntax import Instruction

EXIT = 1 << 24  # numbers of ways out begin here
NOWHERE = 1 << 30  # of threads that take no part
# what the code is passed, 64 bits each, behind what accesses.py has names for
FIELDS = (
    ("count", "i64"), ("file", "ptr"), ("pcs", "ptr"), ("lives", "ptr"), ("numbers", "ptr"), ("allstarts", "ptr"),
    ("alllocals", "ptr"), ("sharedsize", "i64"), ("storedsize", "i64"), ("localsize", "i64"), ("params", "ptr"),
    ("parambytes", "i64"), ("most", "i64"), ("rejoin", "i64"), ("ended", "i64"), ("executed", "i64"),
    ("perblock", "i64"), ("meets", "i64"), ("begin", "i64"), ("queues", "ptr"), ("allended", "ptr"), ("copying", "i64"),
)  # fmt: skip
PLACES = {name: accesses.TABLE_WORDS + number for number, (name, _) in enumerate(FIELDS)}
TABLE_WORDS = accesses.TABLE_WORDS + len(FIELDS)


class Point(NamedTuple):
    """A place in a function: before a step of a block. Behind its last step the block ends."""

    block: int
    step: int


def ordered(blocks: list[BasicBlock]) -> list[int]:
    """The numbers of all blocks that can be reached."""
    found: list[int] = []
    rest: list[tuple[set[int], list[int]] | int] = [(set(range(len(blocks))), [0])]
    while rest:
        part = rest.pop()
        if isinstance(part, int):
            found.append(part)
            continue
        for component in reversed(_components(blocks, *part)):
            head = component[-1]  # the one that was reached first
            if len(component) > 1:  # the loop without its head, from the blocks behind that
                others = set(component) - {head}
                rest.append((others, [one for one in blocks[head].next if one in others]))
            rest.append(head)
    return found


def _components(blocks: list[BasicBlock], inside: set[int], starts: list[int]) -> list[list[int]]:
    """Strongly connected parts of what is reached from blocks, in the order in which they follow one another."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    work: list[tuple[int, int]] = [(start, 0) for start in reversed(starts)]
    while work:
        number, at = work.pop()
        if not at and number in index:
            continue  # a start that another one has reached
        if not at:
            index[number] = low[number] = len(index)
            stack.append(number)
            on_stack.add(number)
        followers = [one for one in blocks[number].next if one in inside]
        if at:
            low[number] = min(low[number], low[followers[at - 1]])
        while at < len(followers):
            one = followers[at]
            at += 1
            if one not in index:
                work += [(number, at), (one, 0)]
                break
            if one in on_stack:
                low[number] = min(low[number], index[one])
        else:
            if low[number] == index[number]:
                component: list[int] = []
                while not component or component[-1] != number:
                    component.append(stack.pop())
                    on_stack.discard(component[-1])
                found.append(component)
    return found[::-1]


def lives(blocks: list[BasicBlock], decoded: Decoded) -> dict[Point, set[int]]:
    """By place, the slots of registers that somebody may read from there on."""
    always = set() if decoded.stack is None else {decoded.stack}
    slots = decoded.slots
    into: list[set[int]] = [set(always) for _ in blocks] + [set(always)]
    instructions = [_instructions(block) for block in blocks]
    uses = [[_slots(one, slots) for one in row] for row in instructions]

    def before(number: int) -> list[set[int]]:
        block = blocks[number]
        live = set(always).union(*(into[follower] for follower in block.next))
        if block.skip_guard is not None:
            live.add(slots[block.skip_guard.name])
        found = []
        if len(uses[number]) == len(block.body):  # no instruction of its own ends it
            found.append(set(live))
        for reads, writes in reversed(uses[number]):
            live = (live - writes) | reads
            found.append(set(live))
        return found[::-1]

    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            first = before(number)[0]
            if first != into[number]:
                into[number] = first
                changed = True
    return {
        Point(number, step): live for number in range(len(blocks)) for step, live in enumerate(before(number))
    }


def _instructions(block: BasicBlock) -> list[Instruction]:
    return [*block.body, *((block.end,) if block.end is not None else ())]


def _slots(instruction: Instruction, slots: dict[object, int]) -> tuple[set[int], set[int]]:
    """What is read, and what is surely written."""
    reads, writes = reads_and_writes(instruction)
    if instruction.guard is not None:
        writes = []
    return {slots[name] for name in reads}, {slots[name] for name in writes}
