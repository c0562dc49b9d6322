"""What an emulated Metal GPU looks for while it runs a kernel (HCQ_SANITIZE=memory).

In       a launch, what is bound to it
Out      `run`: the kernel has run, each of its pointers limited to its buffer; a fault in Checks where it left one
Changes  what is bound
Next     commands.py (who asks), shader/machine.py and shader/compiled.py (which stop a kernel that leaves what is
         bound), hcq/emu/shader/checks.py (what was found)

Several buffers of a program lie in one MTLBuffer, which is all that Metal knows of.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from hcq.emu.metal.shader.errors import KernelFault
from hcq.emu.metal.shader.program import Binding, Program, Size
from hcq.emu.metal.shader.stopping import Stop
from hcq.emu.shader import access_faults
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.memory_checks import stretch_at
from hcq.emu.shader.pointers import buffers_at
from hcq.events.known_memory import KnownMemory
from hcq.system import native


def run(
    program: Program, grid: Size, block: Size, bindings: Mapping[int, Binding], entry: int, stop: Stop
) -> None:
    """Run a launch of the pipeline that reports know by this number. Raises KernelFault, Stopped."""
    checks = Checks.of_launch(os.getpid(), entry)
    if checks is None or "memory" not in checks.words:
        program.run(grid, block, dict(bindings), entry, stop)
        return
    try:
        program.run(grid, block, limited(checks.known, bindings), entry, stop)
    except KernelFault as fault:
        note(checks, program, fault)
        raise
    finally:
        checks.tell()


def limited(known: KnownMemory | None, bindings: Mapping[int, Binding]) -> dict[int, Binding]:
    """What is bound, up to the end of the buffer that it is in."""
    found = dict(bindings)
    for index, data in bindings.items():
        if known is None or isinstance(data, bytes):
            continue
        address = native.address_of(data)
        inside = [one for one in buffers_at(known, address) if one.end > address]
        if inside:
            found[index] = data[: inside[0].end - address]
        elif stretch_at(known.freed, address) is not None:
            found[index] = data[:0]
    return found


def note(checks: Checks, program: Program, fault: KernelFault) -> None:
    """The kernel was stopped, by an access perhaps."""
    text = program.source.line(fault.line) if fault.line else ""
    kind = fault.access or ("store" if " writes " in str(fault) else "load")
    if fault.is_misaligned:
        rule, address = "misaligned-access", fault.address
    elif fault.own_byte >= 0:
        rule, address = "local-overrun", fault.own_byte
    elif fault.shared_byte >= 0:
        rule, address = "shared-beyond", fault.shared_byte
    elif fault.access:
        is_freed = checks.known is not None and stretch_at(checks.known.freed, fault.address) is not None
        rule, address = "stray-access" if is_freed else "buffer-overrun", fault.address
    else:
        return
    access_faults.refused(checks, rule, kind, address, text, fault.line, "a thread")
