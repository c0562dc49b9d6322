"""How a block ends: branches, calls, returns, barriers. Decoded to functions that the machine calls after the steps.

In       the last instruction of a block
Out      end(machine, registers, path) -> the next block when the path stays together, else -1
Changes  paths of the machine
Next     machine.py, flow.py (who found the blocks)
Source   PTX ISA, "Control Flow Instructions", "bar/barrier", "barrier.cluster", "bar.warp.sync"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import device_runtime
from hcq.emu.nv.shader.decode import Code, Decoded, Lowering, Registers
from hcq.emu.nv.shader.errors import KernelFault, Trap
from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.machine import Machine
from hcq.emu.nv.shader.meetings import warps_met
from hcq.emu.nv.shader.paths import Path, Region
from hcq.emu.nv.shader.syntax import Arguments, Function, Immediate, Instruction, Operand, Register, Symbol
from hcq.emu.nv.shader.types import TYPES, Lanes, Type

End = Callable[[Machine, Registers, Path], int]
PRED, U32, U64 = TYPES["pred"], TYPES["u32"], TYPES["u64"]
SPLIT = -1
_ALL_THREADS = np.zeros(1, np.uint32)
DEVICE_RUNTIME = ("cudaGetParameterBufferV2", "cudaLaunchDeviceV2")
BARRIERS = 16  # that a program can name


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
    elif opcode == "brkpt":
        end = _stop(
            instruction,
            "brkpt by {count} threads, the first thread {thread} of block {block}; no debugger is there.",
        )
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
        raise Trap(f"{where}: {text}", instruction.line, [(block, thread)])

    return end


# -- calls


class CallSite(NamedTuple):
    """The .param variables that a call passes and gets back, their bytes, and the block that follows."""

    passed: list[str]
    returned: list[str]
    passed_bytes: list[int]
    returned_bytes: list[int]
    after: int


def _call(code: Code, block: BasicBlock) -> End:
    code.take("uni")
    operands = list(code.operands)
    results = _parentheses(operands)
    if not operands:
        raise code.refuse("call names no function")
    target = operands.pop(0)
    passed = [_local_name(code, operand) for operand in _parentheses(operands)]
    returned = [_local_name(code, operand) for operand in results]
    given, taken = ([_bytes_of(code, name) for name in names] for names in (passed, returned))
    site = CallSite(passed, returned, given, taken, block.next[0])
    if isinstance(target, Symbol):
        function = code.lowering.module.functions.get(target.name)
        if function is None:
            raise code.refuse(f"there is no function {target.name!r}")
        if not function.has_body:
            return _missing(code, target.name, site)
        if wrong := _misfit(function, site):
            raise code.refuse(wrong)
        name = function.name
        return lambda machine, registers, path: _enter(machine, path, name, site)
    for shape in operands:
        if not isinstance(shape, Symbol) or shape.name not in code.lowering.function.targets:
            raise code.refuse(
                "behind the arguments stands no .callprototype or .calltargets of this function"
            )
    return _call_by_address(code.slot(target, U64), site, code.instruction.line)


def _parentheses(operands: list[Operand]) -> tuple[Operand, ...]:
    """The members of a list in parentheses, taken from the operands if one is next."""
    if operands and isinstance(operands[0], Arguments):
        first = operands.pop(0)
        assert isinstance(first, Arguments)
        return first.parts
    return ()


def _missing(code: Code, name: str, site: CallSite) -> End:
    """What the vendor's driver supplies. A failed assert ends the kernel, as there."""
    if name == "__assertfail":
        return _stop(
            code.instruction, "a failed assert by {count} threads, thread {thread} of block {block}."
        )
    if name in device_runtime.FUNCTIONS:
        return _call_runtime(code, name, site)
    if name in DEVICE_RUNTIME:
        raise code.refuse(f"it calls {name!r}: kernels that launch kernels are not emulated")
    raise code.refuse(f"it calls {name!r}, which the module declares and does not define")


