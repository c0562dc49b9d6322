"""The shape of a function: its basic blocks, where divergent threads reconverge, which registers are live.

In       a Function
Out      BasicBlock: a run of instructions and how it ends; for every block the one where its branches re-converge
Next     decode.py (instructions of a block to closures), machine.py (walks the blocks)
Source   "immediate post-dominator": the first block that every path from here to the end goes through

A block ends at a branch, a call, a barrier; a warp instruction begins one, because threads may have to wait there for
the rest of their warp. A guarded instruction of these kinds becomes a branch around it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hcq.emu.nv.shader.errors import PtxError
from hcq.emu.nv.shader.syntax import (
    Address,
    Arguments,
    Function,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    Symbol,
    TensorAddress,
    Vector,
)

ENDS = ("bra", "brx", "ret", "exit", "trap", "brkpt", "call", "bar", "barrier")
NO_RESULT = (
    "st", "red", "bra", "brx", "bar", "barrier", "membar", "fence", "ret", "exit", "trap", "call", "prefetch",
    "prefetchu", "cp", "discard", "nanosleep", "stmatrix", "griddepcontrol", "applypriority", "pmevent", "brkpt",
    "setmaxnreg", "tensormap", "stackrestore", "tcgen05",
)  # fmt: skip
WHOLE_WARP = ("mma", "wmma", "ldmatrix", "stmatrix", "movmatrix")  # no mask: all 32 threads take part
CARRY = "%cc"


@dataclass
class BasicBlock:
    """`body` runs straight through; then `end` decides. Numbers of blocks; `len(blocks)` is the function's end.

    end         the last instruction when it is a branch, call, barrier, ...; None: go on with the next block
    skip_guard  the guard of an instruction that was made a branch around the next block
    next        the blocks that can follow, in the order in which `end` names them
    """

    number: int
    body: list[Instruction] = field(default_factory=list)
    end: Instruction | None = None
    skip_guard: Register | None = None
    next: list[int] = field(default_factory=list)
    rejoin: int = -1
    order: int = 0
    waits_for_warp: bool = False


def is_warp_wide(instruction: Instruction) -> bool:
    """Whether threads of a warp must meet at this instruction."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    return (
        opcode in WHOLE_WARP
        or (opcode in ("shfl", "vote", "match", "redux", "elect") and "sync" in modifiers)
        or is_of_tensor_memory(instruction)
        or is_warpgroup_wide(instruction)
    )


def is_of_tensor_memory(instruction: Instruction) -> bool:
    """Whether it is one of tcgen05 that a whole warp executes: it allocates, loads, stores, waits."""
    return instruction.opcode == "tcgen05" and "sync" in instruction.modifiers


def is_warpgroup_wide(instruction: Instruction) -> bool:
    """Whether the four warps of a warpgroup must meet at this instruction."""
    return instruction.opcode == "wgmma" and "mma_async" in instruction.modifiers


def _is_alone(instruction: Instruction) -> bool:
    """Whether a product of a warpgroup says by a number that it is added to nothing."""
    numbers = [one.value for one in instruction.operands if isinstance(one, Immediate)]
    return bool(numbers) and numbers[0] == 0


def _ends(instruction: Instruction) -> bool:
    return (instruction.opcode in ENDS and instruction.modifiers[:1] != ("warp",)) or is_warp_barrier(
        instruction
    )


def is_warp_barrier(instruction: Instruction) -> bool:
    """Whether it is `bar.warp.sync`."""
    return instruction.opcode == "bar" and instruction.modifiers[:1] == ("warp",)


def orders_some(instruction: Instruction) -> bool:
    """Whether it may order some warps of a block and not all, or warps of several blocks: it is no barrier of all."""
    words = set(instruction.modifiers)
    if instruction.opcode in ("bar", "barrier"):  # one that says how many come
        return "warp" not in words and len(instruction.operands) > 1
    if instruction.opcode in ("fence", "membar"):
        return "proxy" not in words
    return instruction.opcode == "mbarrier" or bool(words & {"acquire", "release", "acq_rel"})


def blocks_of(function: Function) -> list[BasicBlock]:
    """The basic blocks of a function, linked, with `rejoin` and `order` filled in."""
    starts: dict[str, int] = {}
    blocks = [BasicBlock(0)]
    labels_at: dict[int, list[str]] = {}
    for name, index in function.labels.items():
        labels_at.setdefault(index, []).append(name)

    def fresh() -> BasicBlock:
        if blocks[-1].body or blocks[-1].end or blocks[-1].skip_guard or blocks[-1].waits_for_warp:
            blocks.append(BasicBlock(len(blocks)))
        return blocks[-1]

    for index, instruction in enumerate(function.body):
        if index in labels_at:
            block = fresh()
            for name in labels_at[index]:
                starts[name] = block.number
        if instruction.guard is not None and (
            (_ends(instruction) and instruction.opcode not in ("bra", "brx")) or is_warp_wide(instruction)
        ):
            block = blocks[-1]
            block.skip_guard = instruction.guard
            blocks.append(BasicBlock(len(blocks)))
            _place(blocks, replace(instruction, guard=None))
            blocks.append(BasicBlock(len(blocks)))
            continue
        if is_warp_wide(instruction):
            fresh()
        _place(blocks, instruction)
        if _ends(instruction):
            blocks.append(BasicBlock(len(blocks)))
    for name in labels_at.get(len(function.body), ()):
        starts[name] = fresh().number
    _link(function, blocks, starts)
    _find_rejoins(blocks)
    _find_order(blocks)
    return blocks


def _place(blocks: list[BasicBlock], instruction: Instruction) -> None:
    if _ends(instruction):
        blocks[-1].end = instruction
        return
    blocks[-1].waits_for_warp |= is_warp_wide(instruction)
    blocks[-1].body.append(instruction)


