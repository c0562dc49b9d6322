"""Standing: where the SIMD groups of a kernel are, in which threads, and what they read in a loop. For reports.

In       a Program, and a frame of the function that NumPy runs it by
Out      `simd_groups_of`; nothing of a kernel that runs as machine code of the host
Next     program.py (who calls), translate.py (which text line is of which MSL line), hcq/events/waves.py (the record)

Python knows in which line of a translated text every thread of the host is. So the kernel does nothing to be seen.
"""

from __future__ import annotations

import re
import sys
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from hcq.emu.alike_waves import alike
from hcq.emu.metal.shader.machine import Machine
from hcq.events.waves import Wave
from hcq.system import native

if TYPE_CHECKING:
    from hcq.emu.metal.shader.program import Program

LOOP = re.compile(r"( *)while True:")
LOAD = re.compile(r"M\.(?:load(?:_vector)?|atomic)\([^,]+, (\w+),")
STORE = re.compile(r"M\.store|M\.atomic\((?!.*'load')")
COMPILED = (
    "it runs as machine code of the host, in which nobody sees where threads are. "
    "HCQ_EMULATE=metal:m3:kernels=interpreted runs it so that they are seen"
)


def look(program: Program, thread: int) -> tuple[tuple[Wave, ...], str]:
    """(its SIMD groups, why there are none) of a kernel that a thread of the host runs now."""
    frame: FrameType | None = sys._current_frames().get(thread)
    while frame is not None and frame.f_code.co_filename != program.file_name:
        frame = frame.f_back
    if frame is None:
        return (), COMPILED if program.compiled is not None else "it has not begun, or has just ended"
    return simd_groups_of(program, frame.f_lineno, dict(frame.f_locals)), ""


def at_fault(program: Program, trace: TracebackType | None) -> tuple[tuple[Wave, ...], int]:
    """(its SIMD groups, the line of MSL) of an error's traceback; line 0 when the text had no part in it."""
    found = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == program.file_name:
            found = trace
        trace = trace.tb_next
    if found is None:
        return (), 0
    groups = simd_groups_of(program, found.tb_lineno, dict(found.tb_frame.f_locals), is_stopped=True)
    return groups, program.places[found.tb_lineno - 1][0]


def simd_groups_of(
    program: Program, text_line: int, names: dict[str, Any], is_stopped: bool = False
) -> tuple[Wave, ...]:
    """Those that are at a line of the text; those that wait for them elsewhere have no place of their own.

    names   the variables of the function, by name
    """
    line, mask_name = program.places[text_line - 1]
    machine, mask = names.get("M"), names.get(mask_name, True)
    if not isinstance(machine, Machine):
        return ()
    lanes = machine.thread if mask is True or not isinstance(mask, np.ndarray) else np.flatnonzero(mask)
    spins = () if is_stopped else _spins_on(program, text_line, names)
    text = program.source.line(line)
    pattern = Wave("SIMD group", 0, "group", 0, f"MSL line {line}", text, "", "", spins)
    return tuple(alike(pattern, machine.first + machine.row[lanes], lanes % machine.threads))


def _spins_on(program: Program, text_line: int, names: dict[str, Any]) -> tuple[int, ...]:
    """Where the memories begin that the innermost loop around a line reads, when it stores nothing."""
    lines = program.text.splitlines()
    inside = len(lines[text_line - 1]) - len(lines[text_line - 1].lstrip())
    for start in range(text_line - 1, -1, -1):
        match = LOOP.match(lines[start])
        if match and (start == text_line - 1 or len(match[1]) < inside):
            break
    else:
        return ()
    body = []
    for one in lines[start + 1 :]:
        if len(one) - len(one.lstrip()) <= len(match[1]):
            break
        body.append(one)
    if any(STORE.search(one) for one in body):
        return ()
    read = [names.get(name) for name in dict.fromkeys(LOAD.findall("\n".join(body)))]
    return tuple(native.address_of(one.data) for one in read if one is not None and not one.is_shared)