def _call_runtime(code: Code, name: str, site: CallSite) -> End:
    """A function of the device runtime, for one thread after the other."""
    function, given, results = device_runtime.FUNCTIONS[name]
    if tuple(site.passed_bytes) != given or tuple(site.returned_bytes) not in (results, ()):
        raise code.refuse(f"{name} has arguments of {given} bytes and results of {results}")
    instruction = code.instruction

    def end(machine: Machine, registers: Registers, path: Path) -> int:
        batch, base, offsets = machine.batch, path.activation.local_base, path.activation.decoded.offsets
        rows = batch.local.reshape(batch.count, -1)
        texts: dict[int, str] = {}
        for lane in (batch.every_lane if path.lanes is None else path.lanes).tolist():
            row = rows[batch.local_row[lane]]
            passed = [
                int.from_bytes(row[base + offsets[one] :][:size].tobytes(), "little")
                for one, size in zip(site.passed, given)
            ]
            found = function(device_runtime.Caller(batch, lane, instruction), passed, texts)
            for one, size in zip(site.returned, results):
                value = (found % (1 << 8 * size)).to_bytes(size, "little")
                row[base + offsets[one] :][:size] = np.frombuffer(value, np.uint8)
                if batch.unwritten is not None:
                    batch.unwritten.returned(int(batch.local_row[lane]), base + offsets[one], size)
        return site.after

    return end


def _local_name(code: Code, operand: Operand) -> str:
    if isinstance(operand, Symbol) and operand.name in code.lowering.decoded.offsets:
        return operand.name
    raise code.refuse("arguments and results of a call must be .param variables of the function")


def _bytes_of(code: Code, name: str) -> int:
    variable = code.lowering.variable(name)
    assert variable is not None
    return variable.size_bytes


def _misfit(function: Function, site: CallSite) -> str:
    """What a call gives or takes otherwise than the function does; "" where all fits."""
    for given, formal, what in (
        (site.passed_bytes, function.params, "arguments"),
        (site.returned_bytes, function.results, "results"),
    ):
        if len(given) != len(formal):
            return f"{function.name} has {len(formal)} {what}, not {len(given)}"
        for size, variable in zip(given, formal):
            if size != variable.size_bytes:
                return f"{function.name} has {variable.size_bytes} bytes of {variable.name}, not {size}"
    return ""


def _enter(machine: Machine, path: Path, name: str, site: CallSite, region: Region | None = None) -> int:
    """Copy the arguments and put the path at the start of the function; returning copies the results back."""
    callee: Decoded = machine.program.decoded(name)
    caller = path.activation
    if region is None:
        region = machine.take_out(path)
    activation = machine.activate(callee, path.count, caller, path)
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


def _call_by_address(slot: int, site: CallSite, line: int) -> End:
    fitting: set[str] = set()  # functions that were called from here before

    def name_at(machine: Machine, address: int, path: Path, mask: Lanes) -> str:
        name = machine.program.function_at(address)
        wrong = "where no function is" if name is None else ""
        if name is not None and name not in fitting:
            wrong = _misfit(machine.program.module.functions[name], site)
        if not wrong and name is not None:
            fitting.add(name)
            return name
        block, thread = path.batch.place(int(np.argmax(mask)))
        raise KernelFault(
            f"kernel {machine.kernel_name}, PTX line {line}: an indirect call to {address:#x} by thread {thread} of "
            f"block {block}: {wrong}.",
            line,
            [(block, thread)],
        )

    def end(machine: Machine, registers: Registers, path: Path) -> int:
        goals = np.broadcast_to(registers[slot], (machine.batch.count,))
        chosen = np.unique(goals if path.mask is None else goals[path.mask])
        names = [name_at(machine, int(goal), path, path.full_mask & (goals == goal)) for goal in chosen]
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
    number, expected = _numbered(code, 0, len(code.operands) - 1)
    line = code.instruction.line
    if what == "arrive" and expected is None:
        raise code.refuse("bar.arrive needs the number of threads")

    def end(machine: Machine, registers: Registers, path: Path) -> int:
        parts = _by_barrier(machine, registers, path, number, expected, line)
        if what == "arrive":
            for which, count, mask in parts:
                machine.arrive_at_barrier(path, which, count, mask)
            return after
        if len(parts) == 1 and machine.passes(path, *parts[0][:2]):
            return after  # everybody is here: nobody has to wait
        for part, (which, count, _) in zip(machine.part(path, [mask for _, _, mask in parts]), parts):
            machine.wait_at_barrier(part, after, which, count, None, line)
        return SPLIT

    return end


