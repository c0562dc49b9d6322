"""Views: what a trace holds as plain data, with every address named: one shape for show, diff, exports and the page.

In       a Trace (hcq/trace_file.py)
Out      dictionaries of numbers, texts and lists; docs/trace.md lists their keys, which stay what they are
Changes  nothing
Next     show.py (views as text), export.py (views as files)

A packet is paired with the command it stands for when the two run in step, as they do on the CPU device. Where a device
needs several packets for one command (AMD, NVIDIA) the view lists the commands first and the packets after them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from hcq.errors import HcqError
from hcq.kinds import KINDS
from hcq.layout import Packet
from hcq.trace_file import BlockImage, Code, MemoryMap, Record, Submission, Trace, TraceDevice
from hcq.trace_records import Kind

View = dict[str, Any]
POINTER_BITS = 33  # a field of at least this width may hold an address
_SUBMIT = "submission"


def start_ns(trace: Trace) -> int:
    """The moment that `seconds` count from: the first record."""
    return trace.records[0].time_ns if trace.records else 0


def views(trace: Trace) -> Iterator[View]:
    """Every record that says something to a person, in order."""
    submissions = {submission.record: submission for submission in trace.submissions}
    for record in trace.records:
        if record.index in submissions:
            yield submission_view(submissions[record.index])
        else:
            view = record_view(trace, record)
            if view:
                yield view


def record_view(trace: Trace, record: Record) -> View:
    """One record that is no submission; an empty view when it only serves other records."""
    fields = record.fields
    head: View = {
        "kind": record.name.lower(),
        "record": record.index,
        "seconds": seconds(trace, record.time_ns),
    }
    if record.kind == Kind.PROCESS:
        return {**head, "process": record.process, **fields}
    if record.kind in (Kind.STRING, Kind.TIMES, Kind.PATCH, Kind.STAMPS):
        return {}
    device = device_of(trace, record)
    if device is not None:
        head["device"] = device.key
    if record.kind == Kind.DEVICE and device is not None:
        return {**head, "arch": device.arch, "process": device.process, "facts": device.facts}
    if record.kind == Kind.CODE:
        return {
            **head,
            "kernel": str(fields.get("name")),
            "entry": str(fields.get("entry")),
            "va": fields.get("va"),
            "size_bytes": len(record.data),
            "arguments": fields.get("args"),
            "hash": code_hash(record.data),
        }
    if record.kind in (Kind.ALLOC, Kind.FREE):
        before = trace.memory_at(record.index if record.kind == Kind.FREE else record.index + 1)
        place = before.find(fields["va"])
        return {**head, "va": fields["va"], "size_bytes": place.size_bytes, "name": place.name}
    if record.kind == Kind.SIGNAL:
        name = name_of(trace, trace.memory_at(record.index), fields["va"])
        return {
            **head,
            "signal": name,
            "va": fields["va"],
            "value": fields["value"],
            "by": "host" if fields["is_set"] else "device",
        }
    if record.kind == Kind.BLOCK:
        return {**head, "label": trace.string(record.process, fields["label"]), "va": fields["va"],
                "size_words": fields["size_words"]}  # fmt: skip
    if record.kind == Kind.DATA:
        memory = trace.memory_at(record.index)
        return {
            **head,
            "why": getattr(fields["why"], "name", None) or _why(fields["why"]),
            "buffer": name_of(trace, memory, fields["va"]),
            "va": fields["va"],
            "size_bytes": fields["size_bytes"],
        }
    if record.kind == Kind.PORT:
        return {**head, **{k: v for k, v in fields.items() if k not in head}, "text": call_text(record)}
    if record.kind == Kind.FAULT:
        return {
            **head,
            **fields,
            "device": head.get("device"),
            "text": f"{fields.get('what')}: {fields.get('why')}",
        }
    if isinstance(record.kind, Kind):
        return {**head, **{name: value for name, value in fields.items() if name not in head}}
    return {**head, "kind": record.name.lower(), "size_bytes": len(record.raw)}


def _why(number: int) -> str:
    from hcq.trace_records import Why

    return Why(number).name if number in Why._value2member_map_ else str(number)


def call_text(record: Record) -> str:
    """A call to the operating system in one line: decoded by the driver's own declaration when one claims it."""
    fields = record.fields
    name = str(fields.get("call", "call"))
    result = fields.get("error") or _short(fields.get("result", fields.get("result_bytes")))
    arguments = fields.get("arguments")
    given = arguments if isinstance(arguments, list) else []
    size = fields.get("argument_bytes")
    if name == "ioctl" and len(given) == 2 and isinstance(size, int):
        for kind in KINDS.values():
            call = kind.calls().get(given[1])
            if call is not None:
                return call.line(record.data[:size], record.data[size:], result)
    return f"{name}({', '.join(map(_short, given))}) -> {result}"


