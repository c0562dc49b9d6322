"""The text of an amdgpu devcoredump, of every version since Linux 6.0, whole, cut, quoted or damaged.

In       the bytes of a file
Out      Dump: what its sections say; `notes` for what is missing or contradicts itself
Next     place.py (what the rings' words are), show.py
Source   amdgpu_dev_coredump.c of Linux' amdgpu, and the ip_print functions of gfx_v9_0.c, gfx_v9_4_3.c, gfx_v10_0.c,
         gfx_v11_0.c, gfx_v12_0.c, sdma_v6_0.c, vcn_v4_0.c; kfd_device.c: which GPU has which version of GC

Sections are told by their lines and not by their order, which changed. A line that fits nothing is counted. Nothing
raises; time and memory are in proportion to the text, of which no more than MAX_BYTES are read.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_BYTES = 1 << 26
MAX_WORDS = 1 << 23  # of all rings and buffers
MAX_REGISTERS = 1 << 17
MAX_RINGS = 1 << 10
MAX_NOTES = 12
_LONGEST_LINE = 1024

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# two of these tell a dump whose head was cut off from everything else
_MARKS = (
    re.compile(rb"^[> ]*Ring buffer information\s*$", re.M),
    re.compile(rb"^[> ]*Rptr: 0x[0-9a-f]+ Wptr: 0x[0-9a-f]+ RB mask: ", re.M),
    re.compile(rb"^[> ]*ring name: \w", re.M),
    re.compile(rb"^[> ]*HWIP: \w+\[\d+\]\[\d+\]: v\d", re.M),
    re.compile(rb"^[> ]*IP: (?:gfx|sdma|vcn|jpeg)_v\d", re.M),
    re.compile(rb"^[> ]*Ring timed out details\s*$", re.M),
    re.compile(rb"^[> ]*(?:Protection fault status register: 0x|SOC Device id: \d)", re.M),
)
_HEAD = re.compile(rb"^[> ]*\*{4} AMDGPU Device Coredump \*{4}", re.M)
_LOOKED_AT = 1 << 20  # of the bytes, for the marks

# version of GC -> GPU: kfd_device.c
CHIP_OF_GC = {
    "9.0.1": "gfx900",
    "9.2.1": "gfx904",
    "9.1.0": "gfx902",
    "9.2.2": "gfx902",
    "9.3.0": "gfx90c",
    "9.4.0": "gfx906",
    "9.4.1": "gfx908",
    "9.4.2": "gfx90a",
    "9.4.3": "gfx942",
    "9.4.4": "gfx942",
    "9.5.0": "gfx950",
    "10.1.10": "gfx1010",
    "10.1.2": "gfx1011",
    "10.1.1": "gfx1012",
    "10.1.3": "gfx1013",
    "10.1.4": "gfx1013",
    "10.3.0": "gfx1030",
    "10.3.2": "gfx1031",
    "10.3.4": "gfx1032",
    "10.3.1": "gfx1033",
    "10.3.5": "gfx1034",
    "10.3.3": "gfx1035",
    "10.3.6": "gfx1036",
    "10.3.7": "gfx1036",
    "11.0.0": "gfx1100",
    "11.0.3": "gfx1101",
    "11.0.2": "gfx1102",
    "11.0.1": "gfx1103",
    "11.0.4": "gfx1103",
    "11.5.0": "gfx1150",
    "11.5.1": "gfx1151",
    "11.5.2": "gfx1152",
    "11.5.3": "gfx1153",
    "12.0.0": "gfx1200",
    "12.0.1": "gfx1201",
    "12.1.0": "gfx1250",
}


@dataclass
class Ring:
    """A ring as it stood. Pointers count words, and may have run on past its end.

    words  by their place in the ring; those in `holes`, from one place to before another, are not in the text
    """

    name: str
    rptr: int = 0
    wptr: int = 0
    mask: int = 0
    size: int = 0
    has_pointers: bool = False
    words: array[int] = field(default_factory=lambda: array("I"))
    holes: list[tuple[int, int]] = field(default_factory=list)

    def knows(self, at: int) -> bool:
        """Whether the text has the word at this place."""
        return 0 <= at < len(self.words) and not any(first <= at < end for first, end in self.holes)


@dataclass
class Buffer:
    """An indirect buffer of the job: `size` words, as many of them as the text has."""

    number: int
    va: int
    size: int
    words: array[int] = field(default_factory=lambda: array("I"))


@dataclass
class Register:
    """A register; `at` is its address where the text has no name. A name that comes again dumps several words."""

    name: str
    value: int
    at: int | None = None


@dataclass
class Group:
    """Registers under one heading: of a block, and perhaps of one instance, or one queue."""

    block: str
    place: str
    registers: list[Register] = field(default_factory=list)


@dataclass
class Dump:
    """What the text says; what it does not say is empty or None."""

    head: dict[str, str] = field(default_factory=dict)
    soc: dict[str, int] = field(default_factory=dict)
    blocks: dict[str, str] = field(default_factory=dict)  # of the hardware: GC -> 11.0.0
    firmware: dict[str, int] = field(default_factory=dict)
    vbios: dict[str, str] = field(default_factory=dict)
    timed_out: str = ""  # name of the ring
    timed_out_type: int | None = None
    fault_hub: str = ""
    fault_address: int | None = None
    fault_status: int | None = None
    vram: str = ""  # "lost", "unchecked"
    groups: list[Group] = field(default_factory=list)
    rings: list[Ring] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    others: int = 0  # lines that belong to no section
    notes: list[str] = field(default_factory=list)

    @property
    def chip(self) -> str:
        """The GPU, such as gfx1100; "" where the text does not say."""
        return CHIP_OF_GC.get(self.blocks.get("GC", ""), "")

    @property
    def family(self) -> int:
        """9, 10, 11, 12; 0 where the text does not say. By the version of GC, else by the name of its block."""
        first = self.blocks.get("GC", "").partition(".")[0]
        if not first:
            found = next((one.block for one in self.groups if one.block.startswith("gfx_v")), "")
            first = found.removeprefix("gfx_v").partition("_")[0]
        return int(first) if first in ("9", "10", "11", "12") else 0

    @property
    def has_fault(self) -> bool:
        """Whether there was a page fault: the lines are always there, with zeros for none."""
        return bool(self.fault_address or self.fault_status)


def recognises(content: bytes) -> bool:
    """Whether these bytes are such a dump, or what is left of one."""
    head = content[:_LOOKED_AT]
    return bool(_HEAD.search(head)) or sum(bool(mark.search(head)) for mark in _MARKS) >= 2


def read(content: bytes) -> Dump:
    """What a text says."""
    made = _Text()
    if len(content) > MAX_BYTES:
        made.note(f"{len(content) - MAX_BYTES} bytes behind the first {MAX_BYTES} are left out")
    for line in content[:MAX_BYTES].decode("utf-8", "replace").split("\n"):
        made.line(line)
    made.end()
    return made.dump


def _number(text: str) -> int:
    return int(text, 16) if text[:2] in ("0x", "0X") else int(text)


_HEX = r"(?:0x)?([0-9a-fA-F]{1,16})"
_REGISTER = re.compile(r"(\w{2,80})\s+0x([0-9a-fA-F]{1,8})$")


class _Text:
    """Line after line. `ring` and `buffer` are those whose words come now."""

    def __init__(self) -> None:
        self.dump = Dump()
        self.ring: Ring | None = None
        self.buffer: Buffer | None = None
        self.words = self.registers = self.left_out = 0
        self.in_vbios = self.in_rings = False
        self.missed = 0

    def note(self, text: str) -> None:
        """One sentence; not too many of them."""
        if len(self.dump.notes) < MAX_NOTES:
            self.dump.notes.append(text)
        else:
            self.missed += 1

    def line(self, line: str) -> None:
        parts = line.split(None, 3)
        if len(parts) == 2 and parts[0][:2] == "0x" and parts[1][:2] == "0x" and self.ring is not None:
            try:  # nearly all lines are such
                return self._word(self.ring, int(parts[0], 16), int(parts[1], 16))
            except ValueError:
                pass
        text = _COLOURS.sub("", line[:_LONGEST_LINE]).replace("\u00a0", " ").strip("> \t\r")
        if not text:
            return
        for form, take in _FORMS:
            if found := form.match(text):
                take(self, found)
                return
        self.dump.others += 1

    def end(self) -> None:
        """Say what is missing."""
        dump = self.dump
        for ring in dump.rings:
            size = ring.size or ring.mask + 1 if ring.has_pointers else ring.size
            absent = size - len(ring.words) + sum(end - first for first, end in ring.holes)
            if size and absent > 0:
                self.note(f"ring {ring.name}: {absent} of its {size} words are not in the text")
            if not ring.has_pointers:
                self.note(f"ring {ring.name}: its pointers are not in the text")
        for buffer in dump.buffers:
            if len(buffer.words) < buffer.size:
                self.note(
                    f"IB #{buffer.number}: {buffer.size - len(buffer.words)} of its {buffer.size} words are not in"
                    " the text"
                )
        if self.left_out:
            self.note(f"{self.left_out} words or registers are left out: the text has too many")
        if self.missed:
            dump.notes.append(f"and {self.missed} more such notes")

    # ------------------------------------------------------------ words

    def _word(self, ring: Ring, offset: int, value: int) -> None:
        at, count = offset >> 2, len(ring.words)
        most = max(ring.size, ring.mask + 1)
        if offset & 3 or value > 0xFFFFFFFF or at >= most:
            self.dump.others += 1
            return
        if at < count:
            if ring.knows(at) and ring.words[at] != value:
                self.note(f"ring {ring.name}: the word at {offset:#x} stands there twice, and differs")
            return
        if self.words + at + 1 - count > MAX_WORDS:
            self.left_out += 1
            return
        if at > count:
            ring.holes.append((count, at))
            ring.words.extend([0] * (at - count))
        ring.words.append(value)
        self.words += at + 1 - count

    def _pair(self, found: re.Match[str]) -> None:
        if self.ring is not None:
            self._word(self.ring, int(found[1], 16), int(found[2], 16))
        elif self.in_rings:
            self.dump.others += 1  # words of a ring whose name is not there
        else:
            self._register("", int(found[2], 16), int(found[1], 16))

    def _single(self, found: re.Match[str]) -> None:
        buffer = self.buffer
        if buffer is None or len(buffer.words) >= buffer.size:
            self.dump.others += 1
        elif self.words >= MAX_WORDS:
            self.left_out += 1
        else:
            buffer.words.append(int(found[1], 16))
            self.words += 1

    # ------------------------------------------------------------ sections

    def _head(self, found: re.Match[str]) -> None:
        if self.dump.head or self.dump.rings or self.dump.groups:
            self.note("a second dump begins in this text: they are read as one")

    def _said(self, found: re.Match[str]) -> None:
        name = found[1]
        if name == "version" and self.in_vbios:
            self.dump.vbios.setdefault(name, found[2])
        else:
            self.dump.head.setdefault(name, found[2])

    def _process(self, found: re.Match[str]) -> None:
        self.dump.head.setdefault("process", found[1])
        self.dump.head.setdefault("pid", found[2])

    def _soc(self, found: re.Match[str]) -> None:
        name, number = found[1].lower(), _number(found[2])
        if name == "visible vram size" and name in self.dump.soc:
            name = "gtt size"  # the first versions call it so
        self.dump.soc.setdefault(name, number)

    def _hwip(self, found: re.Match[str]) -> None:
        self.dump.blocks.setdefault(found[1], ".".join(found[2].split(".")[:3]))

    def _firmware(self, found: re.Match[str]) -> None:
        self.dump.firmware.setdefault(found[1].strip(), _number(found[2]))

    def _vbios(self, found: re.Match[str]) -> None:
        self.in_vbios = True

    def _timed_out(self, found: re.Match[str]) -> None:
        self.dump.timed_out_type, self.dump.timed_out = int(found[1]), found[2]

    def _hub(self, found: re.Match[str]) -> None:
        self.dump.fault_hub = found[1]

    def _address(self, found: re.Match[str]) -> None:
        self.dump.fault_address = int(found[1], 16)

    def _status(self, found: re.Match[str]) -> None:
        self.dump.fault_status = int(found[1], 16) & 0xFFFFFFFF

    def _block(self, found: re.Match[str]) -> None:
        self._leave()
        self.dump.groups.append(Group(found[1], ""))

    def _place(self, found: re.Match[str]) -> None:
        block = self.dump.groups[-1].block if self.dump.groups else ""
        if len(self.dump.groups) < MAX_REGISTERS:
            self.dump.groups.append(Group(block, " ".join(found[0].split())))

    def _named(self, found: re.Match[str]) -> None:
        self._register(found[1], int(found[2], 16))

    def _register(self, name: str, value: int, at: int | None = None) -> None:
        if self.registers >= MAX_REGISTERS:
            self.left_out += 1
            return
        if not self.dump.groups:
            self.dump.groups.append(Group("", ""))
        self.dump.groups[-1].registers.append(Register(name, value, at))
        self.registers += 1

    def _rings(self, found: re.Match[str]) -> None:
        self._leave()
        self.in_rings = True

    def _ring(self, found: re.Match[str]) -> None:
        self._leave()
        self.in_rings = True
        if len(self.dump.rings) < MAX_RINGS:
            self.ring = Ring(found[1])
            self.dump.rings.append(self.ring)

    def _pointers(self, found: re.Match[str]) -> None:
        if self.ring is None or self.ring.has_pointers:  # the line with its name is not there
            self._leave()
            self.ring = Ring(f"unnamed {len(self.dump.rings)}")
            self.dump.rings.append(self.ring)
        ring, mask = self.ring, int(found[3], 16)
        ring.rptr, ring.wptr, ring.has_pointers = int(found[1], 16), int(found[2], 16), True
        if mask & mask + 1 or mask >= MAX_WORDS:
            self.note(f"ring {ring.name}: a mask of {mask:#x} is none")
        else:
            ring.mask = mask

    def _size(self, found: re.Match[str]) -> None:
        if self.ring is not None:
            self.ring.size = min(int(found[1]), MAX_WORDS)
            if self.ring.has_pointers and self.ring.mask + 1 != self.ring.size:
                self.note(f"ring {self.ring.name}: its mask and its size, {self.ring.size}, contradict")

    def _lost(self, found: re.Match[str]) -> None:
        self._leave()
        self.dump.vram = "lost" if "lost due" in found[0] else "unchecked"

    def _buffer(self, found: re.Match[str]) -> None:
        self._leave()
        if len(self.dump.buffers) < MAX_RINGS:
            self.buffer = Buffer(int(found[1]), int(found[2], 16), min(int(found[3]), MAX_WORDS))
            self.dump.buffers.append(self.buffer)

    def _leave(self) -> None:
        self.ring = self.buffer = None
        self.in_vbios = False

    def _ignore(self, found: re.Match[str]) -> None:
        pass


_Take = Callable[[_Text, re.Match[str]], None]


def _form(pattern: str, take: _Take) -> tuple[re.Pattern[str], _Take]:
    return re.compile(pattern), take


_FORMS: tuple[tuple[re.Pattern[str], _Take], ...] = (
    _form(r"0x([0-9a-fA-F]{1,8})$", _Text._single),
    _form(r"0x([0-9a-fA-F]{1,8}):?\s+0x([0-9a-fA-F]{1,8})$", _Text._pair),
    _form(_REGISTER.pattern, _Text._named),
    _form(r"\*{4} AMDGPU Device Coredump \*{4}$", _Text._head),
    _form(r"process_name: (.{0,64}) PID: (\d{1,10})$", _Text._process),
    _form(r"(version|kernel|module|time): ?(.{0,200})$", _Text._said),
    _form(
        r"(?:SOC )?(Device id|PCI Revision id|Family|Revision id|External Revision id|real vram size|"
        r"visible vram size|gtt size): (\d{1,20})$",
        _Text._soc,
    ),
    _form(r"gds: .{1,60}$", _Text._ignore),
    _form(r"HWIP: (\w{1,32})\[\d+\]\[\d+\]: v(\d{1,3}(?:\.\d{1,3}){2,4})$", _Text._hwip),
    _form(
        r"([\w /]{1,32}?) feature version: \d+, (?:fw|firmware) version: (0x[0-9a-fA-F]{1,8})",
        _Text._firmware,
    ),
    _form(
        r"([\w /]{1,32}?) feature version: \d+, program: \d+, fw version: (0x[0-9a-fA-F]{1,8})",
        _Text._firmware,
    ),
    _form(r"VBIOS Information", _Text._vbios),
    _form(r"(?:name|pn|date|vbios \w+)\s*: ?.{0,120}$", _Text._ignore),
    _form(r"IP Type: (\d{1,3}) Ring Name: (\S{1,64})$", _Text._timed_out),
    _form(r"\[(\w{1,16})\] Page fault observed$", _Text._hub),
    _form(rf"Faulty page starting at address: {_HEX}$", _Text._address),
    _form(r"Protection fault status register: (?:0x)?([0-9a-fA-F]{1,8})$", _Text._status),
    _form(r"IP: (\w{1,32})$", _Text._block),
    _form(r"(?:xcc:\d+ )?(?:mec|me)[ :]?\d+, ?pipe[ :]?\d+, ?queue[ :]?\d+$", _Text._place),
    _form(r"I(?:nstance|NSTANCE)(?: id)?:\s?\d+", _Text._place),
    _form(r"(?:num_\w+:? ?\d+ ?)+$|Number of Instances:\d+$", _Text._ignore),
    _form(r"Ring buffer information$", _Text._rings),
    _form(r"ring name: (\S{1,64})$", _Text._ring),
    _form(rf"Rptr: {_HEX} Wptr: {_HEX} RB mask: {_HEX}$", _Text._pointers),
    _form(r"Ring size in dwords: (\d{1,10})$", _Text._size),
    _form(r"VRAM is lost due to GPU reset|VRAM lost check is skipped", _Text._lost),
    _form(r"IB #(\d{1,6}) 0x([0-9a-fA-F]{1,16}) (\d{1,10}) dw$", _Text._buffer),
    _form(
        r"(?:SOC Information|SOC Memory Information|GDS Config|HW IP Version Information|IP Firmwares|"
        r"Ring timed out details|IP Dump|Ring contents|Offset\s+Value|AMDGPU register dumps:|Offset:\s+Value:)$",
        _Text._ignore,
    ),
)
