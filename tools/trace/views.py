"""Views: what a trace holds as plain data, with every address named: one shape for show, diff, exports and the page.

In       a Trace (hcq/trace/file.py)
Out      dictionaries of numbers, texts and lists; docs/trace.md lists their keys, which stay what they are
Next     show.py (views as text), export.py (views as files)

What a packet says comes from its words alone, by the effects that its kind of device declares. The command that it
stands for is found beside it; where the two say different things, so does the view.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from hcq import backends
from hcq.errors import HcqError, UsageError
from hcq.layout import Packet
from hcq.nv.abi.ioctls import RELEASES
from hcq.rules import effects, examine
from hcq.system.ioctl_pointers import Pointer
from hcq.tools.trace.ioctl_decode import nested_texts
from hcq.trace import calls
from hcq.trace.file import BlockImage, Code, MemoryMap, Record, Submission, Trace, TraceDevice
from hcq.trace.records import Kind

View = dict[str, Any]
DEFAULT_RELEASE = "580.142"  # of NVIDIA's structures, where a trace does not say
POINTER_BITS = 33  # a field of at least this width may hold an address


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
    if record.kind in (Kind.STRING, Kind.TIMES, Kind.PATCH, Kind.STAMPS, Kind.NAME):
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
        before = trace.memory_at(record, after=record.kind == Kind.ALLOC)
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
    if record.kind == Kind.RESULT:
        return {
            **head,
            "submission": fields["value"],
            "buffer": name_of(trace, trace.memory_at(record.index), fields["va"]),
            "va": fields["va"],
            "size_bytes": fields["size_bytes"],
            "digest": f"{fields['digest_low']:016x}{fields['digest_high']:016x}",
        }
    if record.kind == Kind.PORT:
        view = {**head, **{k: v for k, v in fields.items() if k not in head}, "text": call_text(record)}
        if "nested" in fields:
            view["nested"] = nested_views(record, device)
        return view
    if record.kind == Kind.FAULT:
        return {
            **head,
            **fields,
            "device": head.get("device"),
            "text": f"{fields.get('what')}: {fields.get('why')}",
        }
    if record.kind == Kind.FINDING:
        said = fields["finding"]
        text = f"{said.get('level')} [{said.get('rule')}] kernel {said.get('kernel')}: {said.get('what')}"
        return {**head, **said, "device": head.get("device"), "text": text}
    if record.kind == Kind.PLACE:
        return {**head, "process": record.process, **fields}
    if record.kind == Kind.SPAN and "first" in fields:
        return {**head, **{key: value for key, value in fields.items() if key != "device"}}
    if record.kind == Kind.SPAN:
        times = {"started": "started_ns", "finished": "ended_ns"}
        return {
            **head,
            **{key: fields[key] for key in ("name", "size_bytes", "peers", "lane")},
            **{key: seconds(trace, int(fields[name])) for key, name in times.items()},
        }
    if isinstance(record.kind, Kind):
        return {**head, **{name: value for name, value in fields.items() if name not in head}}
    return {**head, "kind": record.name.lower(), "size_bytes": len(record.raw)}


def _why(number: int) -> str:
    from hcq.trace.records import Why

    return Why(number).name if number in Why._value2member_map_ else str(number)


def call_text(record: Record) -> str:
    """A call to the operating system in one line: decoded by the driver's own declaration when one claims it."""
    fields = record.fields
    name = str(fields.get("call", "call"))
    result = fields.get("error") or _short(fields.get("result", fields.get("result_bytes")))
    arguments = fields.get("arguments")
    given = arguments if isinstance(arguments, list) else []
    seen = calls.ioctl_of(record)
    if seen is not None:
        for backend in backends.every():
            call = backend.calls().get(seen.request)
            if call is not None:
                return call.line(seen.before, seen.after, result)
    return f"{name}({', '.join(map(_short, given))}) -> {result}"