def _short(value: object) -> str:
    return (
        f"{value:#x}"
        if isinstance(value, int) and not isinstance(value, bool) and value > 0xFFFF
        else str(value)
    )


# ------------------------------------------------------------ submissions


def submission_view(submission: Submission) -> View:
    """A submission with its packets decoded and paired with its commands."""
    trace, memory = submission.trace, submission.memory()
    commands = [command_view(submission, memory, command) for command in submission.commands]
    view: View = {
        "kind": _SUBMIT,
        "record": submission.record,
        "number": submission.number,
        "device": submission.device.key,
        "queue": submission.queue,
        "submission": submission.value,
        "seconds": seconds(trace, submission.time_ns),
        "started": seconds(trace, submission.started_ns),
        "finished": seconds(trace, submission.finished_ns),
        "site": submission.site,
        "thread": submission.thread,
        "size_words": len(submission.words),
        "kernels": sorted(set(submission.kernels)),
    }
    if submission.dropped:
        view["dropped"] = True
    try:
        packets = list(_packets(submission, memory, submission.words, 0))
    except HcqError as error:
        packets, view["undecoded"] = [], str(error)
    blocks = {block.va: block for block in submission.blocks}
    for command in commands:
        if command["verb"] == "indirect" and command["address"] in blocks:
            _fill_block(submission, memory, command, blocks[command["address"]])
    view["packets"] = packets
    view["commands"] = commands
    _pair(packets, commands)
    return view


def _fill_block(submission: Submission, memory: MemoryMap, command: View, block: BlockImage) -> None:
    try:
        inside = list(_packets(submission, memory, block.words, 0))
    except HcqError:
        inside = []
    commands = [command_view(submission, memory, inner) for inner in block.commands]
    _pair(inside, commands)
    command["packets"], command["commands"] = inside, commands


def _pair(packets: list[View], commands: list[View]) -> None:
    """Give each packet its command when they run in step; otherwise leave both lists as they are."""
    found, waiting = [], list(commands)
    for packet in packets:
        if waiting and packet["packet"].lower() == waiting[0]["verb"]:
            found.append((packet, waiting.pop(0)))
    if not waiting:
        for packet, command in found:
            packet["text"] = command["text"]
            packet["command"] = commands.index(command)


def _packets(submission: Submission, memory: MemoryMap, words: Sequence[int], base: int) -> Iterator[View]:
    at = base
    for packet in submission.device.decode(words, submission.queue):
        size = len(packet.words)
        yield packet_view(submission.trace, memory, packet, at)
        at += size
    if at - base < len(words):
        yield {
            "at": at,
            "packet": "?",
            "fields": {},
            "names": {},
            "words": list(words[at - base :]),
            "text": "not decoded",
        }


def packet_view(trace: Trace, memory: MemoryMap, packet: Packet, at: int) -> View:
    """One packet: its fields with names for enum values, and a name for every field that holds a known address."""
    names = {}
    for name, field in packet.fields.items():
        value = packet.values[name]
        if field.width * field.unit >= POINTER_BITS and value > 0xFFFF:
            place = memory.find(value)
            if place.state != "unknown" or value in timelines(trace):
                names[name] = name_of(trace, memory, value)
    view: View = {
        "at": at,
        "packet": type(packet).__name__,
        "fields": {name: getattr(value, "name", value) for name, value in packet.values.items()},
        "names": names,
        "words": list(packet.words),
    }
    if packet.unclaimed:
        view["unclaimed"] = {str(index): value for index, value in packet.unclaimed.items()}
    view["text"] = _verb_text(packet, names) or _fields_text(packet, names)
    return view


def _verb_text(packet: Packet, names: dict[str, str]) -> str:
    """The packet that ends a submission has no command; on devices whose packets are verbs it reads like one."""
    verb, values = type(packet).__name__.lower(), packet.values
    if verb in ("wait", "signal") and {"signal", "value"} <= set(values):
        where = names.get("signal", f"unknown@{values['signal']:#x}")
        return f"{where} {'>=' if verb == 'wait' else '='} {values['value']}"
    return ""


