"""Register estimate: how many registers of 32 bits ptxas gives a thread of a kernel, seen from its PTX.

In       the basic blocks of a function and the types of its registers
Out      a number, as a launch description would say it
Next     hcq/emu/nv/launch.py (who asks, of kernels without machine code), flow.py (blocks),
         tests/hcq/emu/nv/shader/test_register_estimate.py (ptxas's second opinion)
Source   backward liveness, as in A. Aho et al., Compilers: what is read later, on some way, is kept. What ptxas needs
         besides (an address, what it asks for early) is OWN, measured on its own output

Predicates have registers of their own. Of what PTX only copies or converts, ptxas keeps one. What it
loads of memory that nobody changes (ld.global.nc) it asks for as early as it can, and keeps all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.syntax import Instruction, Register
from hcq.emu.nv.shader.types import Type

OWN = 10
STEP = 8
LEAST, MOST = 16, 255
SAME = ("mov", "cvta")


def estimate(blocks: list[BasicBlock], types: Mapping[str, Type]) -> int:
    """Registers of a thread, in steps in which a launch takes them."""
    same = _copies(blocks)
    runs = _runs(blocks)

    def words(name: str) -> int:
        kind = types.get(name)
        if kind is None or kind.kind == "pred":
            return 0
        return max(1, kind.size_bytes // 4)

    def plain(names: list[str]) -> list[str]:
        return [same.get(name, name) for name in names]

    bodies = [_early([one for block in run for one in _own(block)]) for run in runs]
    first = {run[0].number: place for place, run in enumerate(runs)}
    after: list[set[str]] = [set() for _ in runs]
    most, changed = 0, bool(runs)
    while changed:
        changed = False
        for place in reversed(range(len(runs))):
            follows = [after[first[number]] for number in runs[place][-1].next if number in first]
            live = set().union(*follows)
            most = max(most, sum(map(words, live)))
            for one in reversed(bodies[place]):
                reads, writes = flow.reads_and_writes(one)
                if one.opcode in SAME and any(name in same for name in writes):
                    continue
                live.difference_update(plain(writes))
                live.update(plain(reads))
                most = max(most, sum(map(words, live)))
            live.update(block.skip_guard.name for block in runs[place] if block.skip_guard is not None)
            if live != after[place]:
                after[place] = live
                changed = True
    return min(MOST, max(LEAST, -(-(most + OWN) // STEP) * STEP))


def _own(block: BasicBlock) -> list[Instruction]:
    return [*block.body, *([block.end] if block.end is not None else [])]


def _runs(blocks: list[BasicBlock]) -> list[list[BasicBlock]]:
    """Blocks that always follow each other: what a whole warp does together ends a block, and nothing else."""
    ways = Counter(number for block in blocks for number in block.next)
    found: list[list[BasicBlock]] = []
    for block in blocks:
        last = found[-1][-1] if found else None
        follows = last is not None and last.end is None and last.skip_guard is None
        if follows and last is not None and last.next == [block.number] and ways[block.number] == 1:
            found[-1].append(block)
        else:
            found.append([block])
    return found


def _early(body: list[Instruction]) -> list[Instruction]:
    """Loads of memory that nobody changes stand as early as they can: after their address."""
    made: list[Instruction] = []
    for one in body:
        at = len(made)
        if one.opcode == "ld" and "nc" in one.modifiers:
            reads = set(flow.reads_and_writes(one)[0])
            while at and not reads & set(flow.reads_and_writes(made[at - 1])[1]):
                at -= 1
        made.insert(at, one)
    return made


def _copies(blocks: list[BasicBlock]) -> dict[str, str]:
    """Register -> the one that it is a copy of, where it is written once."""
    writes: dict[str, int] = {}
    found: dict[str, str] = {}
    for block in blocks:
        for one in block.body:
            for name in flow.reads_and_writes(one)[1]:
                writes[name] = writes.get(name, 0) + 1
            if one.opcode in SAME and len(one.operands) == 2 and one.guard is None:
                to, source = one.operands
                if isinstance(to, Register) and isinstance(source, Register):
                    found[to.name] = source.name
    found = {to: source for to, source in found.items() if writes[to] == 1 and writes.get(source, 1) == 1}

    def root(name: str) -> str:
        while name in found:
            name = found[name]
        return name

    return {to: root(to) for to in found}
