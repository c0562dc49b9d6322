"""State: what this process knows about its devices now, as plain data for an inspector in another process.

In       the open devices, and those that were closed; which views are asked for: "rings", "queues", "waves",
         "registers", "words"
Out      dictionaries, lists, numbers and texts, bounded in size
Changes  nothing: no lock is taken, and shader cores alone are waited for; what cannot be read says why in its place
Next     inspector.py (who answers with it), hcq/inspect/text.py (the page made of it), ledger.py (submissions in
         words), hcq/system/inspection.py (words of a ring)

Everything is read while other threads go on, so two numbers may be of two moments.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hcq import backends, checks
from hcq.backend import load
from hcq.command import Dispatch, Signal, Wait, described, flat
from hcq.device import Device
from hcq.errors import DriverError, HcqError, UsageError
from hcq.events import waves
from hcq.lifetime import open_devices
from hcq.lifetime.recovery import Submitted
from hcq.observe import ledger
from hcq.observe.report_waves import is_emulated_here
from hcq.system import call_site

VIEWS = ("rings", "queues", "waves", "registers", "words")
SHOWN = 16  # entries of each list
WAVES = 64  # kinds of waves of a kernel
NAMES = 32  # names of buffers, those that hold the most
SIGNALS = 64
TEXT = 400  # characters of a line
TRIES = 4  # of reading what another thread changes meanwhile
FORMAT = 1  # of the answer: rises when a field changes its meaning

_gone: deque[tuple[str, str, str]] = deque(maxlen=SHOWN)  # devices that are closed: name, architecture, why


def watch(device: Device) -> None:
    """Remember devices that close from now on. What is imported for this kind of device is imported here: the thread
    that answers must not wait for an import of another one."""
    _inspection(device)
    if _remember not in open_devices.listeners:
        open_devices.listeners.append(_remember)


def _remember(device: Any) -> None:
    failures = getattr(device, "failures", [])
    why = f"{device.dead}; {failures[-1][2]}" if failures else str(device.dead)
    _gone.append((str(device.name), str(device.arch), _cut(why)))


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """All that is asked for. Raises UsageError for a view that there is not."""
    views = asked.get("views", [])
    if not isinstance(views, list) or not all(view in VIEWS for view in views):
        raise UsageError(f"views={checks.shown(views)}: give a list of {', '.join(VIEWS)}.")
    devices = [each for each in open_devices.devices() if isinstance(each, Device)]
    return {
        "format": FORMAT,
        "pid": os.getpid(),
        "program": _cut(" ".join(sys.orig_argv)),
        "devices": [_device(each, views) for each in devices],
        "closed": [{"name": name, "arch": arch, "why": why} for name, arch, why in list(_gone)],
    }


def _device(device: Device, views: Sequence[str]) -> dict[str, Any]:
    names, inspection = _Names(device), _inspection(device)
    # not `ring_states`: a ring may be unmapped while this thread looks at it
    rings: Any = [] if inspection is None else _read(lambda: inspection.rings(device))
    found: dict[str, Any] = {
        "name": device.name,
        "arch": device.arch,
        "dead": device.dead,
        "timeline": {"done": device.timeline.value, "submitted": device.timeline.submitted},
        "rings": rings,
        "work": _read(lambda: _work(device, names)),
        "waiting": _read(lambda: list(_waiting(device))),
        "signals": _read(lambda: _signals(device)),
        "memory": _read(lambda: _memory(device, names)),
        "faults": [_cut(why) for _, _, why in device.failures[-SHOWN:]],
        "kernel_log": _read(lambda: [_cut(line) for line in device.port.kernel_log()[-SHOWN:]]),
    }
    if "rings" not in views and isinstance(rings, list):
        found["rings"] = [{key: value for key, value in ring.items() if key != "packets"} for ring in rings]
    if "queues" in views:
        found["queues"] = [] if inspection is None else _read(lambda: inspection.queues(device))
    if "registers" in views and inspection is not None:
        found["registers"] = _read(lambda: _registers(device, inspection))
    if "waves" in views:
        found["waves"] = _read(lambda: _waves(device, names))
    if "words" in views and inspection is not None and inspection.words is not None:
        found["words"] = _read(lambda: inspection.words(device))
    return found


def _registers(device: Device, inspection: Any) -> dict[str, Any]:
    if inspection.registers is None:
        raise DriverError("this kind of device shows no registers.")
    found, notes = inspection.registers(device)
    return {**found, "notes": notes}


def _inspection(device: Device) -> Any:
    backend = backends.find(device.name.partition(":")[0])
    return load(backend.inspection) if backend is not None and backend.inspection else None


def _read(what: Callable[[], Any]) -> Any:
    """What a function says; a text with the reason when it cannot, as when a list changes each time it is read."""
    error: Exception | None = None
    for _ in range(TRIES):
        try:
            return what()
        except HcqError as refusal:
            return _cut(str(refusal))
        except Exception as problem:  # the program changes these things meanwhile, and may be in any state
            error = problem
    return _cut(f"could not be read: {type(error).__name__}: {error}")


def _cut(text: str) -> str:
    text = checks.printable(text)
    return text if len(text) <= TEXT else f"{text[:TEXT]}..."


# ------------------------------------------------------------ waves


def _waves(device: Device, names: _Names) -> list[dict[str, Any]] | str:
    """Where the kernels stand that run on an emulated GPU. Shader cores answer soon; hardware is not asked."""
    if not device.waves_missing:
        return "there are none: kernels run on the host's processor"
    if not is_emulated_here(device):  # a queue is not taken off a real GPU because somebody looks
        return f"not available on this hardware: {device.waves_missing}"
    programs = {
        what.program.code_va: str(what.program.name)
        for _, commands, _ in device.recent.copy()
        for what in flat(commands)
        if isinstance(what, Dispatch)
    }
    found: list[dict[str, Any]] = []
    for kernel in waves.look(os.getpid(), lambda entry, name: entry in programs):
        called = programs[kernel.entry]
        if not kernel.waves:
            found.append({"kernel": called, "missing": _cut(kernel.missing or "all have ended")})
        found += [_wave(called, kernel.entry, wave, names) for wave in kernel.waves[:WAVES]]
    return found or "none: no kernel of this process runs on the emulated GPU"


def _wave(kernel: str, entry: int, wave: waves.Wave, names: _Names) -> dict[str, Any]:
    state = f"waits for {wave.waits_for}" if wave.waits_for else ""
    if wave.spins_on:
        read = ", ".join(dict.fromkeys(names.name(va) for va in wave.spins_on))
        state = f"in a loop that stores nothing and reads {read}"
    where = wave.line or (f"+{wave.pc - entry:#x}" if wave.pc else "")
    return {
        "many": wave.many,
        "unit": wave.unit,
        "places": [wave.groups],
        "kernel": _cut(f"{kernel} {where}".strip()),
        "pc": wave.pc,
        "instruction": _cut(wave.instruction),
        "active": wave.active,
        "state": _cut(state),
    }


# ------------------------------------------------------------ work


def _work(device: Device, names: _Names) -> dict[str, Any]:
    """Submissions: the one that is next to finish, those behind it, and those that finished last."""
    done = device.timeline.value
    entries = list(device.recent.copy())
    late = [entry for entry in entries if entry[0] > done]
    past = [entry for entry in entries if entry[0] <= done]
    now: dict[str, Any] | None = None
    if late:
        now = {
            **_submission(late[0], entries, names, SHOWN),
            # when the one before it finished: it may have been submitted later
            "at_most_s": _since_s(device) if done else None,
            "awaits": [_await(what) for what in flat(late[0][1]) if isinstance(what, Wait)][:SHOWN],
        }
    return {
        "now": now,
        "behind": [_submission(entry, entries, names, 4) for entry in late[1 : SHOWN + 1]],
        "behind_count": max(len(late) - 1, 0),
        "finished": [_submission(entry, entries, names, 4) for entry in past[: -SHOWN - 1 : -1]],
    }


def _since_s(device: Device) -> float | None:
    seen = device.timeline.timestamp_ns
    return round(max(0, time.monotonic_ns() - seen) / 1e9, 6) if seen else None


def _submission(entry: Submitted, entries: list[Submitted], names: _Names, most: int) -> dict[str, Any]:
    value, commands, _ = entry
    inside = [_cut(described(what, names.name)) for what in flat(commands)]
    return {
        "value": value,
        "commands": inside[:most],
        "command_count": len(inside),
        "line": ledger.line(deque(entries), value),
    }


def _await(what: Wait) -> dict[str, Any]:
    """A wait of the device: which signal, how far it is, and which submissions would set it."""
    signal = open_devices.signal_at(what.signal)
    setters = [
        f"{device.name} #{number}"
        for device in open_devices.devices()
        if isinstance(device, Device)
        for number, commands, _ in device.recent.copy()
        for each in flat(commands)
        if isinstance(each, Signal) and each.signal == what.signal and each.value >= what.value
    ]
    return {
        "signal": f"signal@{what.signal:#x}" if signal is None else f"{signal.name} of {signal.device.name}",
        "value": what.value,
        "is": None if signal is None else int(signal._cell[0]),
        "set_by": setters[-SHOWN:],
    }


def _waiting(device: Device) -> Iterator[dict[str, Any]]:
    """Threads of the program that wait in this device."""
    frames = sys._current_frames()
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, (name, value, since_ns) in list(device.waits.items()):
        at = call_site.site_of(frames.get(ident))
        yield {
            "thread": threads.get(ident, str(ident)),
            "signal": name,
            "value": value,
            "since_s": round((time.monotonic_ns() - since_ns) / 1e9, 6),
            "line": call_site.where(at),
            "source": _cut(call_site.source_line(at)),
        }


def _signals(device: Device) -> list[dict[str, Any]]:
    found = [(va, signal) for va, signal in list(device.signals.items())][:SIGNALS]
    return [{"name": signal.name, "address": va, "value": int(signal._cell[0])} for va, signal in found]


# ------------------------------------------------------------ memory


class _Names:
    """What lies where in the memory of a device, as it was a moment ago."""

    def __init__(self, device: Device) -> None:
        live = _read(device.memory.owners)
        # addresses and names alone: a buffer that is held here would end in this thread
        self.blocks: list[tuple[int, int, str]] = sorted(
            (int(buffer.va), int(buffer.size_bytes), buffer.name or "unnamed")
            for buffer in (live if isinstance(live, list) else [])
        )
        self.timeline = device.timeline.va
        known = _read(lambda: list(device.signals.items()))
        found = known if isinstance(known, list) else []
        self.signals: dict[int, str] = {va: signal.name for va, signal in found}

    def name(self, va: int) -> str:
        """An address as a buffer and an offset in it."""
        if self.timeline <= va < self.timeline + 16:
            return "timeline"
        if va in self.signals:
            return self.signals[va]
        for start, size, name in self.blocks:
            if start <= va < start + max(size, 1):
                return f"{name}+{va - start:#x}" if va > start else name
        return f"{va:#x}"


def _memory(device: Device, names: _Names) -> dict[str, Any]:
    """Bytes in use by the names of buffers, most first."""
    held: dict[str, list[int]] = {}
    for _, size, name in names.blocks:
        entry = held.setdefault(name, [0, 0])
        entry[0] += 1
        entry[1] += size
    most = sorted(held.items(), key=lambda item: -item[1][1])
    return {
        "mapped_bytes": sum(dict(device.memory.regions).values()),
        "buffers": len(names.blocks),
        "bytes": sum(size for _, size, _ in names.blocks),
        "by_name": [{"name": name, "buffers": count, "bytes": size} for name, (count, size) in most[:NAMES]],
    }