def nested_views(record: Record, device: TraceDevice | None) -> list[View]:
    """What an ioctl's argument pointed to: each block with its bytes before and after, and both in words."""
    call = calls.ioctl_of(record)
    if call is None:
        return []
    pointers: list[Pointer] = []
    for backend in backends.every():
        pointers += backends.pointers_of(backend.name)(call.request, call.before)
    release = str(device.facts.get("driver", "")) if device is not None else ""
    is_release = release[:3].isdecimal() and int(release[:3]) >= RELEASES[0]
    texts = nested_texts(call, pointers, release if is_release else DEFAULT_RELEASE)
    return [
        {
            "name": block.name,
            "va": block.va,
            "before": block.before.hex(),
            "after": block.after.hex(),
            "text": text,
        }
        for block, text in zip(call.nested, texts)
    ]


def _short(value: object) -> str:
    return (
        f"{value:#x}"
        if isinstance(value, int) and not isinstance(value, bool) and value > 0xFFFF
        else str(value)
    )


# ------------------------------------------------------------ submissions


def submission_view(submission: Submission) -> View:
    """A submission with its packets decoded, and what the words do beside what they were meant to do."""
    trace, memory = submission.trace, submission.memory()
    commands = [command_view(submission, memory, command) for command in submission.commands]
    view: View = {
        "kind": "submission",
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
        "packets": [],
        "commands": commands,
    }
    if submission.dropped:
        view["dropped"] = True
    try:
        reader = Reader(submission, memory)
        view["packets"] = reader.packets(submission.words, submission.commands, commands)
    except HcqError as error:
        view["undecoded"] = str(error)
        return view
    blocks = {block.va: block for block in submission.blocks}
    for packet in view["packets"]:
        _unfold(reader, packet, blocks)
        for inner in packet.get("packets", ()):
            _unfold(reader, inner, nested_blocks(submission, blocks, packet))
    _mark(submission, view["packets"])
    return view


def _unfold(reader: Reader, packet: View, blocks: dict[int, BlockImage]) -> None:
    """The packets of the block that a packet runs, below it."""
    block = blocks.get(packet.get("runs", 0))
    if block is not None:
        inside = [command_view(reader.submission, reader.memory, command) for command in block.commands]
        packet["packets"] = reader.packets(block.words, block.commands, inside)
        packet["commands"] = inside


def nested_blocks(
    submission: Submission, blocks: dict[int, BlockImage], packet: View
) -> dict[int, BlockImage]:
    """The blocks that a packet's block runs in turn."""
    device, trace, outer = submission.device, submission.trace, blocks.get(packet.get("runs", 0))
    found = [one["address"] for one in (outer.commands if outer else ()) if one["verb"] == "indirect"]
    return {va: trace.block(device, va, submission.record) for va in found if trace.has_block(device, va)}


def _mark(submission: Submission, packets: list[View]) -> None:
    """Where a fault of the trace says that the device did not get past a packet: `stuck` is why."""
    for record in submission.trace.faults:
        said = record.fields
        if record.process != submission.device.process or said.get("device") != submission.device.number:
            continue
        if said.get("submission") != submission.value:
            continue
        block = said.get("block")
        for packet in packets:
            if block is None and packet["at"] == said.get("word"):
                packet["stuck"] = str(said.get("why"))
            for inner in (packet, *packet.get("packets", ())):
                for deep in (
                    inner.get("packets", ()) if block is not None and inner.get("runs") == block else ()
                ):
                    if deep["at"] == said.get("block_word"):
                        deep["stuck"] = str(said.get("why"))


def all_packets(view: View) -> Iterator[View]:
    """The packets of a submission's view, those of its blocks included."""
    for packet in view["packets"]:
        yield packet
        if "packets" in packet:
            yield from all_packets(packet)


VERBS: dict[type, str] = {
    effects.Launch: "dispatch",
    effects.Copy: "copy",
    effects.Fill: "fill",
    effects.Wait: "wait",
    effects.Signal: "signal",
    effects.Barrier: "barrier",
    effects.Run: "indirect",
}


