"""A CUDA coredump in words: what stopped the GPU, in which kernel and thread, and where all other warps were.

In       a CoreFile
Out      Core: devices, grids, stops (alike ones together), groups of warps; lines for people, data for JSON
Next     core_file.py (the tables), tables.py (exceptions in words)
Source   as core_file.py; CUDBGGridStatus and CUDBGKernelOrigin of cudadebugger.h
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from hcq.tools.trace.color import Color, clean, counted
from hcq.tools.trace.cuda import tables
from hcq.tools.trace.cuda.core_file import CoreFile, Kernel, Row, Section

# a PC so far behind an entry may be of its function, when the image does not say its size
FUNCTION_BYTES = 1 << 24
MOST_SHOWN = 12
PARENTS = ("devices", "contexts", "modules", "SMs", "blocks", "warps")
MOST_PLACES = 32  # of alike warps that are named in JSON


@dataclass
class Group:
    """Warps that are alike. exception: 0 for those that have none; `first` is the thread that is named."""

    exception: int
    kernel: str
    grid: int
    pc: int
    error_pc: int | None
    warps: int = 0
    sms: list[int] = field(default_factory=list)
    blocks: list[tuple[int, ...]] = field(default_factory=list)
    first: dict[str, Any] = field(default_factory=dict)


@dataclass
class Core:
    """What a coredump says."""

    meta: dict[str, Any] = field(default_factory=dict)
    devices: list[dict[str, Any]] = field(default_factory=list)
    grids: list[dict[str, Any]] = field(default_factory=list)
    contexts: list[Row] = field(default_factory=list)
    stops: list[Group] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    sections: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read(content: bytes) -> Core:
    """A coredump; nothing raises, whatever the file is."""
    return _Reader(CoreFile(content)).core


class _Reader:
    def __init__(self, file: CoreFile) -> None:
        self.file = file
        self.core = Core(notes=file.notes)
        self.kernels: dict[int, list[Kernel]] = {}  # by handle of their module
        self.tables: dict[int, list[Row]] = {}
        self.grids: dict[int, dict[str, Any]] = {}
        self.groups: dict[tuple[Any, ...], Group] = {}
        self.meta()
        self.devices()
        self.modules()
        self.list_grids()
        self.warps()
        self.sm_exceptions()
        found = sorted(self.groups.values(), key=lambda one: -one.warps)
        self.core.stops += [one for one in found if one.exception]
        self.core.groups = [one for one in found if not one.exception]
        self.list_sections()

    def table(self, index: int) -> list[Row]:
        """The rows of the section with this number; none for one that is no table."""
        if index not in self.tables:
            sections = self.file.sections
            section = sections[index] if index < len(sections) else None
            is_table = section is not None and section.kind in PARENTS
            self.tables[index] = list(self.file.rows(section)) if section is not None and is_table else []
        return self.tables[index]

    def parent(self, section: Section) -> tuple[Row, Section | None]:
        """The row that a section belongs to, and the section of that row."""
        rows = self.table(section.link)
        if section.info < len(rows):
            return rows[section.info], self.file.sections[section.link]
        self.file.note(
            f"{section.name}: its parent, row {section.info} of section {section.link}, is not there"
        )
        return {}, None

    def meta(self) -> None:
        for section in self.file.of("meta data"):
            for row in self.file.rows(section):
                seconds = row.get("timestamp", 0)
                made = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc) if seconds else None
                self.core.meta = {
                    "generator": self.file.string(row.get("generatorName", 0)),
                    "driver": f"{row.get('driverVersionMajor', 0)}.{row.get('driverVersionMinor', 0):02}",
                    "cuda": f"{row.get('cudaDriverVersionMajor', 0)}.{row.get('cudaDriverVersionMinor', 0)}",
                    "flags": row.get("flags", 0),
                    "made": made.isoformat() if made else "",
                }

    def devices(self) -> None:
        for section in self.file.of("devices"):
            for row in self.table(section.number):
                names: dict[str, Any] = {
                    key: self.file.string(row[key]) for key in ("devName", "devType", "smType") if key in row
                }
                self.core.devices.append({**row, **names})
        for section in self.file.of("contexts"):
            self.core.contexts += self.table(section.number)

    def modules(self) -> None:
        for kind in ("relocated ELF image", "ELF image"):
            for section in self.file.of(kind):
                module, _ = self.parent(section)
                handle = module.get("moduleHandle", -1)
                if not self.kernels.get(handle):
                    self.kernels[handle] = self.file.kernels(section)

    def list_grids(self) -> None:
        for section in self.file.of("grids"):
            for row in self.file.rows(section):
                kernel = self.kernel_name(row)
                made: dict[str, Any] = {"kernel": kernel, **row, "device": section.info}
                self.core.grids.append(made)
                self.grids.setdefault(row.get("gridId64", 0), made)

    def kernel_name(self, grid: Row) -> str:
        """The function at a grid's entry, by the image of its module; "" where the file does not have it."""
        known = self.kernels.get(grid.get("moduleHandle", -1), [])
        entry = grid.get("functionEntry", 0)
        for one in known:
            if entry in one.starts and entry:
                return one.name
        for one in known:
            if any(start <= entry < start + one.size for start in one.starts if start):
                return one.name
        return known[0].name if len(known) == 1 else ""

    def warps(self) -> None:
        lanes: dict[tuple[int, int], list[Row]] = {}
        for section in self.file.of("lanes"):
            lanes[section.link, section.info] = list(self.file.rows(section))
        for section in self.file.of("warps"):
            block, above = self.parent(section)
            sm = self.parent(above)[0] if above else {}
            for at, warp in enumerate(self.table(section.number)):
                self.warp(warp, block, sm.get("smId", -1), lanes.get((section.number, at), []))

    def warp(self, warp: Row, block: Row, sm: int, lanes: list[Row]) -> None:
        grid = self.grids.get(block.get("gridId64", -1), {})
        bad = [lane for lane in lanes if lane.get("exception", 0) != tables.NONE]
        active = warp.get("activeLanesMask", 0)
        running = [one for one in lanes if active >> (one.get("ln", 0) & 31) & 1]
        first: Row = next(iter([*bad, *running]), {})
        pc = first.get("virtualPC", 0)
        error = warp.get("errorPC") if warp.get("errorPCValid") else None
        exception = first.get("exception", 0)
        key = exception, grid.get("gridId64"), pc, error
        group = self.groups.get(key)
        place = tuple(block.get(f"blockIdx{axis}", 0) for axis in "XYZ")
        if group is None:
            thread = tuple(first.get(f"threadIdx{axis}", 0) for axis in "XYZ")
            group = self.groups[key] = Group(
                exception, grid.get("kernel", ""), block.get("gridId64", 0), pc, error,
                first={"block": place, "thread": thread, "sm": sm, "warp": warp.get("warpId", -1),
                       "lane": first.get("ln", -1),
                       "valid_lanes": warp.get("validLanesMask", 0), "active_lanes": active},
            )  # fmt: skip
        group.warps += 1
        if sm not in group.sms and len(group.sms) < MOST_PLACES:
            group.sms.append(sm)
        if place not in group.blocks and len(group.blocks) < MOST_PLACES:
            group.blocks.append(place)

    def sm_exceptions(self) -> None:
        """Exceptions that an SM keeps though the warps that had them are gone."""
        told = {(one.exception, sm) for one in self.groups.values() if one.exception for sm in one.sms}
        for section in self.file.of("SMs"):
            for row in self.table(section.number):
                number = row.get("exception", 0)
                if number and (number, row.get("smId", -1)) not in told:
                    error = row.get("errorPC") if row.get("errorPCValid") else None
                    self.core.stops.append(Group(number, "", 0, 0, error, 0, [row.get("smId", -1)]))

    def list_sections(self) -> None:
        for one in self.file.sections:
            if one.number or one.type:
                self.core.sections.append(
                    {"index": one.number, "name": one.name, "kind": one.kind, "type": one.type, "bytes": one.size,
                     "address": one.address}
                )  # fmt: skip


