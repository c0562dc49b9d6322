"""explain: what a number is that stands in a log or a packet, by the vendor's name, with its fields.

In       a number, and where it was found: a GPU of AMD's, a class of NVIDIA's, a trace; without, what it can be
Out      `Meaning`s: of which kind, its name, its fields and a sentence
Next     address.py (addresses of a trace), hcq/amd/abi/, hcq/nv/abi/ (every name and every field)
"""

from __future__ import annotations

import argparse
import errno
import json
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.tools.trace.color import Color, clean

REGISTER_SPACES = {"SH": 0x2C00, "UCONFIG": 0xC000}  # what SET_SH_REG and SET_UCONFIG_REG count from
LAST_OF_SPACE = {"SH": 0x2FFF, "UCONFIG": 0xFFFF}


class Meaning(NamedTuple):
    """One thing that a number can be."""

    kind: str
    name: str
    fields: Sequence[str] = ()
    says: str = ""


def options(verb: argparse.ArgumentParser) -> None:
    """What the verb takes on the command line."""
    verb.add_argument("number", metavar="NUMBER", help="decimal, or hex with 0x")
    verb.add_argument(
        "--chip", metavar="GFX", default="", help="a register or an opcode of this AMD GPU, such as gfx1100"
    )
    verb.add_argument(
        "--class", dest="nv_class", metavar="HEX", default="", help="a method of this NVIDIA class: c7c0"
    )
    verb.add_argument(
        "--value", metavar="HEX", default="", help="what is in the register or method: its fields, too"
    )
    verb.add_argument(
        "--trace", metavar="FILE", default="", help="an address: the buffer of this trace that holds it"
    )
    verb.add_argument(
        "--at", metavar="N", default="", help="with --trace: as it was when submission #N was made"
    )
    verb.add_argument("--device", metavar="NAME", default="", help="with --trace: only this device's process")
    verb.add_argument("--json", action="store_true", help="a list of meanings, for another program")


def run(given: argparse.Namespace) -> int:
    """Print what a number is. Raises UsageError for what is no number, and for one that nobody knows."""
    number = _number(given.number, "NUMBER")
    value = _number(given.value, "--value", 16) if given.value else None
    if given.trace:
        return _address(number, given)
    if given.at or given.device:
        raise UsageError(
            "explain: --at and --device say when and where in a trace. Name it with --trace FILE."
        )
    if given.chip:
        found = of_chip(number, given.chip, value)
    elif given.nv_class:
        found = of_class(number, _number(given.nv_class, "--class", 16), value)
    else:
        found = anywhere(number)
    if not found:
        hint = (
            ""
            if given.chip or given.nv_class
            else " For a register add --chip gfx1100, for a method --class c7c0."
        )
        raise UsageError(f"explain {number:#x}: no name is known for it.{hint}")
    if given.json:
        print(json.dumps([one._asdict() for one in found], indent=1))
    else:
        for line in lines(found):
            print(clean(line))
    return 0


def _address(number: int, given: argparse.Namespace) -> int:
    """Print what holds an address of a trace."""
    from hcq.tools.trace import address
    from hcq.trace.file import Trace

    found = address.find(Trace.read(given.trace), number, given.at, given.device)
    if given.json:
        print(json.dumps(address.as_json(found), indent=1))
    else:
        for line in address.lines(found, Color.for_stdout()):
            print(line)
    return 0


def lines(found: list[Meaning]) -> Iterator[str]:
    """Each meaning, its fields below it."""
    for one in found:
        yield f"{one.kind}: {one.name}" + (f"  {one.says}" if one.says else "")
        for text in one.fields:
            yield f"    {text}"


# ------------------------------------------------------------ AMD


def of_chip(number: int, chip: str, value: int | None = None) -> list[Meaning]:
    """A register by its address in words or by what SET_SH_REG counts; an opcode of packets. Of a GPU or generation."""
    from hcq.amd.abi import other_packets, registers, sdma
    from hcq.amd.abi.opcodes import Opcode
    from hcq.tools.trace.amd_words import chip_named

    row = chip_named(chip)
    found: list[Meaning] = []
    spaces = {
        "SH": (registers.Register, registers.LAYOUTS),
        "UCONFIG": (registers.UconfigRegister, registers.UCONFIG_LAYOUTS),
    }
    for space, (names, layouts) in spaces.items():
        base = REGISTER_SPACES[space]
        index = number - base if base <= number <= LAST_OF_SPACE[space] else number
        is_named = index in names._value2member_map_ and _is_of(names(index).name, row.family)
        layout = layouts.get(index)
        if is_named or (layout is not None and index not in names._value2member_map_):
            fields = _fields(layout, value) if layout else ([] if value is None else [f"= {value:#x}"])
            says = f"address {base + index:#x}, SET_{space}_REG counts {index:#x}"
            name = names(index).name if is_named or layout is None else layout.__name__
            found.append(Meaning(f"register of {row.arch}", name, fields, says))
    packet: type[Packet] | None
    if number in Opcode._value2member_map_ or number in row.packets:
        packet = row.packets.get(number) or next(iter(other_packets.PM4.get(number, ())), None)
        says = "" if packet else "(no structure here)"
        name = Opcode(number).name if number in Opcode._value2member_map_ else row.packets[number].__name__
        found.append(Meaning("opcode of PM4", name, _fields(packet), says))
    if number in sdma.Op._value2member_map_ or number in row.copies.packets:
        packet = row.copies.packets.get(number) or other_packets.SDMA.get(number)
        says = "" if packet else "(no structure here)"
        name = (
            sdma.Op(number).name
            if number in sdma.Op._value2member_map_
            else packet.__name__
            if packet
            else ""
        )
        found.append(Meaning("op of SDMA", name, _fields(packet), says))
    return found