class Reader:
    """Reads the words of one submission by what the device's kind says its packets do (hcq/rules/effects.py)."""

    def __init__(self, submission: Submission, memory: MemoryMap) -> None:
        device = submission.device
        self.submission, self.trace, self.memory = submission, submission.trace, memory
        self.untyped: set[int] = set()  # entries of programs whose arguments nobody declared
        try:
            self.model = examine.model_of(device.name, device.arch, device.facts, device.decode)
        except (ValueError, TypeError) as error:
            raise UsageError(f"{device.key}: its facts make no sense ({error}).") from None

    def packets(self, words: Sequence[int], commands: list[View], views: list[View]) -> list[View]:
        """Words as packets, each with the command that it stands for where that is clear."""
        found, steps = [], self.steps(words, commands)
        for step in steps:
            found.append(self._packet(step))
        end = steps[-1].at + len(steps[-1].packet.words) if steps else 0
        if end < len(words):
            rest = list(words[end:])
            found.append(
                {"at": end, "packet": "?", "fields": {}, "names": {}, "words": rest, "text": "not decoded"}
            )
        self._pair(steps, found, views)
        return found

    def steps(self, words: Sequence[int], commands: list[View]) -> Sequence[effects.Step]:
        """Words as packets with their effects; arguments of launches are typed by the commands."""
        programs = {}
        for command in commands:
            if command["verb"] == "dispatch":
                programs[command["entry"]] = self._facts(command)
        blob = struct.pack(f"<{len(words)}I", *words)
        return self.model.steps(blob, self.submission.queue, programs)

    def _facts(self, command: View) -> effects.ProgramFacts:
        kinds = [argument["kind"] for argument in command["args"]]
        if "unknown" in kinds:
            self.untyped.add(command["entry"])
        typed = tuple("int" if kind == "unknown" else kind for kind in kinds)
        return effects.ProgramFacts(command["kernel"], command["entry"], typed)

    def _packet(self, step: effects.Step) -> View:
        view = packet_view(self.trace, self.memory, step.packet, step.at)
        texts = [text for text in map(self._effect, step.effects) if text]
        if texts:
            is_verb = type(step.packet).__name__.lower() in (*VERBS.values(), "timestamp")
            view["text"] = "; ".join(texts) + ("" if is_verb or not view["text"] else f"  [{view['text']}]")
        for effect in step.effects:
            if isinstance(effect, effects.Run):
                view["runs"] = effect.address
        return view

    def _effect(self, effect: effects.Effect) -> str:
        """What a packet does in one line: the same words as its command's."""
        if isinstance(effect, effects.Launch):
            code = self.trace.code_at(self.submission.device, effect.entry, self.submission.record)
            name = f"code@{effect.entry:#x}" if code is None else code.name
            is_typed = effect.entry not in self.untyped
            given = ", ".join(self._argument(argument, is_typed) for argument in effect.arguments)
            return _launch(name, given, effect.grid, effect.block)
        if isinstance(effect, effects.Copy):
            return f"{effect.size_bytes} bytes {self._name(effect.src)} -> {self._name(effect.dst)}"
        if isinstance(effect, effects.Fill):
            return f"{effect.size_bytes} bytes at {self._name(effect.dst)}"
        if isinstance(effect, effects.Wait):
            return f"{self._name(effect.cell)} >= {effect.value}"
        if isinstance(effect, effects.Signal):
            return f"{self._name(effect.cell)} = {effect.value}"
        if isinstance(effect, effects.Access):
            if effect.what == "timestamp":
                return f"to {self._name(effect.va)}"
            verb = "writes" if effect.is_write else "reads"
            return f"{verb} {effect.what}, {effect.size_bytes} bytes at {self._name(effect.va)}"
        if isinstance(effect, effects.Run):
            labels = [block.label for block in self.submission.blocks if block.va == effect.address]
            return f"{labels[0] if labels else self._name(effect.address)}: {effect.size_words} words"
        if isinstance(effect, effects.Flush):
            return f"flush {effect.domain}"
        return f"invalidate {effect.domain}" if isinstance(effect, effects.Invalidate) else ""

    def _argument(self, argument: effects.Argument, is_typed: bool) -> str:
        value: int | float = argument.value
        if argument.kind == "float":
            (value,) = struct.unpack("<d", struct.pack("<Q", argument.value))
        elif argument.kind == "int":
            value = argument.value - 2**64 if argument.value >= 2**63 else argument.value
        kind = argument.kind if is_typed or argument.kind == "float" else "unknown"
        return argument_text(self.trace, self.memory, {"kind": kind, "value": value})

    def _name(self, va: int) -> str:
        return name_of(self.trace, self.memory, va)

    def _pair(self, steps: Sequence[effects.Step], packets: list[View], commands: list[View]) -> None:
        """The n-th launch is the n-th dispatch, and so on for each verb of which there are as many.

        The last signal ends the submission and has no command. Where words and command say different things, the packet
        says both.
        """
        done: dict[str, list[tuple[int, effects.Effect]]] = {}
        for place, step in enumerate(steps):
            for effect in step.effects:
                is_stamp = isinstance(effect, effects.Access) and effect.what == "timestamp"
                verb = "timestamp" if is_stamp else VERBS.get(type(effect), "")
                done.setdefault(verb, []).append((place, effect))
        for verb in {command["verb"] for command in commands}:
            meant = [index for index, command in enumerate(commands) if command["verb"] == verb]
            found = done.get(verb, [])
            if len(found) not in (len(meant), len(meant) + (verb == "signal")):
                continue
            for index, (place, effect) in zip(meant, found):
                packet, command = packets[place], commands[index]
                packet["command"] = index
                if isinstance(effect, effects.Launch) and not effect.arguments and command["arguments"]:
                    packet["text"] = packet["text"].replace("()", f"({', '.join(command['arguments'])})", 1)
                elif not command["text"].startswith(self._effect(effect)):
                    packet["differs"] = command["text"]
                elif verb == "fill":
                    packet["text"] = command["text"]  # the pattern is not part of the effect