def _fields_text(packet: Packet, names: dict[str, str]) -> str:
    parts = []
    for name, value in packet.values.items():
        if name in ("opcode", "length", "count", "type", "op", "sub_op") or (not value and name not in names):
            continue
        parts.append(f"{name}={names.get(name) or packet.fields[name].show(value)}")
    if packet.tail is not None and packet.tail_words:
        parts.append(f"{packet.tail}=[{' '.join(f'{word:x}' for word in packet.tail_words)}]")
    parts += [f"unclaimed_word_{index}={value:#010x}" for index, value in packet.unclaimed.items()]
    return " ".join(parts)


def command_view(submission: Submission, memory: MemoryMap, command: dict[str, Any]) -> View:
    """A command with its addresses named, and a line that says it."""
    trace = submission.trace

    def name(key: str) -> str:
        return name_of(trace, memory, command[key])

    view = {key: value for key, value in command.items() if key != "args"}
    verb = command["verb"]
    if verb == "dispatch":
        view["arguments"] = [argument_text(trace, memory, argument) for argument in command["args"]]
        grid = ",".join(map(str, command["grid"]))
        block = ",".join(map(str, command["block"]))
        text = f"{command['kernel']}({', '.join(view['arguments'])}) grid=({grid})"
        text += "" if block == "1,1,1" else f" block=({block})"
    elif verb == "copy":
        text = f"{command['size_bytes']} bytes {name('src')} -> {name('dst')}"
    elif verb == "fill":
        text = f"{command['size_bytes']} bytes at {name('dst')} with {command['pattern']:#018x}"
    elif verb == "wait":
        text = f"{name('signal')} >= {command['value']}"
    elif verb == "signal":
        text = f"{name('signal')} = {command['value']}"
    elif verb == "timestamp":
        text = f"to {name('address')}"
    elif verb == "indirect":
        text = f"{command['label']}: {command['size_words']} words"
    else:
        text = ", ".join(f"{key}={value}" for key, value in command.items() if key != "verb")
    return {**view, "text": text}


def argument_text(trace: Trace, memory: MemoryMap, argument: dict[str, Any]) -> str:
    """An argument as a person reads it: a buffer's name and offset, or the number."""
    value = argument["value"]
    if argument["kind"] == "buffer":
        return name_of(trace, memory, value)
    if argument["kind"] == "unknown" and isinstance(value, int) and value > 0xFFFF:
        place = memory.find(value)
        return str(place) if place.state == "live" else _short(value)
    return repr(value) if isinstance(value, float) else str(value)


# ------------------------------------------------------------ names and identities


def name_of(trace: Trace, memory: MemoryMap, va: int) -> str:
    """What lies at an address: name+offset, with its state when it is not live."""
    device = timelines(trace).get(va)
    if device is not None:
        return "timeline" if len(trace.devices) == 1 else f"timeline of {device.key}"
    place = memory.find(va)
    if place.state == "unknown":
        return f"unknown@{va:#x}"
    state = "" if place.state in ("live", "mapped") else f" ({place.state})"
    return f"{place.name}{f'+{place.offset:#x}' if place.offset else ''}{state}"


def timelines(trace: Trace) -> dict[int, TraceDevice]:
    """Where each device's timeline is."""
    found: dict[int, TraceDevice] = {}
    for device in trace.devices:
        where = device.facts.get("timeline")
        if isinstance(where, int):
            found[where] = device
    return found


def device_of(trace: Trace, record: Record) -> TraceDevice | None:
    """The device that a record speaks of; what is written while it opens comes before its own record."""
    number = record.fields.get("device")
    own = [one for one in trace.devices if one.process == record.process and one.number == number]
    return next((one for one in reversed(own) if one.opened <= record.index), own[0] if own else None)


def code_hash(image: bytes) -> str:
    """Which code: the start of the SHA-256 of its object."""
    return hashlib.sha256(image).hexdigest()[:16]


def code_of(trace: Trace, submission: Submission, command: dict[str, Any]) -> Code | None:
    """The program that a dispatch starts."""
    return trace.code_at(submission.device, command["entry"], submission.record)


def seconds(trace: Trace, time_ns: int | None) -> float | None:
    """Time since the first record; None while nobody knows it."""
    return None if time_ns is None else (time_ns - start_ns(trace)) / 1e9
