"""trap_handler.log: the wave that RADV's trap handler stopped, with its registers, its LDS and the instruction.

In       lines of text
Out      a Wave; None where the text has none
Next     report.py (who asks), ../waves.py (what is said of waves)
Source   Mesa: src/amd/vulkan/radv_debug.c (radv_check_trap_handler, radv_dump_faulty_shader, radv_dump_sq_hw_regs),
         RADV_TRAP_HANDLER; ac_debug.c: ac_dump_reg
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hcq.tools.trace.kernel_log.log_lines import clean
from hcq.tools.trace.waves import Wave, finish

MAX_LINE = 1000
MOST_SCALARS, MOST_LDS_WORDS = 128, 1 << 15
KEPT_BEFORE, KEPT_BEHIND = 4, 2  # lines of code around the instruction

_SHADER = re.compile(
    r"Faulty shader found VA=\[0x([0-9a-fA-F]{1,16})-0x([0-9a-fA-F]{1,16})\], instr_offset=(-?\d{1,9})"
)
_MARK = "!!! Faulty instruction below !!!"
_VALUE = re.compile(
    r"(m0|exec_lo|exec_hi|vcc_lo|vcc_hi|scc|pc|ttmp\d{1,2})\s*[:=]\s*(?:0x)?([0-9a-fA-F]{1,16})\b"
)
_SCALARS = re.compile(r"s\[\s*(\d{1,3})\s*-\s*(\d{1,3})\s*\]\s*=\s*\{([^}]{0,200})\}?")
_LDS = re.compile(r"lds\[\s*(\d{1,6})\s*-\s*(\d{1,6})\s*\]\s*=\s*\{([^}]{0,400})\}?")
_VECTOR = re.compile(r"(?:v)?\[\s*(\d{1,3})\s*\]\s*=\s*\{([^}]{0,900})\}?")
_REGISTER = re.compile(r"SQ_WAVE_(\w{2,40}) <- (.*)$")
_FIELD = re.compile(r"(\w{1,40}) = (\d{1,10}|0x[0-9a-fA-F]{1,8})\b")
_WORD = re.compile(r"(?:0x)?([0-9a-fA-F]{1,8})\b")
# fields that are printed, as bits of the registers that they are of
_BITS = {
    "status": {
        "SCC": 0,
        "PRIV": 5,
        "TRAP_EN": 6,
        "EXECZ": 9,
        "VCCZ": 10,
        "IN_TG": 11,
        "IN_BARRIER": 12,
        "HALT": 13,
        "TRAP": 14,
        "VALID": 16,
        "ECC_ERR": 17,
        "FATAL_HALT": 23,
    },
    "trapsts": {"MEM_VIOL": 8, "SAVECTX": 10, "ILLEGAL_INST": 11, "XNACK_ERROR": 28},
}
_EXCEPTIONS = (
    ("MEM_VIOL", "memory violation"),
    ("ILLEGAL_INST", "illegal instruction"),
    ("XNACK_ERROR", "XNACK error"),
)


def read(lines: Iterable[str], arch: str) -> Wave | None:
    """The wave of a trap_handler.log. arch: the GPU, where it is known."""
    wave = Wave("the wave that trapped", 0)
    before: list[str] = []
    behind = -1  # lines after the mark; below 0 before it
    register, is_found, vectors = "", False, False
    seen: dict[str, int] = {}
    for number, raw in enumerate(lines, 1):
        line = clean(raw[:MAX_LINE]).strip()
        if not line:
            continue
        if shader := _SHADER.search(line):
            wave.pc = int(shader[1], 16) + int(shader[3])
            wave.kernel = f"the shader at 0x{shader[1]}"
            wave.line, is_found, register = number, True, ""
        elif _MARK in line:
            behind, is_found = 0, True
        elif behind == 0:
            wave.instruction, behind = line, 1
            wave.code = [*(f"   {one}" for one in before[-KEPT_BEFORE:]), f"=> {line}"]
        elif 0 < behind <= KEPT_BEHIND:
            wave.code.append(f"   {line}")
            behind += 1
        elif value := _VALUE.match(line):
            wave.registers[value[1]], register, is_found = int(value[2], 16), "", True
        elif scalars := _SCALARS.match(line):
            for at, word in enumerate(_WORD.findall(scalars[3])):
                if int(scalars[1]) + at < MOST_SCALARS:
                    wave.scalars[int(scalars[1]) + at] = int(word, 16)
            is_found = True
        elif _LDS.match(line):
            is_found = True
        elif line.startswith("VGPRS"):
            vectors = True
        elif vectors and (vector := _VECTOR.match(line)):
            wave.vectors[int(vector[1])] = [int(word, 16) for word in _WORD.findall(vector[2])]
        else:
            named = _REGISTER.match(line)
            if named:
                register, line, vectors = named[1].lower(), named[2], False
                register = {"trap_sts": "trapsts"}.get(register, register)
                if (whole := _WORD.fullmatch(line)) is not None and register not in _BITS:
                    wave.registers[register] = int(whole[1], 16)
            field = _FIELD.match(line) if register else None
            if field is not None:
                is_found = True
                value_of = int(field[2], 0)
                seen[field[1]] = value_of
                bit = _BITS.get(register, {}).get(field[1])
                wave.registers.setdefault(register, 0)
                if bit is not None and value_of:
                    wave.registers[register] |= 1 << bit
            elif wave.line and behind < 0:
                before = [*before[1 - KEPT_BEFORE :], line]
    if not is_found:
        return None
    wave.reason = ", ".join(text for name, text in _EXCEPTIONS if seen.get(name))
    finish(wave, arch)
    return wave
