"""pipeline.log: which pipeline was bound, and the waves that were in its shaders, with the instruction of each.

In       lines of text
Out      Pipelines: names, and Waves
Next     report.py (who asks), ../waves.py (waves that are alike)
Source   Mesa: src/amd/vulkan/radv_debug.c (radv_dump_queue_state, radv_dump_annotated_shader)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from hcq.tools.trace.kernel_log.log_lines import clean
from hcq.tools.trace.waves import MOST_WAVES, Wave, finish

MAX_LINE = 1000
KEPT_CODE = 4  # instructions before the one of a wave

_HASH = re.compile(r"Pipeline hash: ([0-9a-fA-F]{1,16})")
_QUEUE = re.compile(r"AMD_IP_(\w{1,20}):$")
_COUNT = re.compile(r"The number of active waves = (\d{1,6})")
_STAGE = re.compile(r"(.{1,80}?) - annotated disassembly:")
_CODE = re.compile(
    r"(.{1,200}?)\s*; ?((?:[0-9a-fA-F]{8} ?){1,5})\s*\[PC=0x([0-9a-fA-F]{1,16}), off=(\d+), size=(\d+)\]"
)
_WAVE = re.compile(
    r"\^? ?SE(\d{1,3}) S[HA](\d{1,3}) CU(\d{1,3}) SIMD(\d{1,3}) WAVE(\d{1,3}) +EXEC=([0-9a-fA-F]{1,16})"
    r" +INST(?:32|64)?=([0-9a-fA-F]{8})(?: ([0-9a-fA-F]{8}))?(?: +PC=([0-9a-fA-F]{1,16}))?"
)
_SPIRV = re.compile(r"SPIRV \(see ([0-9a-f]{8,40})\.spv\)")
_ELSEWHERE = "Waves not executing currently-bound shaders"


@dataclass
class Pipelines:
    """What pipeline.log says. stages: those with waves in them."""

    queue: str = ""
    hash: str = ""
    active: int | None = None
    stages: list[str] = field(default_factory=list)
    spirv: list[str] = field(default_factory=list)
    waves: list[Wave] = field(default_factory=list)


def read(lines: Iterable[str], arch: str) -> Pipelines:
    """The pipelines and waves of a pipeline.log. arch: the GPU, where it is known."""
    found = Pipelines()
    stage, instruction, pc = "", "", None
    code: list[str] = []
    for number, raw in enumerate(lines, 1):
        line = clean(raw[:MAX_LINE])
        if not line:
            continue
        if wave := _WAVE.match(line):
            if len(found.waves) < MOST_WAVES:
                at = int(wave[9], 16) if wave[9] else pc
                place = "se{}.sh{}.cu{}.simd{}.wave{}".format(*(int(wave[n]) for n in range(1, 6)))
                one = Wave(place, number, at, int(wave[6], 16), kernel=stage)
                one.words = [int(wave[n], 16) for n in (7, 8) if wave[n]]
                if not wave[9]:
                    one.instruction, one.code = instruction, list(code)
                found.waves.append(one)
        elif text := _CODE.match(line):
            instruction, pc = " ".join(text[1].split()), int(text[3], 16)
            code = [*(one.replace("=>", "  ") for one in code[-KEPT_CODE:]), f"=> {pc:#x}  {instruction}"]
        elif named := _STAGE.match(line):
            stage = f"{named[1]} of pipeline {found.hash}" if found.hash else named[1]
            found.stages.append(named[1])
            code = []
        elif line.startswith(_ELSEWHERE):
            stage, instruction, pc, code = "a shader that is not bound", "", None, []
        elif named := _HASH.match(line):
            found.hash = found.hash or named[1]
        elif named := _QUEUE.match(line):
            found.queue = named[1]
        elif named := _COUNT.match(line):
            found.active = int(named[1])
        elif (named := _SPIRV.match(line)) and len(found.spirv) < 64:
            found.spirv.append(named[1])
    for one in found.waves:
        finish(one, arch)
    return found
