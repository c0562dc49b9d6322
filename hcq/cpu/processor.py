"""The command processor and its workers, as LLVM IR: what stands where a GPU's silicon would.

In       the layouts of packets.py, whose offsets the IR reads ($Dispatch.entry is that field's byte offset)
Out      `ir_text(machine)`, from which tools/processor_objects.py makes the ELF objects in objects/
Next     processor_groups.ll, processor_packets.ll (the IR itself), native_processor.py (links the object), packets.py

Threads: one command processor runs packets in order; workers help it with the groups of one dispatch at a time.
Both spin for a few microseconds when there is nothing to do and then sleep on a futex. A ticket counts down from the
number of claims: whoever gets a positive value owns that piece of the grid, so a worker that comes late gets nothing,
and needs no generation number to know it. Each sleeping place follows one rule: announce, look again, sleep; and the
other side: change, then look for sleepers. All four are sequentially consistent, so no wake-up is ever lost.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from hcq.cpu import packets
from hcq.errors import UsageError


class Machine(NamedTuple):
    """What differs between host processors, as far as calling a C function and sleeping go."""

    name: str
    triple: str
    cpu: str  # a baseline: the object then runs on every machine of this kind, and a shared home directory is safe
    integer_registers: int
    float_registers: int
    syscall_futex: int
    syscall_yield: int
    pause: str  # the intrinsic of a polite spin loop, and how it is called


X86_64 = Machine("x86_64", "x86_64-unknown-linux-gnu", "x86-64", 6, 8, 202, 24, "@llvm.x86.sse2.pause()")
AARCH64 = Machine(
    "aarch64", "aarch64-unknown-linux-gnu", "generic", 8, 8, 98, 124, "@llvm.aarch64.hint(i32 1)"
)
MACHINES = {machine.name: machine for machine in (X86_64, AARCH64)}

HALVES = "processor_groups.ll", "processor_packets.ll"
STACK_BUCKETS = (
    0,
    4,
    16,
    64,
    256,
)  # a call passes the next larger number of stack slots; callees ignore the surplus
MAX_STACK_SLOTS = STACK_BUCKETS[-1]


def machine_named(name: str) -> Machine:
    """The Machine of this host. Raises UsageError for a processor we have no command processor for."""
    if name not in MACHINES:
        raise UsageError(
            f"open CPU device: this is {name!r}; the CPU device runs on {' and '.join(MACHINES)}."
        )
    return MACHINES[name]


def ir_text(machine: Machine) -> str:
    """The module as LLVM IR text, with every layout offset filled in. Same text, same object."""
    here = Path(__file__).parent
    halves = [(here / name).read_text(encoding="utf-8") for name in HALVES]
    text = "\n".join(halves).replace("$calls", _universal_calls(machine))
    constants = {
        "pause": machine.pause,
        "pause_declaration": machine.pause.replace("i32 1", "i32"),
        "futex": str(machine.syscall_futex),
        "yield": str(machine.syscall_yield),
        "triple": machine.triple,
        "max_slots": str(machine.integer_registers + machine.float_registers + MAX_STACK_SLOTS),
    }

    def offset(match: re.Match[str]) -> str:
        layout, field = match.group(1), match.group(2)
        if field is None:
            return constants[layout]
        if layout == "Fault":
            return str(int(packets.Fault[field]))
        if layout == "Opcode":
            return str(int(packets.Opcode[field]))
        owner = getattr(packets, layout)
        return str(owner.length_words if field == "length_words" else owner.fields[field].byte_offset)

    return re.sub(r"\$(\w+)(?:\.(\w+))?", offset, text)


def _universal_calls(machine: Machine) -> str:
    """One call per (floats?, stack bucket): every register and that many stack slots are loaded from the slots."""
    integers, floats = machine.integer_registers, machine.float_registers
    lines = []
    for has_floats in (0, 1):
        for bucket in STACK_BUCKETS:
            tag = f"{has_floats}_{bucket}"
            kinds = ["i64"] * integers + ["double"] * (floats * has_floats) + ["i64"] * bucket
            lines.append(f"call_{tag}:")
            for slot, kind in enumerate(kinds):
                lines.append(f"  %p{tag}_{slot} = getelementptr i64, ptr %slots, i64 {slot}")
                lines.append(f"  %v{tag}_{slot} = load {kind}, ptr %p{tag}_{slot}")
            values = ", ".join(f"{kind} %v{tag}_{slot}" for slot, kind in enumerate(kinds))
            lines.append(f"  call void %entry({values})")
            lines.append("  ret void")
    return "\n".join(lines)
