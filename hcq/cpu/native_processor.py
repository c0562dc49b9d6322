"""The command processor in memory: linked once for the process, what the host calls of it, and where threads start.

In       the machine
Out      `native_processor(machine)`
Changes  pages of code; the cache of files, where the compiled object is kept
Next     processor.py (its text, and compiling it), device.py (who starts its threads)
"""

from __future__ import annotations

import functools
import hashlib

from hcq import confined, native
from hcq.cache import DiskCache
from hcq.cpu import processor
from hcq.cpu.link import link
from hcq.errors import UsageError
from hcq.port import LinuxPort

KIND = "cpu-processor"  # of the cache's files
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
    """One copy for all CPU devices of the process: they share the count of sleeping hosts.

    The key is the IR text alone. The object is for a baseline processor, so the host's model does not matter, and any
    LLVM makes a right object of the same text; asking which one is installed would mean loading it.
    """
    for image in (DiskCache().get(KIND, processor.ir_text(machine)), _offered.get(key_of(machine))):
        if image is not None:
            try:
                return _linked(image, machine)
            except (UsageError, KeyError):
                pass  # an object of another version of ours: make it anew
    return _linked(_made(machine), machine)


def key_of(machine: processor.Machine) -> str:
    """What the object is made from, as a name that is the same everywhere."""
    return hashlib.sha256(processor.ir_text(machine).encode()).hexdigest()


def image_of(machine: processor.Machine) -> bytes:
    """The object itself, for a file that is to work where nothing can be compiled."""
    return DiskCache().get(KIND, processor.ir_text(machine)) or _made(machine)


def offer(key: str, image: bytes) -> None:
    """An object that a file holds, for a process whose cache has none. It does not get into the cache.

    key  as of `key_of`: the object is looked at only where it was made from this very text
    """
    if len(_offered) < MAX_OFFERED:
        _offered.setdefault(key, image)


def _made(machine: processor.Machine) -> bytes:
    image: bytes = confined.run(lambda: processor.build(machine), "compiling the CPU device")
    DiskCache().put(KIND, processor.ir_text(machine), image)
    return image


def _linked(image: bytes, machine: processor.Machine) -> NativeProcessor:
    """Raises UsageError when the object cannot be linked, KeyError when it lacks a function."""
    extra = {name: native.symbol(name) for name in ("syscall", "clock_gettime")}
    mapping = link(image, LinuxPort(), machine.name, "command processor", extra)
    try:
        return NativeProcessor(mapping.functions)
    except KeyError:
        mapping.close()
        raise
