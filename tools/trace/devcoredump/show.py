"""A devcoredump for a person and for a program.

In       a Dump
Out      lines: the GPU, the fault, what hangs, rings around their read pointers, buffers, registers; the same as data
Next     place.py (where the GPU stands), dump.py (the text)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hcq.amd.abi import registers
from hcq.amd.abi.page_fault import (
    GFXHUB_CLIENTS,
    PAGE_BYTES,
    ProtectionFaultStatus,
    describe_client,
    describe_permission,
)
from hcq.amd.chip import Chip
from hcq.layout import SparsePacket
from hcq.tools.trace.amd_words import Piece, pieces
from hcq.tools.trace.color import Color, clean, counted
from hcq.tools.trace.devcoredump import place
from hcq.tools.trace.devcoredump.dump import Buffer, Dump, Group, Register
from hcq.tools.trace.devcoredump.place import Stuck, Window

SHOWN_BEFORE, SHOWN_AFTER = 4, 12  # packets of a ring; of a buffer around the marked one
SHOWN_BUFFER = 24  # packets of a buffer in which none is marked
LONGEST = 240  # characters of a packet
RING_TYPES = (
    "gfx compute sdma uvd vce uvd_enc vcn_dec vcn_enc vcn_jpeg vpe kiq mes umsch_mm"  # amdgpu_ring.h
).split()
ALL_ONES = 0xFFFFFFFF


# ------------------------------------------------------------ for a person


def lines(dump: Dump, color: Color, named: str = "") -> Iterator[str]:
    """All of it as text. named: the GPU, where the command line says it. Raises UsageError for a name that is none."""
    chip, doubt = place.chip_of(dump, named)
    found = place.stuck(dump, chip)
    yield from _head(dump, color)
    yield from _fault(dump, color)
    yield from _what_hangs(dump, found, chip, color)
    for ring in dump.rings:
        yield from _ring(place.window(ring, chip), found, color)
    for buffer in dump.buffers:
        yield from _buffer(buffer, found, chip, dump, color)
    yield from _registers(dump, color)
    yield ""
    for note in (*([doubt] if doubt else []), *dump.notes):
        yield clean(note)
    if dump.others:
        yield f"{counted(dump.others, 'line')} of the text belong to no section that is known"


def _head(dump: Dump, color: Color) -> Iterator[str]:
    chip = dump.chip or (
        f"GC {dump.blocks['GC']}, no GPU that is known" if "GC" in dump.blocks else "an unknown GPU"
    )
    device = f", PCI id {dump.soc['device id']:#06x}" if "device id" in dump.soc else ""
    yield f"{color('devcoredump of amdgpu', 'heading')}: {color(chip, 'packet')}{device}"
    told = dict(dump.head)
    if "pid" in told:
        told["process"] = f"{told.pop('process', '?')} (pid {told['pid']})"
    told.pop("pid", None)
    said = [f"{name} {told[name]}" for name in ("kernel", "time", "process") if told.get(name)]
    if said:
        yield f"  {clean(', '.join(said))}"
    if dump.blocks:
        yield f"  blocks    {clean(', '.join(f'{name} {version}' for name, version in dump.blocks.items()))}"
    firmware = {name: number for name, number in dump.firmware.items() if number}
    if firmware:
        yield f"  firmware  {clean(', '.join(f'{name} {number:#x}' for name, number in firmware.items()))}"
    sizes = [f"{name[:-5]} {dump.soc[name] >> 20} MiB" for name in dump.soc if name.endswith(" size")]
    if sizes:
        yield f"  memory    {', '.join(sizes)}"
    if dump.vram == "lost":
        yield "  " + color("the contents of VRAM were lost in the reset: every buffer there is gone", "wrong")
    elif dump.vram:
        yield "  whether VRAM was lost is not said: the dump was taken before the reset"


def _fault(dump: Dump, color: Color) -> Iterator[str]:
    if dump.fault_address is None and dump.fault_status is None:
        return
    if not dump.has_fault:
        yield "  page fault: none"
        return
    yield "  " + color(f"page fault: {fault_sentence(dump)}", "wrong")
    yield color("            it is the last one that the GPU had, and may be older than the hang", "note")


def fault_sentence(dump: Dump) -> str:
    """What the fault was."""
    address, word = dump.fault_address or 0, dump.fault_status or 0
    hub = f" ({dump.fault_hub})" if dump.fault_hub else ""
    if not word:
        return f"of the page at {address:#x}{hub}; no status word says more"
    status = ProtectionFaultStatus.decode([word])
    client = client_name(dump, status)
    access = "a write" if status.rw else "a read"
    return (
        f"{access} of the page at {address:#x} by {describe_client(client)}, VMID {status.vmid}{hub}:"
        f" {describe_permission(status)} (status {word:#x})"
    )


def client_name(dump: Dump, status: ProtectionFaultStatus) -> str:
    """Who asked: by the table of the generation's gfxhub, else its number."""
    family = dump.family
    table = (
        GFXHUB_CLIENTS["gfx9" if family == 9 else "gfx10"] if family and "mm" not in dump.fault_hub else {}
    )
    return table.get(int(status.cid), f"client {int(status.cid):#x}")


