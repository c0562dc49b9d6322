"""How a block ends: branches, calls, returns, barriers. Decoded to functions that the machine calls after the steps.

In       the last instruction of a block
Out      end(machine, registers, path) -> the next block when the path stays together, else -1
Changes  paths of the machine
Next     machine.py, flow.py (who found the blocks)
Source   PTX ISA, "Control Flow Instructions", "bar/barrier", "bar.warp.sync"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader.decode import Code, Decoded, Lowering, Registers
from hcq.emu.nv.shader.errors import KernelFault
from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.machine import Machine
from hcq.emu.nv.shader.paths import Path, Region
from hcq.emu.nv.shader.syntax import Arguments, Function, Instruction, Operand, Register, Symbol
from hcq.emu.nv.shader.types import TYPES, Lanes, Type

End = Callable[[Machine, Registers, Path], int]
PRED, U32, U64 = TYPES["pred"], TYPES["u32"], TYPES["u64"]
SPLIT = -1
DEVICE_RUNTIME = ("vprintf", "malloc", "free", "cudaGetParameterBufferV2", "cudaLaunchDeviceV2")
CLUSTER_BARRIER = 16  # a number of its own, behind the 16 that programs can name


def end_of(lowering: Lowering, block: BasicBlock) -> End | None:
    """The end of a block; None when it simply goes on."""
    if block.skip_guard is not None:
        guard = Register(block.skip_guard.name)
        code = Code(lowering, Instruction(0, "", "bra", (), (guard,)))
        first, second = block.next
        return _branch(code, guard, not block.skip_guard.negated, first, second, block.rejoin)
    instruction = block.end
    if instruction is None:
        return None
    code = Code(lowering, instruction)
    opcode = instruction.opcode
    if opcode == "bra":
        end: End | None = _bra(code, block)
    elif opcode == "brx":
        code.take("idx"), code.take("uni")
        end = _switch(code.source(0, U32), block)
    elif opcode == "call":
        end = _call(code, block)
    elif opcode == "ret":
        code.take("uni")
        end = None  # the next block is the end of the function
    elif opcode == "exit":
        end = _exit
    elif opcode == "trap":
        end = _stop(instruction, "trap by {count} threads, the first thread {thread} of block {block}.")
    else:
        end = _barrier(code, block)
    code.done()
    return end


def _bra(code: Code, block: BasicBlock) -> End | None:
    code.take("uni")
    guard = code.instruction.guard
    if guard is None:
        return None
    taken, other = block.next
    return _branch(code, Register(guard.name), not guard.negated, taken, other, block.rejoin)


def _branch(code: Code, guard: Register, wanted: bool, taken: int, other: int, rejoin: int) -> End:
    slot = code.slot(guard, PRED)

    def end(machine: Machine, registers: Registers, path: Path) -> int:
        truth = registers[slot]
        if len(truth) == 1:
            return taken if bool(truth[0]) == wanted else other
        chosen = truth if wanted else ~truth
        if path.mask is not None:
            chosen = chosen & path.mask
        count = int(np.count_nonzero(chosen))
        if count == 0:
            return other
        if count == path.count:
            return taken
        machine.diverge(path, [(taken, chosen), (other, path.full_mask & ~chosen)], rejoin)
        return SPLIT

    return end


def _switch(slot: int, block: BasicBlock) -> End:
    targets = np.array(block.next)

    def end(machine: Machine, registers: Registers, path: Path) -> int:
        index = registers[slot]
        chosen = np.unique(index if path.mask is None or len(index) == 1 else index[path.mask])
        if int(chosen[-1]) >= len(targets):
            raise KernelFault(
                f"kernel {machine.kernel_name}: brx.idx {int(chosen[-1])} of {len(targets)} targets."
            )
        if len(chosen) == 1:
            return int(targets[chosen[0]])
        parts = []
        goals = targets[index.astype(np.int64) % len(targets)]
        for goal in np.unique(targets[chosen]):
            parts.append((int(goal), path.full_mask & (goals == goal)))
        if len(parts) == 1:
            return parts[0][0]
        machine.diverge(path, parts, block.rejoin)
        return SPLIT

    return end


def _exit(machine: Machine, registers: Registers, path: Path) -> int:
    machine.exit(path)
    return SPLIT


def _stop(instruction: Instruction, why: str) -> End:
    """Reaching the instruction is a fault. why: with {count}, {thread} and {block} of the threads that come there."""

    def end(machine: Machine, registers: Registers, path: Path) -> int:
        block, thread = path.first()
        text = why.format(count=path.count, thread=thread, block=block)
        where = f"kernel {machine.kernel_name}, PTX line {instruction.line}"
        raise KernelFault(f"{where}: {text}", instruction.line, [(block, thread)])

    return end


# -- calls


class CallSite(NamedTuple):
    """The .param variables that a call passes and gets back, and the block that follows."""

    passed: list[str]
    returned: list[str]
    after: int


def _call(code: Code, block: BasicBlock) -> End:
    code.take("uni")
    operands = list(code.operands)
    results = _parentheses(operands)
    if not operands:
        raise code.refuse("call names no function")
    target = operands.pop(0)
    arguments = _parentheses(operands)
    site = CallSite(
        [_local_name(code, operand) for operand in arguments],
        [_local_name(code, operand) for operand in results],
        block.next[0],
    )
    if isinstance(target, Symbol):
        function = code.lowering.module.functions.get(target.name)
        if function is None:
            raise code.refuse(f"there is no function {target.name!r}")
        if not function.has_body:
            return _missing(code, target.name)
        _check_signature(code, function, site)
        name = function.name
        return lambda machine, registers, path: _enter(machine, path, name, site)
    return _call_by_address(code.slot(target, U64), site)


def _parentheses(operands: list[Operand]) -> tuple[Operand, ...]:
    """The members of a list in parentheses, taken from the operands if one is next."""
    if operands and isinstance(operands[0], Arguments):
        first = operands.pop(0)
        assert isinstance(first, Arguments)
        return first.parts
    return ()


def _missing(code: Code, name: str) -> End:
    """What the vendor's driver supplies. A failed assert ends the kernel, as there; printf and malloc cannot run."""
    if name == "__assertfail":
        return _stop(
            code.instruction, "a failed assert by {count} threads, thread {thread} of block {block}."
        )
    if name in DEVICE_RUNTIME:
        raise code.refuse(f"it calls {name!r}: the device runtime (printf, malloc) is not emulated")
    raise code.refuse(f"it calls {name!r}, which the module declares and does not define")


