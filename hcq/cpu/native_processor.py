"""The command processor in memory: linked once for the process, what the host calls of it, and where threads start.

In       the machine
Out      `native_processor(machine)`
Changes  pages of code
Next     processor.py (its text), tools/processor_objects.py (who makes the objects), device.py (who starts its threads)
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from hcq.cpu import processor
from hcq.cpu.link import link
from hcq.errors import DriverError
from hcq.system import native
from hcq.system.port import LinuxPort

FOLDER = Path(__file__).parent / "objects"
MAX_OFFERED = 16
_offered: dict[str, bytes] = {}


class NativeProcessor:
    """The linked command processor: what the host calls, and where threads start."""

    def __init__(self, functions: dict[str, int]) -> None:
        self.functions = {name: functions[name] for name in ("processor_main", "worker_main")}
        self.doorbell_ring = native.function(functions["doorbell_ring"], "void(*)(void *, uint64_t)")
        self.signal_set = native.function(functions["signal_set"], "void(*)(void *, uint64_t)")
        self.signal_wait = native.function(
            functions["signal_wait"], "uint64_t(*)(void *, uint64_t, int64_t, int64_t)"
        )
        self.fault_clear = native.function(functions["fault_clear"], "void(*)(void *)")
        self.stop_all = native.function(functions["stop_all"], "void(*)(void *)")


@functools.cache
def native_processor(machine: processor.Machine) -> NativeProcessor:
    """One copy for all CPU devices of the process: they share the count of sleeping hosts."""
    return _linked(image_of(machine), machine)


def key_of(machine: processor.Machine) -> str:
    """What the object is made from, as a name that is the same everywhere."""
    return hashlib.sha256(processor.ir_text(machine).encode()).hexdigest()


def image_of(machine: processor.Machine) -> bytes:
    """The object that comes with this package, or one that a program's file holds.

    Raises DriverError where there is none that was made from this very text.
    """
    key = key_of(machine)
    path = object_path(machine)
    if path.is_file():
        return path.read_bytes()
    if key in _offered:
        return _offered[key]
    raise DriverError(
        f"open CPU device: {path} is missing. It is made by python tools/processor_objects.py, which needs llvmlite."
    )


def object_path(machine: processor.Machine) -> Path:
    """Where the object lies. Its name holds its key: an object of another text is never found."""
    return FOLDER / f"processor-{machine.name}-{key_of(machine)[:16]}.o"


def offer(key: str, image: bytes) -> None:
    """An object that a file holds, for an installation that lacks its own.

    key  as of `key_of`: the object is looked at only where it was made from this very text
    """
    if len(_offered) < MAX_OFFERED:
        _offered.setdefault(key, image)


def _linked(image: bytes, machine: processor.Machine) -> NativeProcessor:
    """Raises UsageError when the object cannot be linked, KeyError when it lacks a function."""
    extra = {name: native.symbol(name) for name in ("syscall", "clock_gettime")}
    mapping = link(image, LinuxPort(), machine.name, "command processor", extra)
    try:
        return NativeProcessor(mapping.functions)
    except KeyError:
        mapping.close()
        raise