def _what_hangs(dump: Dump, found: Stuck | None, chip: Chip, color: Color) -> Iterator[str]:
    yield ""
    if dump.timed_out:
        number = dump.timed_out_type
        kind = RING_TYPES[number] if number is not None and number < len(RING_TYPES) else f"type {number}"
        yield f"{color('timed out', 'heading')}: ring {color(dump.timed_out, 'kernel')} ({kind})"
        if dump.rings and not any(ring.name == dump.timed_out for ring in dump.rings):
            yield "  it is not among the rings of the text"
    if found is None:
        yield "no ring has packets that are not done" if dump.rings else "the text has no rings"
        return
    yield f"{color('hangs at', 'heading')}:  {color(_text(found.piece), 'wrong')}"
    yield f"  {where(found)}: {found.why}"
    if found.buffer is not None or found.form != "pm4":
        return
    for group in dump.groups:
        for name, words in place.headers(group).items():
            for buffer in dump.buffers:
                last = place.ends_at(words, pieces(buffer.words, place.inner_form(found.form), chip))
                if last is not None:
                    yield (
                        f"  {clean(name)}: the last headers are those up to {_text(last)},"
                        f" word {last.at} of IB #{buffer.number}"
                    )


def where(found: Stuck) -> str:
    """The place of the packet that hangs in words."""
    if found.buffer is not None:
        outside = "behind" if found.at < 0 else "at"
        return (
            f"word {found.buffer_at} of IB #{found.buffer.number} at {found.buffer.va:#x}, which the packet"
            f" {outside} the read pointer of ring {clean(found.ring.name)} runs"
        )
    at = found.ring.rptr + found.at & found.ring.mask
    return f"word {at:#x} (offset {4 * at:#x}) of ring {clean(found.ring.name)}"


def _text(piece: Piece) -> str:
    text = clean(piece.line())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _ring(seen: Window, found: Stuck | None, color: Color) -> Iterator[str]:
    ring = seen.ring
    yield ""
    said = ""
    if ring.has_pointers:
        said = (
            f"read {ring.rptr & ring.mask:#x}, write {ring.wptr & ring.mask:#x} of {ring.mask + 1:#x} words"
        )
        said += f" ({ring.rptr:#x}, {ring.wptr:#x})" if ring.rptr > ring.mask or ring.wptr > ring.mask else ""
        said += f", {counted(seen.pending, 'word')} not done" if seen.pending else ", idle"
    yield f"{color('ring ' + ring.name, 'heading')} {said}".rstrip()
    if seen.note:
        yield f"  {clean(seen.note)}"
    for one in seen.done[-SHOWN_BEFORE:]:
        yield "   " + _line(ring.rptr + one.at & ring.mask, one, color, "done")
    shown = seen.ahead[:SHOWN_AFTER]
    for number, one in enumerate(shown):
        is_marked = found is not None and found.ring is ring and found.buffer is None and found.at == one.at
        yield _mark(is_marked, number == 0) + _line(ring.rptr + one.at & ring.mask, one, color, "", is_marked)
    last = shown[-1] if shown else None
    end = last.at + len(last.words) * last.times if last else 0
    if seen.form and seen.pending > end:
        yield f"   and {counted(seen.pending - end, 'word')} more to the write pointer"


def _mark(is_marked: bool, is_first: bool) -> str:
    return "=> " if is_marked else "-> " if is_first else "   "


def _line(at: int, piece: Piece, color: Color, note: str = "", is_marked: bool = False) -> str:
    text = _text(piece)
    style = "wrong" if is_marked or not piece.is_known else "note" if note else "buffer"
    return f"{at:6x}  {color(text, style)}" + (f"  {color(note, 'note')}" if note else "")


def _buffer(buffer: Buffer, stuck: Stuck | None, chip: Chip, dump: Dump, color: Color) -> Iterator[str]:
    form = buffer_form(dump, stuck)
    found = pieces(buffer.words, form, chip)
    yield ""
    yield f"{color(f'IB #{buffer.number}', 'heading')} at {buffer.va:#x}, {counted(buffer.size, 'word')}"
    marked = next(
        (
            n
            for n, one in enumerate(found)
            if stuck is not None and stuck.buffer is buffer and stuck.buffer_at == one.at
        ),
        None,
    )
    first = 0 if marked is None else max(0, marked - SHOWN_BEFORE)
    shown = found[first : first + (SHOWN_BUFFER if marked is None else SHOWN_BEFORE + SHOWN_AFTER)]
    if first:
        yield f"   {counted(first, 'packet')} before"
    for number, one in enumerate(shown, first):
        yield _mark(number == marked, False) + _line(one.at, one, color, is_marked=number == marked)
    if first + len(shown) < len(found):
        yield f"   and {counted(len(found) - first - len(shown), 'packet')} more"


