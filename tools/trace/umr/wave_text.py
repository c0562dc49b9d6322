"""Waves as umr prints them: the table, and the blocks with registers, SGPRs, VGPRs and the code around the PC.

In       lines of text, one after the other
Out      Waves; whether a line belonged to one; the GPU's name, where a register of a shader says it
Next     dump.py (who reads lines), ../waves.py (what a Wave is, and what is concluded)
Source   umr: src/app/print_waves.c, and the examples of its documentation (--waves)
"""

from __future__ import annotations

import re

from hcq.tools.trace.waves import MOST_WAVES, Wave, code_around, finish

MOST_VALUES = 1 << 20  # of vector registers, of all waves
UNREAD = 0xBEBEBEEF  # what a register reads as that is not there
MOST_NAMES = 200  # registers of a wave

ASICS = {
    "navi31": "gfx1100",
    "navi32": "gfx1101",
    "navi33": "gfx1102",
    "navi44": "gfx1200",
    "navi48": "gfx1201",
    "navi10": "gfx1010",
    "navi12": "gfx1011",
    "navi14": "gfx1012",
    "navi21": "gfx1030",
    "navi22": "gfx1031",
    "navi23": "gfx1032",
    "navi24": "gfx1034",
    "sienna_cichlid": "gfx1030",
    "navy_flounder": "gfx1031",
    "dimgrey_cavefish": "gfx1032",
    "vangogh": "gfx1033",
    "beige_goby": "gfx1034",
    "yellow_carp": "gfx1035",
    "rembrandt": "gfx1035",
    "vega10": "gfx900",
    "raven": "gfx902",
    "vega12": "gfx904",
    "vega20": "gfx906",
    "arcturus": "gfx908",
    "aldebaran": "gfx90a",
    "renoir": "gfx90c",
    "aqua_vanjaram": "gfx942",
}

_HEAD = re.compile(
    r"((?:xcc\d{1,3}\.)?se\d{1,3}\.s[ah]\d{1,3}\.(?:cu|wgp)\d{1,3}\.simd\d{1,3}\.wave\d{1,3})\b"
)
_TABLE = re.compile(r"SE (SH|SA) (CU|WGP) SIMD WAVE# (.*)")
_CELL = re.compile(r"([A-Za-z]\w{0,60}): +([0-9a-fA-F]{1,8})(?= *(?:\||$))")
_SECTION = re.compile(r"([A-Za-z]\w{0,60})\[([0-9a-fA-F]{8})\]:")
_BANK = re.compile(r"(SGPRS|TTMP|TBA/TMA):$")
_SCALARS = re.compile(r"(SGPRS|TTMP|TBA/TMA)?\[ *(\d{1,4})\.\. *(\d{1,4})\] = \{ ([0-9a-fA-F, ]{8,80}) \}")
_LANES = re.compile(r"(?:VGPRS:)? *\(?t00\)? ")
_VECTOR = re.compile(r"\[ *(\d{1,4})\] = \{((?: [0-9a-fA-F]{8}){1,64}) \}?")
_CODE = re.compile(
    r"(\* *)?pgm\[\w+@0x([0-9a-fA-F]{1,16}) \+ 0x([0-9a-fA-F]{1,8}) *\] = 0x([0-9a-fA-F]{1,8})\s*(.*)"
)
_OLD_CODE = re.compile(r"(\*\s*)?pgm\[\w+@(?:0x)?([0-9a-fA-F]{1,16})\] = (?:0x)?([0-9a-fA-F]{1,8})\s*(.*)")
_SHADER = re.compile(
    r"PGM_MEM|Shader from|End of disassembly|Done disassembly|Data block from|Main Registers:|Register Bits:"
)
_SHADER_REGISTER = re.compile(r"(\w{1,40})\.(?:reg|mm)\w{1,60}\(\w+@0x[0-9a-fA-F]+\) == 0x[0-9a-fA-F]+$")
_TABLE_NAMES = {"wave_status": "status", "gpralloc": "gpr_alloc", "ldsalloc": "lds_alloc", "ibsts": "ib_sts"}


def arch_of(asic: str) -> str:
    """The architecture of a GPU by umr's name for it: navi31 is gfx1100; "" for one that is not known."""
    name = asic.lower()
    return name if re.fullmatch(r"gfx\d{2,4}[0-9a-f]?", name) else ASICS.get(name, "")