def _link(function: Function, blocks: list[BasicBlock], starts: dict[str, int]) -> None:
    end = len(blocks)

    def block_at(operand: Operand, instruction: Instruction) -> int:
        if not isinstance(operand, Symbol) or operand.name not in starts:
            raise PtxError(instruction.line, "the target is not a label of this function", instruction.text)
        return starts[operand.name]

    for block in blocks:
        after = block.number + 1
        instruction = block.end
        if block.skip_guard is not None:
            block.next = [after, after + 1]
        elif instruction is None:
            block.next = [after]
        elif instruction.opcode == "bra":
            if len(instruction.operands) != 1:
                raise PtxError(instruction.line, "bra takes one label", instruction.text)
            block.next = [block_at(instruction.operands[0], instruction)]
            if instruction.guard is not None:
                block.next.append(after)
        elif instruction.opcode == "brx":
            block.next = [
                block_at(Symbol(name), instruction) for name in _branch_targets(function, instruction)
            ]
        elif instruction.opcode in ("ret", "exit", "trap", "brkpt"):
            block.next = [end]
        else:
            block.next = [after]


def _branch_targets(function: Function, instruction: Instruction) -> tuple[str, ...]:
    operands = instruction.operands
    if "idx" not in instruction.modifiers or len(operands) != 2 or not isinstance(operands[1], Symbol):
        raise PtxError(instruction.line, "expected brx.idx index, list", instruction.text)
    if operands[1].name not in function.targets:
        raise PtxError(
            instruction.line, f"{operands[1].name!r} is no .branchtargets list here", instruction.text
        )
    if instruction.guard is not None:
        raise PtxError(instruction.line, "a guarded brx is not supported", instruction.text)
    return function.targets[operands[1].name]


def _find_rejoins(blocks: list[BasicBlock]) -> None:
    """Immediate post-dominators, by sets of blocks as bits of one integer."""
    end = len(blocks)
    everything = (1 << (end + 1)) - 1
    # the blocks on every path from here to the end, including this one
    after = [everything] * end + [1 << end]
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            common = everything
            for number in block.next:
                common &= after[number]
            common |= 1 << block.number
            if common != after[block.number]:
                after[block.number] = common
                changed = True
    for block in blocks:
        strict = after[block.number] & ~(1 << block.number)
        block.rejoin = end
        if strict == everything & ~(1 << block.number):
            continue  # no path to the end: an infinite loop
        for number in range(end):
            if strict >> number & 1 and after[number] == strict:
                block.rejoin = number


def _find_order(blocks: list[BasicBlock]) -> None:
    """Number the blocks so that, loops apart, what follows has the higher order: reverse post-order."""
    seen, finished = {0}, []
    stack = [(0, iter(blocks[0].next))]
    while stack:
        number, rest = stack[-1]
        for follower in rest:
            if follower < len(blocks) and follower not in seen:
                seen.add(follower)
                stack.append((follower, iter(blocks[follower].next)))
                break
        else:
            finished.append(number)
            stack.pop()
    for order, number in enumerate(reversed(finished)):
        blocks[number].order = order


def registers_of(operand: Operand) -> list[str]:
    """Names of the registers in an operand, those of an address among them."""
    if isinstance(operand, Register):
        return [operand.name]
    if isinstance(operand, Address):
        return registers_of(operand.base) if isinstance(operand.base, Register) else []
    if isinstance(operand, (Vector, Arguments)):
        return [name for part in operand.parts for name in registers_of(part)]
    if isinstance(operand, Pair):
        return registers_of(operand.first) + registers_of(operand.second)
    if isinstance(operand, TensorAddress):
        return registers_of(operand.map) + registers_of(operand.coordinates)
    return []


def reads_and_writes(instruction: Instruction) -> tuple[list[str], list[str]]:
    """The registers an instruction reads and those it writes. A guarded write keeps old values: it reads them too."""
    reads: list[str] = []
    writes: list[str] = []
    has_result = (
        instruction.opcode not in NO_RESULT
        or "ld" in instruction.modifiers[:1]
        or "red" in instruction.modifiers[:3]
    )
    for index, operand in enumerate(instruction.operands):
        is_result = has_result and index == 0 and not isinstance(operand, Address)
        (writes if is_result else reads).extend(registers_of(operand))
    if instruction.opcode in ("addc", "subc", "madc"):
        reads.append(CARRY)
    if is_warpgroup_wide(instruction) and not _is_alone(instruction):  # D = A * B + D
        reads.extend(writes)
    if "cc" in instruction.modifiers:
        writes.append(CARRY)
    if instruction.guard is not None:
        reads.append(instruction.guard.name)
        reads.extend(writes)
    return reads, writes


def read_registers(function: Function) -> set[str]:
    """The registers that any instruction of the function reads."""
    return {name for instruction in function.body for name in reads_and_writes(instruction)[0]}


def live_in_registers(blocks: list[BasicBlock]) -> set[str]:
    """Registers that some block reads before it writes them: only these must keep their values in inactive threads."""
    kept: set[str] = set()
    for block in blocks:
        written: set[str] = set()
        for instruction in [*block.body, *([block.end] if block.end else [])]:
            reads, writes = reads_and_writes(instruction)
            kept.update(name for name in reads if name not in written)
            if instruction.guard is None:
                written.update(writes)
        if block.skip_guard is not None and block.skip_guard.name not in written:
            kept.add(block.skip_guard.name)
        if block.end is not None and block.end.opcode in ("bar", "barrier"):
            kept.update(reads_and_writes(block.end)[1])  # bar.red writes when its block is over
    return kept