def _numbered(code: Code, first: int, last: int) -> tuple[int, int | None]:
    """The slots of a barrier's number, and of how many threads it waits for if that is given."""
    named = code.operands[first]
    if isinstance(named, Immediate) and not 0 <= named.value < BARRIERS:
        raise code.refuse(f"barriers have numbers from 0 to {BARRIERS - 1}")
    return code.source(first, U32), code.source(last, U32) if last > first else None


def _by_barrier(
    machine: Machine, registers: Registers, path: Path, number: int, expected: int | None, line: int
) -> list[tuple[int, int, Lanes | None]]:
    """Which barriers the threads of a path name: (number, how many threads it waits for or 0, who names it)."""
    numbers = registers[number]
    counts = _ALL_THREADS if expected is None else registers[expected]
    found: list[tuple[int, int, Lanes | None]] = []
    if len(numbers) == 1 and len(counts) == 1:
        found.append((int(numbers[0]), int(counts[0]), None))
    else:
        keys = (numbers.astype(np.uint64) << np.uint64(32)) | counts
        for key in np.unique(keys if path.mask is None else keys[path.mask]).tolist():
            found.append((key >> 32, key & 0xFFFFFFFF, path.full_mask & (keys == np.uint64(key))))
        if len(found) == 1:
            found = [(*found[0][:2], None)]
    for which, _, mask in found:
        if which >= BARRIERS:
            block, thread = path.batch.place(int(np.argmax(path.full_mask if mask is None else mask)))
            raise KernelFault(
                f"kernel {machine.kernel_name}, PTX line {line}: thread {thread} of block {block} names barrier "
                f"{which}; there are {BARRIERS}, from 0 on.",
                line,
                [(block, thread)],
            )
    return found


def _cluster_barrier(code: Code, after: int) -> End:
    """`barrier.cluster.arrive` and `.wait`."""
    what = code.take("arrive", "wait")
    if not what:
        raise code.refuse("barrier.cluster needs .arrive or .wait")
    while code.take("release", "relaxed", "acquire", "aligned"):
        pass
    code.expect(0)
    line = code.instruction.line

    def arrive(machine: Machine, registers: Registers, path: Path) -> int:
        machine.cluster_barrier.arrive(machine, path, line)
        return after

    def wait(machine: Machine, registers: Registers, path: Path) -> int:
        return after if machine.cluster_barrier.wait(machine, path, after, line) else SPLIT

    return arrive if what == "arrive" else wait


def _reducing_barrier(code: Code, after: int) -> End:
    """bar.red: a barrier at which threads also vote; all get the result."""
    how = code.take("popc", "and", "or")
    type_: Type = code.type("u32", "pred")
    code.expect(3, 4)
    number, expected = _numbered(code, 1, len(code.operands) - 2)
    truth = code.predicate(code.operands[-1])
    write = code.result(type_)
    line = code.instruction.line

    def end(machine: Machine, registers: Registers, path: Path) -> int:
        votes = np.broadcast_to(truth(registers), (machine.batch.count,))

        def give_result(woken: Path) -> None:
            barrier = machine.barriers[woken.barrier]
            table = {
                "popc": barrier.last_true.astype(np.uint32),
                "and": barrier.last_true == barrier.last_arrived,
                "or": barrier.last_true > 0,
            }
            write(registers, woken, table[how][machine.batch.block_of_lane])

        parts = _by_barrier(machine, registers, path, number, expected, line)
        for part, (which, count, _) in zip(machine.part(path, [mask for _, _, mask in parts]), parts):
            part.on_wake = give_result
            machine.wait_at_barrier(part, after, which, count, votes, line)
        return SPLIT

    return end


def _warp_barrier(members: int, after: int, line: int) -> End:
    def end(machine: Machine, registers: Registers, path: Path) -> int:
        if path.mask is None or path.count == machine.live_count:
            warps_met(machine.batch, path.full_mask, registers[members], machine.live)
            return after
        machine.wait_for_warp(path, after, registers[members], line)
        return SPLIT

    return end