class WaveText:
    """The waves of a text, line by line."""

    def __init__(self, most_code: int) -> None:
        self.waves: list[Wave] = []
        self.asic = ""
        self._columns: list[str] = []
        self._units = ("sh", "cu")
        self._bits_of = ""  # the register whose bits come now
        self._bank = ""
        self._code: dict[int, tuple[int, str]] = {}  # address -> word, text
        self._code_left = most_code
        self._values_left = MOST_VALUES

    def take(self, number: int, line: str) -> bool:
        """Whether a line is one of a wave, or of the code of a shader."""
        if found := _HEAD.match(line):
            self._new(Wave(found[1], number))
            return True
        if found := _TABLE.match(line):
            self._columns = [_name(word) for word in found[3].split()]
            self._units = (found[1].lower(), found[2].lower())
            return True
        if self._columns and (cells := line.split())[:5] and self._row(number, cells):
            return True
        if found := _CODE.match(line):
            self._take_code(int(found[2], 16) + int(found[3], 16), found[4], found[5])
            return True
        if found := _OLD_CODE.match(line):
            self._take_code(int(found[2], 16), found[3], found[4])
            return True
        if _SHADER.match(line):
            self._bits_of = ""
            return True
        if found := _SHADER_REGISTER.match(line):
            self.asic = self.asic or found[1]
            return True
        return bool(self.waves) and self._of_wave(self.waves[-1], line)

    def finish(self, asic: str) -> None:
        """Conclude what each wave is at, when all lines were read. asic: umr's name of the GPU, where it is known."""
        addresses = sorted(self._code)
        for wave in self.waves:
            _drop_unread(wave)
            arch = arch_of(asic or self.asic) or _guess(wave)
            finish(wave, arch)
            if wave.pc is None:
                continue
            if wave.pc in self._code:
                wave.instruction = self._code[wave.pc][1] or wave.instruction
                wave.words = wave.words or self._words(wave.pc)
                wave.code = code_around(wave.pc, addresses, self._said)
            wave.waits_for = ""
            finish(wave, arch)

    # -------------------------------------------------------- a wave

    def _new(self, wave: Wave) -> None:
        if len(self.waves) < MOST_WAVES:
            self.waves.append(wave)
        self._columns, self._bits_of, self._bank = [], "", ""

    def _row(self, number: int, cells: list[str]) -> bool:
        if len(cells) < 8 or not all(cell.isdecimal() and len(cell) < 6 for cell in cells[:5]):
            return False
        values = cells[5:]
        if not all(re.fullmatch(r"[0-9a-fA-F]{8}", value) for value in values):
            return False
        columns = self._columns
        units = ("se", *self._units, "simd", "wave")
        place = ".".join(f"{unit}{int(cell)}" for unit, cell in zip(units, cells))
        wave = Wave(place, number)
        wave.registers = {name: int(value, 16) for name, value in zip(columns, values)}
        self._new(wave)
        self._columns = columns
        return True

    def _of_wave(self, wave: Wave, line: str) -> bool:
        if found := _SECTION.match(line):
            self._bits_of = _name(found[1])
            self._set(wave, self._bits_of, found[2])
            return True
        if found := _BANK.match(line):
            self._bank = found[1]
            return True
        if found := _SCALARS.match(line):
            values = [value for value in re.split(r"[, ]+", found[4]) if value]
            if (found[1] or self._bank) == "SGPRS" and len(wave.scalars) < 512:
                for at, value in enumerate(values[:8], int(found[2])):
                    wave.scalars[at] = int(value[:8], 16)
            return True
        if found := _VECTOR.match(line):
            values = found[2].split()
            if self._values_left >= len(values):
                self._values_left -= len(values)
                wave.vectors[int(found[1])] = [int(value, 16) for value in values]
            return True
        if _LANES.match(line):
            return True
        cells = _CELL.findall(line)
        for name, value in cells:
            if self._bits_of:
                self._set(wave, f"bit_{_name(name)}", value)
            else:
                self._set(wave, _name(name), value)
        return bool(cells) or line.startswith("THIS WAVE DATA IS POSSIBLY TAINTED")

    def _set(self, wave: Wave, name: str, value: str) -> None:
        if len(wave.registers) < MOST_NAMES:
            wave.registers.setdefault(name, int(value, 16))

    # -------------------------------------------------------- code

    def _take_code(self, va: int, word: str, text: str) -> None:
        if self._code_left > 0:
            self._code_left -= 1
            said = "" if text.startswith(";;") else " ".join(text.split())[:200]
            self._code[va] = (int(word, 16), said)

    def _said(self, va: int) -> str:
        word, text = self._code[va]
        return text or f"{word:08x}"

    def _words(self, va: int) -> list[int]:
        return [self._code[at][0] for at in range(va, va + 16, 4) if at in self._code]


def _name(text: str) -> str:
    """A register's name without what differs among versions of umr."""
    name = text.lower().removeprefix("ixsq_wave_").removeprefix("sq_wave_")
    name = _TABLE_NAMES.get(name, name)
    return {"vm_cnt": "vmcnt", "lgkm_cnt": "lgkmcnt", "exp_cnt": "expcnt", "vs_cnt": "vscnt"}.get(
        name, name.removeprefix("wave_")
    )


def _drop_unread(wave: Wave) -> None:
    """Leave out registers that could not be read. When MODE is one, the wave had ended, and what is left is garbled."""
    if wave.registers.get("mode") == UNREAD:
        keep = ("status", "pc_lo", "pc_hi", "exec_lo", "exec_hi", "hw_id", "hw_id1", "hw_id2")
        wave.registers = {name: value for name, value in wave.registers.items() if name in keep}
        wave.state.append("it ended while it was read")
    wave.registers = {name: value for name, value in wave.registers.items() if value != UNREAD}


def _guess(wave: Wave) -> str:
    """The generation, by which registers a wave has: HW_ID of gfx9 became two, and STATE_PRIV is of gfx12."""
    names = wave.registers
    if "state_priv" in names:
        return "gfx1200"
    if "hw_id1" in names:
        return "gfx1030" if "inst_dw0" in names else "gfx1100"
    return "gfx900" if "hw_id" in names or "inst_dw1" in names else ""
