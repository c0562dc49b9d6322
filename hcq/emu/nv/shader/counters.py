"""Counters: what the warps of a launch do, counted by steps that stand between those of the kernel.

In       a decoded block; then the groups of threads that run it
Out      the block with steps that count: `counted`, a choice made when a function is decoded
Changes  the Tally of the launch; no register, no memory
Next     hcq/emu/shader/traffic.py (Tally), opcodes.py (who asks for it), ../../amd/shader/counters.py (the sister),
         retry.py
Source   PTX ISA: what each opcode is

A kernel that is decoded without has none of these steps. What bulk copies move and which matrices a product reads is
told to the Tally where addresses are known: bulk_moves.py, shared_matrix.py. What is counted is PTX: machine code has
other instructions, above all for division, for wide integers, and where ptxas unrolls. Threads that go round a
compare-and-swap loop one after the other count as one round of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hcq.emu.nv.shader import merged_loads, spaces
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.chains import Chain, chains_of
from hcq.emu.nv.shader.decode import Code, DecodedBlock, Lowering, Registers, Step
from hcq.emu.nv.shader.flow import BasicBlock, is_warp_barrier
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.mbarrier_ops import is_wait
from hcq.emu.nv.shader.memory_ops import address_of, of_lanes, take_space, vector_of
from hcq.emu.nv.shader.spaces import WINDOW_BYTES
from hcq.emu.nv.shader.syntax import Address, Immediate, Instruction, Operand, Register
from hcq.emu.nv.shader.types import TYPES, Lanes
from hcq.emu.nv.shader.wmma_ops import MatrixAccess
from hcq.emu.shader.traffic import Tally

SPECIAL = {"ex2", "lg2", "sin", "cos", "tanh", "rcp", "sqrt", "rsqrt"}
MOVES = {"mov", "cvta", "isspacep", "selp", "slct", "prmt", "mapa", "getctarank"}
WARP_OPS = {"shfl", "vote", "match", "redux", "activemask", "elect", "movmatrix"}
CONTROL = {"bra", "brx", "ret", "exit", "call", "trap", "brkpt"}
WAITS = {
    "membar", "fence", "prefetch", "prefetchu", "discard", "applypriority", "nanosleep", "griddepcontrol", "pmevent",
    "setmaxnreg",
}  # fmt: skip
FLOPS = {
    "add": 1, "sub": 1, "mul": 1, "div": 1, "fma": 2, "mad": 2, "min": 1, "max": 1, "rcp": 1, "sqrt": 1, "rsqrt": 1,
    "ex2": 1, "lg2": 1, "sin": 1, "cos": 1, "tanh": 1,
}  # fmt: skip
SEEN_BY_OTHERS = {"volatile", "relaxed", "acquire", "release", "mmio"}
NOT_BY_L1 = {"cg", "cv", "volatile", "relaxed", "acquire", "mmio"}
MATRIX = {"mma", "wmma", "wgmma", "tcgen05"}
MATRIX_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
TYPE_NAMES = {"s8": "i8", "u8": "i8", "s4": "i4", "u4": "i4", "b1": "b1", "e4m3": "f8", "e5m2": "f8", "f16x2": "f16",
              "bf16x2": "bf16"}  # fmt: skip


# ------------------------------------------------------------ what an instruction is


def type_of(instruction: Instruction) -> str:
    """The first type among its modifiers; "" without one."""
    return next((name for name in instruction.modifiers if name in TYPES), "")


def class_of(instruction: Instruction) -> str:
    """Which of hcq.performance.counters.CLASSES it belongs to."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode == "cp":
        return _copy_class(modifiers)
    if opcode in ("ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix", "tensormap"):
        return _memory_class(opcode, modifiers)
    if opcode in MATRIX:
        if opcode == "wmma" and modifiers[:1] in (("load",), ("store",)):
            where = "shared" if "shared" in modifiers else "global"
            return f"{where} {modifiers[0]}"
        return "matrix" if _matrix(instruction) is not None else "wait"
    if opcode in WARP_OPS or is_warp_barrier(instruction):
        return "warp"
    if opcode in ("bar", "barrier", "mbarrier"):
        return "barrier"
    for found, names in (("special", SPECIAL), ("move", MOVES), ("control", CONTROL), ("wait", WAITS)):
        if opcode in names:
            return found
    if opcode == "cvt":
        return "convert"
    name = type_of(instruction)
    return "float" if name and TYPES[name].is_float else "integer"