# ------------------------------------------------------------ for people and programs


def lines(core: Core, color: Color) -> Iterator[str]:
    """What stopped, then the machine, the grids, all other warps, and the sections."""
    entries = {grid.get("gridId64", 0): grid.get("functionEntry", 0) for grid in core.grids}
    about = (
        f", driver {core.meta['driver']}, CUDA {core.meta['cuda']}, {core.meta['made']}" if core.meta else ""
    )
    yield clean(f"CUDA coredump{about}")
    yield color("what stopped" if core.stops else "no exception is recorded in it", "heading")
    for group in core.stops[:MOST_SHOWN]:
        words = tables.exception(group.exception)
        yield f"  {color(f'CUDA_EXCEPTION_{group.exception}, {words.title}', 'wrong')}: {_where(group, entries)}"
        for label, text in (("means", words.meaning), ("causes", words.causes), ("try", words.advice)):
            if text:
                yield f"    {label:7} {text}"
    if len(core.stops) > MOST_SHOWN:
        yield f"  and {len(core.stops) - MOST_SHOWN} more kinds"
    for device in core.devices:
        shape = f"{device.get('numSMs')} SMs, {device.get('numWarpsPerSM')} warps each"
        yield clean(f"device {device.get('devId')}  {device.get('devName')} {device.get('smType')}, PCI bus "
                    f"{device.get('pciBusId', 0):#x} device {device.get('pciDevId', 0):#x}, {shape}")  # fmt: skip
    for grid in core.grids[:MOST_SHOWN]:
        yield clean(
            f"grid {grid.get('gridId64')}  {grid['kernel'] or 'a kernel whose name is not in the file'}"
            f" at {grid.get('functionEntry', 0):#x}: {_triple(grid, 'gridDim')} blocks of {_triple(grid, 'blockDim')}, "
            f"{grid.get('numRegs')} registers"
        )
    if len(core.grids) > MOST_SHOWN:
        yield f"and {len(core.grids) - MOST_SHOWN} more grids"
    if core.groups:
        yield color("warps without an exception, alike ones together", "heading")
    for group in core.groups[:MOST_SHOWN]:
        yield f"  {_where(group, entries)}"
    if len(core.groups) > MOST_SHOWN:
        rest = sum(group.warps for group in core.groups[MOST_SHOWN:])
        yield f"  and {counted(rest, 'warp')} at {len(core.groups) - MOST_SHOWN} other places"
    yield from _section_lines(core)
    for note in core.notes:
        yield clean(f"note: {note}")


