"""Text: what a process says about its devices, as a page for people.

In       the dictionaries of hcq/observe/state.py, or of a kind of device's `host` view
Out      lines
Next     command.py (who prints them)

They come from another process, which may be of another version: what is not as expected is left out, never an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SHOWN = 8


def page(state: dict[str, Any]) -> Iterator[str]:
    """One process."""
    yield f"process   {_text(state, 'pid')}: {_text(state, 'program')}"
    devices = _list(state, "devices")
    if not devices:
        yield "devices   none is open"
    for device in devices:
        yield ""
        yield from _device(device)
    for gone in _list(state, "closed"):
        yield f"closed    {_text(gone, 'name')} ({_text(gone, 'arch')}): {_text(gone, 'why')}"


def short(state: dict[str, Any]) -> str:
    """One process in a line."""
    parts = []
    for device in _list(state, "devices"):
        timeline = _dict(device, "timeline")
        done, submitted = _text(timeline, "done"), _text(timeline, "submitted")
        parts.append(f"{_text(device, 'name')} ({_text(device, 'arch')}) {done} of {submitted} done")
    return f"{_text(state, 'pid'):>8}  {'; '.join(parts) or 'no device is open'}  [{_text(state, 'program')}]"


def _device(device: dict[str, Any]) -> Iterator[str]:
    timeline = _dict(device, "timeline")
    state = f", DEAD: {device['dead']}" if device.get("dead") else ""
    yield f"device    {_text(device, 'name')} ({_text(device, 'arch')}){state}"
    yield f"timeline  {_text(timeline, 'done')} done, {_text(timeline, 'submitted')} submitted"
    yield from _reason("rings", device.get("rings"))
    for ring in _list(device, "rings"):
        yield f"ring      {_place(ring)}"
        yield f"          at get: {_text(ring, 'packet')}"
    for waiting in _list(device, "waiting"):
        line = _at(waiting)
        source = f": {waiting['source']}" if waiting.get("source") else ""
        yield (
            f"waiting   {_text(waiting, 'thread')} for {_text(waiting, 'signal')} >= {_text(waiting, 'value')} since "
            f"{_seconds(waiting, 'since_s')}{line}{source}"
        )
    yield from _work(device)
    yield from _memory(device)
    for fault in _list(device, "faults", str):
        yield f"fault     {fault}"
    for line in _list(device, "kernel_log", str):
        yield f"kernel    {line}"
    yield from windows([ring for ring in _list(device, "rings") if "packets" in ring])
    if "queues" in device:
        yield from _reason("queues", device["queues"])
        yield from queues(_list(device, "queues"))
    if "registers" in device:
        yield from _reason("registers", device["registers"])
        yield from registers(_dict(device, "registers"))
    if "waves" in device:
        yield from _reason("waves", device["waves"])
        yield from waves(_list(device, "waves"))


def _work(device: dict[str, Any]) -> Iterator[str]:
    work = device.get("work")
    yield from _reason("work", work)
    if not isinstance(work, dict):
        return
    now = work.get("now")
    if isinstance(now, dict):
        since = f", for at most {_seconds(now, 'at_most_s')}" if now.get("at_most_s") is not None else ""
        yield f"now       #{_text(now, 'value')}{since}{_at(now)}"
        for command in _list(now, "commands", str):
            yield f"          {command}"
        for awaited in _list(now, "awaits"):
            is_set = _integer(awaited, "is") >= _integer(awaited, "value")
            setters = ", ".join(_list(awaited, "set_by", str)) or "no submission that is remembered"
            state = "reached" if is_set else f"NOT reached: it is {_text(awaited, 'is')}; set by {setters}"
            yield f"          waits for {_text(awaited, 'signal')} >= {_text(awaited, 'value')}: {state}"
    else:
        yield "now       nothing is in flight"
    behind = _list(work, "behind")
    if behind:
        yield f"behind it ({_text(work, 'behind_count')})"
    for entry in behind[:SHOWN]:
        yield _submission(entry)
    finished = _list(work, "finished")
    if finished:
        yield "finished last"
    for entry in finished[:SHOWN]:
        yield _submission(entry)


def _submission(entry: dict[str, Any]) -> str:
    commands = _list(entry, "commands", str)
    more = _integer(entry, "command_count") - 1
    text = (commands[0] if commands else "nothing but its signal") + (
        f"; and {more} more" if more > 0 else ""
    )
    return f"  #{_text(entry, 'value')} {text}{_at(entry)}"


def _memory(device: dict[str, Any]) -> Iterator[str]:
    for signal in _list(device, "signals")[:SHOWN]:
        yield f"signal    {_text(signal, 'name')} is {_text(signal, 'value')}"
    memory = device.get("memory")
    yield from _reason("memory", memory)
    if not isinstance(memory, dict):
        return
    total, mapped = _text(memory, "bytes"), _text(memory, "mapped_bytes")
    yield f"memory    {total} bytes in {_text(memory, 'buffers')} buffers; {mapped} mapped"
    for entry in _list(memory, "by_name")[:SHOWN]:
        count = _integer(entry, "buffers")
        several = f" ({count} buffers)" if count > 1 else ""
        yield f"  {_integer(entry, 'bytes'):>12} bytes  {_text(entry, 'name')}{several}"


def windows(rings: list[dict[str, Any]]) -> Iterator[str]:
    """Rings with their words around get, the packet at get marked."""
    for ring in rings:
        yield f"words of  {_place(ring)} {_text(ring, 'unit')}{_doorbell(ring)}"
        if ring.get("note"):
            yield f"          {ring['note']}"
        packets = _list(ring, "packets")
        if not packets:
            yield "          nothing around get: all packets are read"
        for packet in packets:
            words = packet.get("words")
            numbers = [word for word in words if isinstance(word, int)] if isinstance(words, list) else []
            more = " ..." if _integer(packet, "word_count") > len(numbers) else ""
            mark = "->" if packet.get("is_at_get") else "  "
            yield f"   {mark} {_integer(packet, 'at'):#8x}  {_text(packet, 'packet')}"
            yield f"                {' '.join(f'{word & 0xFFFFFFFF:08x}' for word in numbers)}{more}"


def _place(ring: dict[str, Any]) -> str:
    return f"{_text(ring, 'name')}: get {_text(ring, 'get')}, put {_text(ring, 'put')}, size {_text(ring, 'size')}"


def _doorbell(ring: dict[str, Any]) -> str:
    return f", doorbell rung for {ring['doorbell']}" if isinstance(ring.get("doorbell"), int) else ""


def queues(found: list[dict[str, Any]]) -> Iterator[str]:
    """Queues as their kernel driver describes them."""
    for queue in found:
        yield f"queue     {_text(queue, 'name')}"
        for note in _list(queue, "notes", str):
            yield f"          {note}"
        fields = queue.get("fields")
        for name, value in fields.items() if isinstance(fields, dict) else ():
            yield f"          {name} = {f'{value:#x}' if isinstance(value, int) else value}"


def registers(found: dict[str, Any]) -> Iterator[str]:
    """Registers of the GPU, and its hardware queues."""
    for note in _list(found, "notes", str):
        yield f"note      {note}"
    for register in _list(found, "registers"):
        names = ", ".join(_list(register, "set", str))
        number, value = _integer(register, "number"), _integer(register, "value")
        yield f"register  {_text(register, 'name')} ({number:#x}) = {value:#010x}{f': {names}' if names else ''}"
    yield from queues(_list(found, "hardware_queues"))


def waves(found: list[dict[str, Any]]) -> Iterator[str]:
    """Where waves stand, those that are alike together."""
    for wave in found:
        if "missing" in wave:
            yield f"waves     of {_text(wave, 'kernel')}: {_text(wave, 'missing')}"
            continue
        places = ", ".join(_list(wave, "places", str))
        many = _integer(wave, "many")
        unit = _text(wave, "unit") + ("" if many == 1 else "s")
        pc = _integer(wave, "pc")
        at = f" at {pc:#x}" if pc else ""
        kernel = f": kernel {wave['kernel']}" if wave.get("kernel") else ""
        instruction = f": {wave['instruction']}" if wave.get("instruction") else ""
        more = ", ..." if many > len(_list(wave, "places", str)) and not wave.get("kernel") else ""
        yield f"waves     {many} {unit} of {places}{more}{kernel}{at}{instruction}"
        state = f"; {wave['state']}" if wave.get("state") else ""
        yield f"          {_text(wave, 'active')}{state}"
        registers = _dict(wave, "registers")
        if registers:
            values = (f"{name} {value:x}" for name, value in registers.items() if isinstance(value, int))
            yield f"          the first: {' '.join(values)}"


# ------------------------------------------------------------ what another process said, as the kind it should be


def _reason(name: str, value: Any) -> Iterator[str]:
    """A text in place of data says why there is none."""
    if isinstance(value, str):
        yield f"{name:<9} {value}"


def _list(data: dict[str, Any], name: str, kind: type = dict) -> list[Any]:
    value = data.get(name)
    return [entry for entry in value if isinstance(entry, kind)] if isinstance(value, list) else []


def _dict(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    return "?" if value is None or isinstance(value, (dict, list)) else str(value)


def _integer(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0


def _seconds(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    return f"{value:.3f} s" if isinstance(value, (int, float)) else "?"


def _at(data: dict[str, Any]) -> str:
    return f"  [{data['line']}]" if data.get("line") else ""