def _copy_class(modifiers: tuple[str, ...]) -> str:
    """Of cp.async and the bulk copies: by where they go."""
    if {"commit_group", "wait_group", "wait_all", "prefetch"} & set(modifiers):
        return "wait"
    if "mbarrier" in modifiers:  # cp.async.mbarrier.arrive
        return "barrier"
    ends = [word.partition("::")[0] for word in modifiers]
    to, *source = [word for word in ends if word in ("global", "shared")]
    verb = "atomic" if modifiers[0] == "reduce" else "store"
    return f"{to} {verb}" if to == "global" or source == ["shared"] else "global load"


def _memory_class(opcode: str, modifiers: tuple[str, ...]) -> str:
    spaces = [word.partition("::")[0] for word in modifiers]
    verb = {"ld": "load", "ldu": "load", "ldmatrix": "load", "st": "store", "stmatrix": "store"}.get(
        opcode, "store" if opcode == "tensormap" else "atomic"
    )
    if "shared" in spaces or opcode in ("ldmatrix", "stmatrix"):
        return f"shared {verb}"
    if "param" in spaces or "const" in spaces:
        return "constant load"
    return "local" if "local" in spaces else f"global {verb}"


def flops_of(instruction: Instruction) -> tuple[str, int] | None:
    """(type, operations of a thread) of an instruction on floats."""
    name = type_of(instruction)
    count = FLOPS.get(instruction.opcode, 0)
    if not count or not name or not TYPES[name].is_float:
        return None
    return TYPE_NAMES.get(name, name), count * TYPES[name].packed


def _matrix(instruction: Instruction) -> tuple[str, int] | None:
    """(type of the factors, operations of a warp) of a matrix instruction that multiplies."""
    shape = next((found for word in instruction.modifiers if (found := MATRIX_SHAPE.fullmatch(word))), None)
    if instruction.opcode not in MATRIX or shape is None or instruction.modifiers[0] in ("load", "store"):
        return None
    m, n, k = (int(shape[index]) for index in (1, 2, 3))
    types = [
        word for word in instruction.modifiers if re.fullmatch(r"b?f\d+|tf32|[su]\d+|b1|e[45]m[23]", word)
    ]
    # mma and wgmma name D, A, B (and C); wmma names factors only where they are no f16
    if instruction.opcode == "wmma":
        factor = types[1] if len(types) == 4 else "f16"
    else:
        factor = types[1] if len(types) > 1 else "f16"
    flops = 2 * m * n * k // (4 if instruction.opcode == "wgmma" else 1)  # four warps share a wgmma
    return TYPE_NAMES.get(factor, factor), flops


# ------------------------------------------------------------ who runs it


