"""Interposing: functions that a loaded library imports are called through Python, so that its calls can be watched.

In       names of functions; the objects that this process has loaded
Out      calls of a hook with the original; everything put back at the end
Changes  the import tables (GOT) of loaded objects, while it is on
Next     seen.py (the hooks), watch.py (who installs them)
Source   the ELF specification: DT_JMPREL, DT_RELA, symbol tables; dl_iterate_phdr(3)

The tables are data, so no code is changed, nothing is preloaded and no compiler is needed: what a library calls as
`ioctl` is an address in its table, and another address is written there. A library that makes system calls by itself is
not seen.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

RELOCATIONS = {"x86_64": (7, 6), "aarch64": (1026, 1025)}  # JUMP_SLOT, GLOB_DAT
PT_DYNAMIC = 2
DT_PLTRELSZ, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_JMPREL = 2, 5, 6, 7, 8, 23
SYMBOL_BYTES, RELOCATION_BYTES = 24, 24
PAGE = mmap.PAGESIZE


class _Info(ctypes.Structure):
    """dl_phdr_info, its first members."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("count", ctypes.c_uint16),
    )


class Slot(NamedTuple):
    """An entry of an import table: where it is, what stood there."""

    at: int
    was: int


class Loaded(NamedTuple):
    """An object of this process, its dynamic section as pairs."""

    name: str
    base: int
    dynamic: Mapping[int, int]


class Interposer:
    """Redirects functions by name. hooks: name -> (ctypes prototype, wrap), where wrap(original) is the function."""

    def __init__(self, hooks: Mapping[str, tuple[Any, Callable[[Any], Any]]]) -> None:
        self.hooks = dict(hooks)
        self.slots: list[Slot] = []
        self.objects: set[str] = set()
        self._kept: list[Any] = []  # callbacks: as long as a table names one, it must live
        self._made: dict[tuple[str, int], int] = {}  # function and original -> address of its callback
        self._libc = ctypes.CDLL(None, use_errno=True)

    def install(self, wanted: Callable[[str], bool]) -> int:
        """Redirect in every loaded object that is wanted by its path, and was not before. Returns how many entries."""
        before = len(self.slots)
        for loaded in loaded_objects():
            if loaded.name and loaded.name not in self.objects and wanted(loaded.name):
                self.objects.add(loaded.name)
                for name, at in imports(loaded):
                    if name in self.hooks:
                        self._redirect(name, at)
        return len(self.slots) - before

    def remove(self) -> None:
        """Everything as it was."""
        for slot in reversed(self.slots):
            self._store(slot.at, slot.was)
        self.slots.clear()

    def _redirect(self, name: str, at: int) -> None:
        was = _number(at)
        if not hasattr(self._libc, name):
            return
        function = ctypes.cast(getattr(self._libc, name), ctypes.c_void_p).value or 0
        # not what stands there: that may be the linker's stub, which would write over ours
        key = (name, function)
        if key not in self._made:
            prototype, wrap = self.hooks[name]
            callback = prototype(wrap(prototype(function)))
            self._kept.append(callback)
            self._made[key] = ctypes.cast(callback, ctypes.c_void_p).value or 0
        self._store(at, self._made[key])
        self.slots.append(Slot(at, was))

    def _store(self, at: int, value: int) -> None:
        page = at // PAGE * PAGE
        mprotect = self._libc.mprotect
        mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        # tables may be read-only after loading (RELRO); that they stay writable in this process harms nothing
        if mprotect(page, PAGE, mmap.PROT_READ | mmap.PROT_WRITE):
            raise OSError(ctypes.get_errno(), f"mprotect({page:#x})")
        ctypes.c_uint64.from_address(at).value = value


def loaded_objects() -> list[Loaded]:
    """What this process has loaded, with a dynamic section."""
    found: list[Loaded] = []

    def note(info: Any, size: int, data: Any) -> int:
        entry = info.contents
        for number in range(entry.count):
            kind, _, _, address, _, _, length, _ = struct.unpack(
                "<2I6Q", ctypes.string_at(entry.headers + 56 * number, 56)
            )
            if kind == PT_DYNAMIC:
                pairs = struct.iter_unpack("<2Q", ctypes.string_at(entry.base + address, length // 16 * 16))
                found.append(
                    Loaded(
                        (entry.name or b"").decode("utf-8", "replace"), entry.base, dict(_until_null(pairs))
                    )
                )
        return 0

    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Info), ctypes.c_size_t, ctypes.c_void_p)
    callback = prototype(note)
    ctypes.CDLL(None).dl_iterate_phdr(callback, None)
    return found


def _until_null(pairs: Iterator[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    for tag, value in pairs:
        if not tag:
            return
        yield tag, value


def imports(loaded: Loaded) -> Iterator[tuple[str, int]]:
    """(function, address of its entry) for all that an object imports."""
    dynamic = {tag: _relocated(loaded, tag) for tag in loaded.dynamic}
    if DT_SYMTAB not in dynamic or DT_STRTAB not in dynamic:
        return
    kinds = RELOCATIONS.get(platform.machine(), ())
    for start, size in ((DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)):
        if start not in dynamic:
            continue
        table = ctypes.string_at(
            dynamic[start], loaded.dynamic.get(size, 0) // RELOCATION_BYTES * RELOCATION_BYTES
        )
        for offset, info, _ in struct.iter_unpack("<QQq", table):
            if info & 0xFFFFFFFF in kinds and info >> 32:
                symbol = dynamic[DT_SYMTAB] + SYMBOL_BYTES * (info >> 32)
                name = ctypes.string_at(
                    dynamic[DT_STRTAB] + int.from_bytes(ctypes.string_at(symbol, 4), "little")
                )
                yield name.decode("utf-8", "replace"), loaded.base + offset


def _relocated(loaded: Loaded, tag: int) -> int:
    """An address of the dynamic section: glibc has made it absolute, other loaders leave it relative."""
    value = loaded.dynamic[tag]
    return value if value >= loaded.base else value + loaded.base


def _number(at: int) -> int:
    return int(ctypes.c_uint64.from_address(at).value)