def _local_name(code: Code, operand: Operand) -> str:
    if isinstance(operand, Symbol) and operand.name in code.lowering.decoded.offsets:
        return operand.name
    raise code.refuse("arguments and results of a call must be .param variables of the function")


def _check_signature(code: Code, function: Function, site: CallSite) -> None:
    for given, formal, what in (
        (site.passed, function.params, "arguments"),
        (site.returned, function.results, "results"),
    ):
        if len(given) != len(formal):
            raise code.refuse(f"{function.name} has {len(formal)} {what}, not {len(given)}")
        for name, variable in zip(given, formal):
            mine = code.lowering.variable(name)
            if mine is not None and mine.size_bytes != variable.size_bytes:
                raise code.refuse(
                    f"{name} has {mine.size_bytes} bytes, {variable.name} {variable.size_bytes}"
                )


def _enter(
    machine: Machine,
    path: Path,
    name: str,
    site: CallSite,
    region: Region | None = None,
) -> int:
    """Copy the arguments and put the path at the start of the function; returning copies the results back."""
    callee: Decoded = machine.program.decoded(name)
    caller = path.activation
    if region is None:
        region = machine.take_out(path)
    activation = machine.activate(callee, path.count, caller)
    mine = caller.decoded.offsets
    for argument, formal in zip(site.passed, callee.function.params):
        to = activation.local_base + callee.offsets[formal.name]
        machine.batch.copy_local(path.lanes, to, caller.local_base + mine[argument], formal.size_bytes)

    def back(returning: Path) -> None:
        for result, formal in zip(site.returned, callee.function.results):
            source = activation.local_base + callee.offsets[formal.name]
            machine.batch.copy_local(
                returning.lanes, caller.local_base + mine[result], source, formal.size_bytes
            )
        machine.go(returning, site.after)

    inner = Region(region, activation, len(callee.blocks), path.mask, path.count, back)
    inner.pending = 1
    machine.go(Path(machine.batch, inner, 0, path.mask, path.count, path.turns), 0)
    return SPLIT