def _is_of(register: str, family: int) -> bool:
    """Two registers have another place in each generation: COMPUTE_PGM_RSRC3, and what was added behind it."""
    if register == "COMPUTE_PGM_RSRC3_GFX9":
        return family == 9
    return family > 9 or register not in ("COMPUTE_PGM_RSRC3", "COMPUTE_REQ_CTRL")


# ------------------------------------------------------------ NVIDIA


def of_class(number: int, class_id: int, value: int | None = None) -> list[Meaning]:
    """A method of a class of engine by its address in bytes, entries of arrays too. Raises UsageError for its class."""
    from hcq.nv.abi.methods import methods_of
    from hcq.nv.abi.names import class_name

    methods = methods_of(class_id)
    if not methods:
        raise UsageError(
            f"--class {class_id:x}: a class whose methods are not known ({class_name(class_id)})."
        )
    method = methods.get(number)
    if method is None:
        return []
    entry = f"[{(number - method.at) // 4}]" if method.entries > 1 else ""
    return [Meaning(f"method of {class_name(class_id)}", method.vendor + entry, _fields(method, value))]


# ------------------------------------------------------------ by the number alone


def anywhere(number: int) -> list[Meaning]:
    """What a number can be: a request of ioctl(), a class, a control, a status, an errno, an Xid."""
    from hcq.nv.abi.names import table
    from hcq.nv.abi.status import describe_status, describe_xid

    found = _request(number)
    for of, kind in (("classes", "class of NVIDIA's"), ("controls", "control of NVIDIA's RM")):
        if number in table(of):
            found.append(Meaning(kind, table(of)[number][0], says=table(of)[number][1]))
    if number in table("statuses"):
        found.append(Meaning("status of NVIDIA's RM", describe_status(number)))
    wanted = number if number < 2**31 else 2**32 - number  # a call's negative result
    if wanted in errno.errorcode:
        found.append(Meaning("errno", errno.errorcode[wanted], says=os.strerror(wanted)))
    if number in table("xids"):
        found.append(Meaning("Xid of NVIDIA's driver", describe_xid(number)))
    return found


def _request(number: int) -> list[Meaning]:
    """A request of ioctl(), when it is one of a driver that is known here."""
    from hcq.nv.abi.ioctls import abi_for
    from hcq.tools.trace import amd_calls, ioctl_decode
    from hcq.tools.trace.decode import DEFAULT_RELEASE, NAMED
    from hcq.trace.ioctl_log import Call

    if number < 1 << 8 or number >= 1 << 32:
        return []
    kind = number >> 8 & 0xFF
    way = ("no argument", "writes", "reads", "reads and writes")[number >> 30]
    says = f"{way}, type {kind:#x}, number {number & 0xFF:#x}, {number >> 16 & 0x3FFF} bytes"
    node = {amd_calls.KFD: amd_calls.KFD_NODE, amd_calls.DRM: f"{amd_calls.RENDER_NODES}renderD128"}.get(
        kind, ""
    )
    call = Call(0, 0, node, number)
    if number >> 30 and node and amd_calls.is_amd(call):
        decoded = amd_calls.decode_call(call)
        return [Meaning("ioctl", decoded.name, _fields(amd_calls.layout_of(number)), says)]
    if number in ioctl_decode.UVM_STARTS or (number >> 30 and kind == ioctl_decode.MAGIC):
        decoded = ioctl_decode.decode_call(abi_for(DEFAULT_RELEASE), "", number)
        if decoded.name.startswith(NAMED):
            is_plain = number in ioctl_decode.UVM_STARTS
            return [
                Meaning(
                    "ioctl", decoded.name, says="a plain number, of /dev/nvidia-uvm" if is_plain else says
                )
            ]
    return []


# ------------------------------------------------------------ words


def _fields(layout: type[Packet] | None, value: int | None = None) -> list[str]:
    """The fields of a structure, with their values where there are any."""
    if layout is None:
        return []
    packet = layout.decode([value]) if value is not None else None
    found = []
    for name, field in layout.fields.items():
        place = f"{field.high}..{field.low}" if field.high > field.low else f"{field.low}"
        text = f"{place:>8}  {name}"
        if packet is not None:
            text += f" = {field.show(packet.values[name])}"
        elif field.enum is not None and len(field.members) <= 8:
            text += f": {', '.join(f'{number} {member.name}' for number, member in field.members.items())}"
        found.append(text)
    if packet is not None and packet.unclaimed:
        found.append(f"          bits that no field has: {packet.unclaimed[0]:#x}")
    return found


def _number(text: str, what: str, base: int = 0) -> int:
    """A number of the command line. Raises UsageError naming the option."""
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        form = "hex" if base == 16 else "decimal, or hex with 0x"
        raise UsageError(f"explain: {what} {text!r} is no number; write it as {form}.")
    return number