def packet_view(trace: Trace, memory: MemoryMap, packet: Packet, at: int) -> View:
    """One packet: its fields with names for enum values, and a name for every field that holds a known address."""
    names = {}
    for name, field in packet.fields.items():
        value = packet.values[name]
        if field.width * field.unit >= POINTER_BITS and value > 0xFFFF:
            place = memory.find(value)
            if place.state != "unknown" or value in timelines(trace, memory.process):
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
    view["text"] = _fields_text(packet, names)
    return view


def _fields_text(packet: Packet, names: dict[str, str]) -> str:
    if packet.description:
        return packet.description
    parts = []
    for name, value in packet.values.items():
        if name in ("opcode", "length", "count", "type", "op", "sub_op") or (not value and name not in names):
            continue
        parts.append(f"{name}={names.get(name) or packet.fields[name].show(value)}")
    if packet.tail is not None and packet.tail_words:
        parts.append(f"{packet.tail}=[{' '.join(f'{word:x}' for word in packet.tail_words)}]")
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
        text = _launch(command["kernel"], ", ".join(view["arguments"]), command["grid"], command["block"])
        if command["dynamic_shared_bytes"]:
            text += f" shared={command['dynamic_shared_bytes']}"
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


def _launch(name: str, arguments: str, grid: Sequence[int], block: Sequence[int]) -> str:
    text = f"{name}({arguments}) grid=({','.join(map(str, grid))})"
    return text if tuple(block) == (1, 1, 1) else f"{text} block=({','.join(map(str, block))})"


def argument_text(trace: Trace, memory: MemoryMap, argument: dict[str, Any]) -> str:
    """An argument as a person reads it: a buffer's name and offset, or the number."""
    value = argument["value"]
    if argument["kind"] == "buffer":
        return "null" if not value else name_of(trace, memory, value)
    if argument["kind"] == "unknown" and isinstance(value, int) and value > 0xFFFF:
        place = memory.find(value)
        return str(place) if place.state == "live" else _short(value)
    return repr(value) if isinstance(value, float) else str(value)


# ------------------------------------------------------------ names and identities


def name_of(trace: Trace, memory: MemoryMap, va: int) -> str:
    """What lies at an address: name+offset, with its state when it is not live."""
    device = timelines(trace, memory.process).get(va)
    if device is not None:
        return "timeline" if len(trace.devices) == 1 else f"timeline of {device.key}"
    place = memory.find(va)
    if place.state == "unknown":
        return f"unknown@{va:#x}"
    state = "" if place.state in ("live", "mapped") else f" ({place.state})"
    return f"{place.name}{f'+{place.offset:#x}' if place.offset else ''}{state}"


def timelines(trace: Trace, process: int) -> dict[int, TraceDevice]:
    """Where the timeline of each device of a process is."""
    found: dict[int, TraceDevice] = {}
    for device in trace.devices:
        where = device.facts.get("timeline")
        if isinstance(where, int) and device.process == process:
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