class Layout(NamedTuple):
    """Of each lane of a batch: its warp, its place there, its block's number in the grid."""

    warp: Lanes
    place: Lanes
    block: Lanes

    @classmethod
    def of(cls, batch: Batch) -> Layout:
        """Warps are counted over the whole batch, block by block."""
        per_block = -(-batch.threads_per_block // WARP)
        thread = batch.thread_of_lane
        warp = batch.block_of_lane * per_block + thread // WARP
        return cls(warp, thread % WARP, batch.blocks[batch.block_of_lane])


def _tally(batch: Batch) -> Tally:
    found = batch.launch.tally
    assert found is not None  # a kernel that counts runs with one
    return found


def _layout(batch: Batch) -> Layout:
    """Made once a batch."""
    known: Layout | None = batch.__dict__.get("layout")
    if known is None:
        known = batch.__dict__["layout"] = Layout.of(batch)
    return known


def _warps(group: Group) -> int:
    """How many warps have a thread among them."""
    batch = group.batch
    if group.mask is None:
        return len(batch.blocks) * -(-batch.threads_per_block // WARP)
    if group.count == 1:
        return 1
    warps = _layout(batch).warp[group.lanes]
    return 1 + int(np.count_nonzero(warps[1:] != warps[:-1]))


# ------------------------------------------------------------ steps that count


def counted(lowering: Lowering, block: BasicBlock, made: DecodedBlock) -> None:
    """Put steps that count into a block, before those of its instructions, and around its end."""
    own = [*block.body, *([block.end] if block.end is not None else [])]
    if lowering.chains is None:
        lowering.merged = merged_loads.merged(lowering.flow, _alignments(lowering))
        lowering.chains = chains_of(lowering.flow, lowering.merged)
    steps: list[Step] = [_head(own, lowering.chains[block.number])] if own else []
    for instruction, step in zip(block.body, made.steps):
        access = access_of(lowering, instruction)
        if access is not None:
            steps.append(access)
        steps.append(step)
        if is_wait(instruction):
            steps.append(_passed(Code(lowering, instruction)))
    if made.retry is not None:
        made.retry = _CountedRetry(made.retry, steps[0])
    if made.end is not None:
        made.end = _end(lowering, block, made.end)
    made.steps = steps


def _alignments(lowering: Lowering) -> dict[str, int]:
    """Of variables, by name. ptxas places those of shared memory, and does so where 16 bytes may be loaded at once."""
    known = {**lowering.module.variables, **lowering.function.variables}
    return {
        name: max(one.alignment, merged_loads.WIDEST if one.space == "shared" and not one.is_extern else 1)
        for name, one in known.items()
    }


class _CountedRetry:
    """A retry loop whose threads count as one round when they had to take turns."""

    def __init__(self, loop: Any, head: Step) -> None:
        self.loop, self.head, self.after = loop, head, loop.after

    def take_turns(self, registers: Registers, group: Group) -> Lanes | None:
        """As the loop does."""
        left: Lanes | None = self.loop.take_turns(registers, group)
        if left is not None:
            self.head(registers, group)
        return left


def _head(own: list[Instruction], chain: Chain) -> Step:
    """Counts what the text of a block says: classes, operations, what a warp waits for."""
    classes = dict(Counter(class_of(one) for one in own))
    flops: Counter[str] = Counter()
    matrix: Counter[str] = Counter()
    for one in own:
        if (found := flops_of(one)) is not None:
            flops[found[0]] += found[1]
        if (found := _matrix(one)) is not None:
            matrix[found[0]] += found[1]
    barriers = sum(map(_is_barrier, own))

    def head(registers: Registers, group: Group) -> None:
        tally, warps = _tally(group.batch), _warps(group)
        tally.instructions(classes, warps, group.count)
        tally.chain(chain.ops, chain.waits, warps)
        tally.record.barriers += barriers * warps
        if flops:
            tally.flops(flops, group.count)
        for name, count in matrix.items():
            tally.matrix(name, count, warps)

    return head


def _is_barrier(instruction: Instruction) -> bool:
    """Of threads that come together: a cluster's is counted where they wait, an mbarrier's where a wait is over."""
    if instruction.opcode == "barrier" and instruction.modifiers[:1] == ("cluster",):
        return "wait" in instruction.modifiers
    return instruction.opcode in ("bar", "barrier") and not is_warp_barrier(instruction)


def _passed(code: Code) -> Step:
    """After a wait for an mbarrier: the warps that found its phase over have passed a barrier."""
    slot, select = code.slot(code.operands[0], TYPES["pred"]), code.select()

    def count(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        who = batch.every_lane if lanes is None else lanes
        over = who[of_lanes(registers[slot], lanes, batch.count)]
        _tally(batch).record.barriers += len(np.unique(_layout(batch).warp[over]))

    return count


End = Callable[[Any, Registers, Any], int]


def _end(lowering: Lowering, block: BasicBlock, end: End) -> End:
    """Counts a conditional branch."""
    guard = block.skip_guard
    if guard is None and block.end is not None and block.end.opcode == "bra":
        guard = block.end.guard
    if guard is None:
        return end
    slot = Code(lowering, Instruction(0, "", "bra", (), (Register(guard.name),))).slot(
        Register(guard.name), TYPES["pred"]
    )

    def branch(machine: Any, registers: Registers, path: Any) -> int:
        batch, truth = path.batch, registers[slot]
        record = _tally(batch).record
        if len(truth) == 1:
            record.branches += _warps(path)
            return end(machine, registers, path)
        who = batch.every_lane if path.lanes is None else path.lanes
        warps = _layout(batch).warp[who]
        here = np.bincount(warps)
        taken = np.bincount(warps, truth[who], minlength=len(here))
        record.branches += int(np.count_nonzero(here))
        record.divergent_branches += int(np.count_nonzero((taken > 0) & (taken < here)))
        return end(machine, registers, path)

    return branch


def access_of(lowering: Lowering, instruction: Instruction) -> Step | None:
    """A step that counts what an instruction asks of memory; None where it asks nothing that is counted."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    places = [one for one in instruction.operands if isinstance(one, Address)]
    if not places or opcode in WAITS or opcode == "mbarrier":
        return None
    code = Code(lowering, instruction)
    if opcode in ("ldmatrix", "stmatrix"):
        return _matrix_rows(code, places[0])
    if opcode == "cp":  # bulk copies tell the Tally themselves
        return _copy(code, places[0], places[1]) if len(places) == 2 and "bulk" not in modifiers else None
    if opcode == "wmma":
        return _fragment(code)
    if opcode not in ("ld", "ldu", "st", "atom", "red") or "async" in modifiers:
        return _left_out(instruction)
    space = take_space(code)
    if space in ("param", "const"):
        return None
    kind = {"ld": "load", "ldu": "load", "st": "store"}.get(opcode, "atomic")
    size = vector_of(code) * TYPES[type_of(instruction)].size_bytes
    size = (lowering.merged or {}).get(id(instruction), size)
    if not size:
        return None  # the load before takes it in
    at_of, select = address_of(code, places[0]), code.select()
    by_l1 = not NOT_BY_L1 & set(modifiers)
    is_seen = space in ("", "global") and bool(SEEN_BY_OTHERS & set(modifiers))

    def count(registers: Registers, group: Group) -> None:
        who, at = _threads(group, at_of, select, registers)
        if len(who):
            _count(group.batch, space, kind, who, at, size, by_l1)
            if is_seen:
                _count_seen(group.batch, kind, who, at)

    return count


def _threads(group: Group, at_of: Any, select: Any, registers: Registers) -> tuple[Lanes, Lanes]:
    """(lanes that do it, the address of each)."""
    batch, lanes = group.batch, select(registers, group)
    at = of_lanes(at_of(registers), lanes, batch.count)
    return batch.every_lane if lanes is None else lanes, at


def _count(batch: Batch, space: str, kind: str, who: Lanes, at: Lanes, size: int, by_l1: bool) -> None:
    """An access of these lanes. space "": some may be in shared or local memory, which their addresses say."""
    if space == "shared":
        _count_shared(batch, who, at, size)
        return
    if space == "local":
        _count_local(batch, kind, who, at, size)
        return
    if space == "":
        shared = spaces.in_shared(batch, at)
        local = (at - np.uint64(batch.local_window)) < np.uint64(WINDOW_BYTES)
        if shared.any():
            _count_shared(batch, who[shared], at[shared] - np.uint64(batch.shared_window), size)
        if local.any():
            _count_local(batch, kind, who[local], at[local] - np.uint64(batch.local_window), size)
        rest = ~(shared | local)
        who, at = who[rest], at[rest]
    layout = _layout(batch)
    _tally(batch).memory(kind, layout.warp[who], layout.block[who], at, size, by_l1)


def _count_seen(batch: Batch, kind: str, who: Lanes, at: Lanes) -> None:
    layout, awaited = _layout(batch), _tally(batch).awaited
    if kind == "load":
        awaited.load(layout.warp[who], layout.block[who], at)
    else:
        awaited.store(layout.block[who], at)


def _count_shared(batch: Batch, who: Lanes, at: Lanes, size: int) -> None:
    layout = _layout(batch)
    _tally(batch).shared(layout.warp[who], layout.place[who], at, size)


def _count_local(batch: Batch, kind: str, who: Lanes, at: Lanes, size: int) -> None:
    layout = _layout(batch)
    per_block = -(-batch.threads_per_block // WARP)
    block = layout.block[who]
    warp = block * per_block + layout.warp[who] % per_block
    _tally(batch).private(kind, warp, block, layout.place[who], at, size)


def _matrix_rows(code: Code, place: Operand) -> Step:
    """ldmatrix and stmatrix: the first 8, 16 or 32 threads of a warp name a row of 16 bytes each."""
    rows = 8 * int(code.take("x1", "x2", "x4")[1:] or 1)
    at_of = address_of(code, place)

    def count(registers: Registers, group: Group) -> None:
        batch = group.batch
        who = batch.every_lane if group.lanes is None else group.lanes
        who = who[_layout(batch).place[who] < rows]
        at = np.broadcast_to(at_of(registers), (batch.count,))[who]
        _count_shared(batch, who, spaces.shared_address(batch, at), 16)

    return count


def _fragment(code: Code) -> Step:
    """wmma.load and wmma.store: in shared memory as if they were ldmatrix, which reads eight lines at once."""
    kind = code.take("load", "store")
    code.flag("sync"), code.flag("aligned")
    operands = code.operands if kind == "store" else [code.operands[1], code.operands[0]]
    access = MatrixAccess(code, operands[0], operands[1])
    by_l1 = not NOT_BY_L1 & set(code.instruction.modifiers)

    def count(registers: Registers, group: Group) -> None:
        batch, layout = group.batch, _layout(group.batch)
        who, at = access.addresses(registers, group)
        is_shared = access.space == "shared" or (
            access.space == "" and bool(spaces.in_shared(batch, at).all())
        )
        if is_shared:
            _tally(batch).eights(access.pieces(registers, group))
        else:
            size = access.type.size_bytes
            _tally(batch).memory(kind, layout.warp[who], layout.block[who], at, size, by_l1)

    return count


def _copy(code: Code, to: Operand, source: Operand) -> Step:
    """cp.async: a load of global memory that goes to shared memory; what its last operand leaves out is not read."""
    u32 = TYPES["u32"]
    operands = code.operands
    assert isinstance(operands[2], Immediate)
    size = operands[2].value
    has_policy = "L2::cache_hint" in code.rest
    has_limit = len(operands) == (5 if has_policy else 4)
    limit = code.source(3, u32) if has_limit else None
    goal_of, start_of, select = address_of(code, to), address_of(code, source), code.select()
    by_l1 = "ca" in code.rest

    def count(registers: Registers, group: Group) -> None:
        batch = group.batch
        who, start = _threads(group, start_of, select, registers)
        if not len(who):
            return
        _, goal = _threads(group, goal_of, select, registers)
        stored = -_tally(batch).record.shared_passes
        _count(batch, "shared", "store", who, goal, size, False)
        stored += _tally(batch).record.shared_passes
        if limit is not None:
            read = np.broadcast_to(registers[limit], (batch.count,))[who] > 0
            who, start = who[read], start[read]
        layout = _layout(batch)
        _tally(batch).memory("load", layout.warp[who], layout.block[who], start, size, by_l1, stored=stored)

    return count


def _left_out(instruction: Instruction) -> Step:
    """An instruction that reaches memory in a way that nobody models yet."""
    name = ".".join((instruction.opcode, *instruction.modifiers[:3]))

    def count(registers: Registers, group: Group) -> None:
        _tally(group.batch).leave_out(name, _warps(group))

    return count
