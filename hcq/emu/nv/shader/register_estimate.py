"""Register estimate: how many registers of 32 bits ptxas gives a thread of a kernel, seen from its PTX.

In       the basic blocks of a function and the types of its registers
Out      a number, as a launch description would say it
Changes  nothing
Next     hcq/emu/nv/launch.py (who asks, of kernels without machine code), flow.py (blocks),
         tests/hcq/emu/nv/shader/test_register_estimate.py (ptxas's second opinion)
Source   backward liveness, as in A. Aho et al., Compilers: what is read later, on some way, is kept. What ptxas needs
         besides (an address, what it asks for early) is OWN, measured on its own output

Predicates have registers of their own. Of what PTX only copies or converts, ptxas keeps one.
"""

from __future__ import annotations

from collections.abc import Mapping

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.syntax import Register
from hcq.emu.nv.shader.types import Type

OWN = 10
STEP = 8
LEAST, MOST = 16, 255
SAME = ("mov", "cvta")


def estimate(blocks: list[BasicBlock], types: Mapping[str, Type]) -> int:
    """Registers of a thread, in steps in which a launch takes them."""
    same = _copies(blocks)

    def words(name: str) -> int:
        kind = types.get(name)
        if kind is None or kind.kind == "pred":
            return 0
        return max(1, kind.size_bytes // 4)

    def plain(names: list[str]) -> list[str]:
        return [same.get(name, name) for name in names]

    after: list[set[str]] = [set() for _ in range(len(blocks) + 1)]
    most, changed = 0, bool(blocks)
    while changed:
        changed = False
        for block in reversed(blocks):
            live = set().union(*(after[number] for number in block.next if number <= len(blocks)))
            most = max(most, sum(map(words, live)))
            own = [*block.body, *([block.end] if block.end is not None else [])]
            for one in reversed(own):
                reads, writes = flow.reads_and_writes(one)
                if one.opcode in SAME and len(one.operands) == 2 and isinstance(one.operands[1], Register):
                    continue
                live.difference_update(plain(writes))
                live.update(plain(reads))
                most = max(most, sum(map(words, live)))
            if block.skip_guard is not None:
                live.add(block.skip_guard.name)
            if live != after[block.number]:
                after[block.number] = live
                changed = True
    return min(MOST, max(LEAST, -(-(most + OWN) // STEP) * STEP))


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