def _call_by_address(slot: int, site: CallSite) -> End:
    def end(machine: Machine, registers: Registers, path: Path) -> int:
        goals = np.broadcast_to(registers[slot], (machine.batch.count,))
        chosen = np.unique(goals if path.mask is None else goals[path.mask])
        names = []
        for goal in chosen:
            name = machine.program.function_at(int(goal))
            if name is None:
                raise KernelFault(
                    f"kernel {machine.kernel_name}: an indirect call to {int(goal):#x}, where no function is."
                )
            names.append(name)
        if len(names) == 1:
            return _enter(machine, path, names[0], site)
        meeting = Region(machine.take_out(path), path.activation, site.after, path.mask, path.count)
        meeting.pending = len(names)
        for goal, name in zip(chosen, names):
            mask = path.full_mask & (goals == goal)
            part = Path(machine.batch, meeting, 0, mask, int(np.count_nonzero(mask)), path.turns)
            _enter(machine, part, name, site, meeting)
        return SPLIT

    return end


# -- barriers


def _barrier(code: Code, block: BasicBlock) -> End | None:
    after = block.next[0]
    if code.flag("warp"):
        code.flag("sync")
        code.expect(1)
        return _warp_barrier(code.source(0, TYPES["b32"]), after, code.instruction.line)
    if code.take("cluster"):
        return _cluster_barrier(code, after)
    code.take("cta")
    what = code.take("sync", "arrive", "red") or "sync"
    code.take("aligned")
    if what == "red":
        return _reducing_barrier(code, after)
    code.expect(1, 2)
    number = code.source(0, U32)
    expected = code.source(1, U32) if len(code.operands) == 2 else None
    line = code.instruction.line
    if what == "arrive" and expected is None:
        raise code.refuse("bar.arrive needs the number of threads")

    def end(machine: Machine, registers: Registers, path: Path) -> int:
        which = _one_value(machine, registers[number], path, line)
        count = 0 if expected is None else _one_value(machine, registers[expected], path, line)
        if what == "arrive":
            machine.arrive_at_barrier(path, which, count)
            return after
        if machine.is_complete(path, which, count):
            return after  # everybody is here: nobody has to wait
        machine.wait_at_barrier(path, after, which, count, None, line)
        return SPLIT

    return end


def _cluster_barrier(code: Code, after: int) -> End | None:
    """The barrier of a cluster of one block. Stricter than hardware: waiting is for all to wait, not only to arrive."""
    what = code.take("arrive", "wait")
    if not what:
        raise code.refuse("barrier.cluster needs .arrive or .wait")
    while code.take("release", "relaxed", "acquire", "aligned"):
        pass
    code.expect(0)
    if what == "arrive":
        return None
    line = code.instruction.line

    def end(machine: Machine, registers: Registers, path: Path) -> int:
        if machine.is_complete(path, CLUSTER_BARRIER, 0):
            return after
        machine.wait_at_barrier(path, after, CLUSTER_BARRIER, 0, None, line)
        return SPLIT

    return end


def _one_value(machine: Machine, values: Lanes, path: Path, line: int) -> int:
    if len(values) == 1:
        return int(values[0])
    mine = values if path.mask is None else values[path.mask]
    if (mine != mine[0]).any():
        raise KernelFault(
            f"kernel {machine.kernel_name}, PTX line {line}: threads at one barrier instruction name different"
            " barriers.",
            line,
        )
    return int(mine[0])


def _reducing_barrier(code: Code, after: int) -> End:
    """bar.red: a barrier at which threads also vote; all get the result."""
    how = code.take("popc", "and", "or")
    type_: Type = code.type("u32", "pred")
    code.expect(3, 4)
    number = code.source(1, U32)
    expected = code.source(2, U32) if len(code.operands) == 4 else None
    truth = code.predicate(code.operands[-1])
    write = code.result(type_)
    line = code.instruction.line

    def end(machine: Machine, registers: Registers, path: Path) -> int:
        which = _one_value(machine, registers[number], path, line)
        count = 0 if expected is None else _one_value(machine, registers[expected], path, line)
        votes = np.broadcast_to(truth(registers), (machine.batch.count,))

        def give_result(woken: Path) -> None:
            barrier = machine.barriers[which]
            table = {
                "popc": barrier.last_true.astype(np.uint32),
                "and": barrier.last_true == barrier.last_arrived,
                "or": barrier.last_true > 0,
            }
            write(registers, woken, table[how][machine.batch.block_of_lane])

        path.on_wake = give_result
        machine.wait_at_barrier(path, after, which, count, votes, line)
        return SPLIT

    return end


def _warp_barrier(members: int, after: int, line: int) -> End:
    def end(machine: Machine, registers: Registers, path: Path) -> int:
        if path.mask is None or path.count == machine.live_count:
            return after
        machine.wait_for_warp(path, after, registers[members], line)
        return SPLIT

    return end