def buffer_form(dump: Dump, stuck: Stuck | None) -> str:
    """The language of the job's buffers: that of the ring that timed out."""
    form = place.language(dump.timed_out) or (stuck.form if stuck is not None else "pm4")
    return place.inner_form(form)


def _registers(dump: Dump, color: Color) -> Iterator[str]:
    silent = zeros = 0
    for group in dump.groups:
        told = [one for one in group.registers if one.value and not one.name.endswith("HEADER_DUMP")]
        dumps = {name: words for name, words in place.headers(group).items() if any(words)}
        zeros += len(group.registers) - len(told)
        if not told and not dumps:
            silent += 1
            continue
        yield ""
        yield color(" ".join(filter(None, ("registers", group.block, group.place))), "heading")
        if len(told) > 3 and all(one.value == ALL_ONES for one in told):
            yield "  all ones: the GPU was off the bus, or asleep, when they were read"
            continue
        width = max((len(one.name) for one in told), default=0)
        for one in told:
            name = clean(one.name) or f"register {one.at:#x}"
            yield f"  {name:<{width}} {one.value:#010x}{_fields(one)}"
        for name, words in dumps.items():
            yield f"  {clean(name)}: {', '.join(map(place.header_name, words))}"
    if zeros:
        yield f"  ({counted(zeros, 'register')} that are 0, and dumps of headers, are not listed one by one)"


def layout_of(name: str) -> type[SparsePacket] | None:
    """The fields of a register, by its name with or without reg or mm; None where none are declared here."""
    bare = name.removeprefix("reg").removeprefix("mm")
    if bare.removesuffix("_LO32").endswith("L2_PROTECTION_FAULT_STATUS"):
        return ProtectionFaultStatus
    for names, layouts in (
        (registers.Register, registers.LAYOUTS),
        (registers.UconfigRegister, registers.UCONFIG_LAYOUTS),
    ):
        if bare in names.__members__:
            return layouts.get(int(names[bare]))
    return None


def _fields(register: Register) -> str:
    layout = layout_of(register.name)
    return "" if layout is None else f"  {', '.join(layout.decode([register.value]).texts())}"


# ------------------------------------------------------------ for a program


def as_json(dump: Dump, named: str = "") -> dict[str, Any]:
    """The same as data; every register, and the packets around the read pointers. Raises UsageError as `lines` does."""
    chip, doubt = place.chip_of(dump, named)
    found = place.stuck(dump, chip)
    form = buffer_form(dump, found)
    fault = None
    if dump.has_fault:
        status = ProtectionFaultStatus.decode([dump.fault_status or 0])
        fault = {
            "hub": dump.fault_hub,
            "address": (dump.fault_address or 0) // PAGE_BYTES * PAGE_BYTES,
            "status": dump.fault_status,
            "fields": {name: int(value) for name, value in status.values.items()},
            "client": client_name(dump, status),
            "sentence": fault_sentence(dump),
        }
    return {
        "kind": "amdgpu devcoredump",
        "chip": dump.chip,
        "decoded_as": chip.arch,
        "head": dump.head,
        "soc": dump.soc,
        "blocks": dump.blocks,
        "firmware": dump.firmware,
        "timed_out": dump.timed_out,
        "timed_out_type": dump.timed_out_type,
        "fault": fault,
        "vram": dump.vram,
        "stuck": None if found is None else stuck_json(found),
        "rings": [_ring_json(place.window(ring, chip)) for ring in dump.rings],
        "buffers": [
            {
                "number": one.number,
                "va": one.va,
                "size_words": one.size,
                "packets": [piece.as_json() for piece in pieces(one.words, form, chip)],
            }
            for one in dump.buffers
        ],
        "registers": [_group_json(group) for group in dump.groups],
        "unknown_lines": dump.others,
        "notes": [*([doubt] if doubt else []), *dump.notes],
    }


def stuck_json(found: Stuck) -> dict[str, Any]:
    """Where the GPU stands."""
    return {
        "ring": found.ring.name,
        "at": found.ring.rptr + found.at & found.ring.mask,
        "buffer": None if found.buffer is None else found.buffer.number,
        "buffer_va": None if found.buffer is None else found.buffer.va,
        "buffer_at": found.buffer_at,
        "packet": found.piece.as_json(),
        "why": found.why,
    }


def _ring_json(seen: Window) -> dict[str, Any]:
    ring = seen.ring
    return {
        "name": ring.name,
        "form": seen.form,
        "rptr": ring.rptr,
        "wptr": ring.wptr,
        "size_words": ring.mask + 1 if ring.has_pointers else ring.size,
        "pending": seen.pending,
        "done": [one.as_json() for one in seen.done],
        "packets": [one.as_json() for one in seen.ahead],
        "note": seen.note,
    }


def _group_json(group: Group) -> dict[str, Any]:
    found = []
    for one in group.registers:
        layout = layout_of(one.name)
        fields = (
            {} if layout is None else {name: int(v) for name, v in layout.decode([one.value]).values.items()}
        )
        found.append({"name": one.name, "at": one.at, "value": one.value, "fields": fields})
    return {"block": group.block, "place": group.place, "registers": found}