def _where(group: Group, entries: dict[int, int]) -> str:
    """Which warps, in words."""
    sms = ", ".join(map(str, group.sms[:8])) + (" and others" if len(group.sms) > 8 else "")
    if not group.warps:
        error = f", error at {group.error_pc:#x}" if group.error_pc is not None else ""
        return f"SM {sms} recorded it{error}; the warp that had it is gone"
    first = group.first
    entry = entries.get(group.grid, 0)
    name = group.kernel or f"grid {group.grid}"
    text = f"{counted(group.warps, 'warp')} of {name} on SM {sms}, at {_place(name, entry, group.pc)}"
    if group.error_pc is not None:
        text += f", which failed at {_place(name, entry, group.error_pc)}"
    text += f"; the first is block {first['block']}, thread {first['thread']}, warp {first['warp']} of SM {first['sm']}"
    text += f", lanes {first['active_lanes']:#x} of {first['valid_lanes']:#x} active"
    return clean(text)


def _place(name: str, entry: int, pc: int) -> str:
    return f"{pc:#x} ({name}+{pc - entry:#x})" if entry and 0 <= pc - entry < FUNCTION_BYTES else f"{pc:#x}"


def _triple(row: dict[str, Any], name: str) -> str:
    return f"({row.get(f'{name}X')}, {row.get(f'{name}Y')}, {row.get(f'{name}Z')})"


def _section_lines(core: Core) -> Iterator[str]:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    unknown = []
    for one in core.sections:
        if one["kind"]:
            counts[one["kind"]] += 1
            sizes[one["kind"]] += one["bytes"]
        elif one["type"] >= 0x80000000:
            unknown.append(one)
    yield f"{counted(len(core.sections), 'section')}: " + ", ".join(
        f"{count} of {kind} ({sizes[kind]} bytes)" for kind, count in counts.most_common()
    )
    for one in unknown[:MOST_SHOWN]:
        yield clean(
            f"  not known: section {one['index']} {one['name']!r}, type {one['type']:#x}, {one['bytes']} bytes"
        )
    if len(unknown) > MOST_SHOWN:
        yield f"  and {len(unknown) - MOST_SHOWN} more that are not known"


def as_json(core: Core) -> dict[str, Any]:
    """The same as data; each group with its exception in words."""
    data = asdict(core)
    for one in (*data["stops"], *data["groups"]):
        one["exception_name"] = tables.exception(one["exception"]).title if one["exception"] else ""
    return data
