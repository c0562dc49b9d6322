"""A warp in symbols: what steps find in place of registers, a group and a batch while they are traced.

In       a writer, a decoded function, where each register lies in the warp's memory
Out      Registers, SymbolicGroup: as a step expects them; lines that read and write registers
Changes  the writer
Next     native_text.py (who traces), hcq/emu/compiled/symbols.py (what an operation on a symbol writes)

A register is read from the warp's memory once in a block, and written there only when `flush` says so, in the threads
that execute. Predicates lie there as the bits of one word.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NoReturn

import numpy as np

from hcq.emu.compiled.straight import StraightWriter
from hcq.emu.compiled.symbols import NotTraced, Symbol, llvm_type
from hcq.emu.nv.shader.batch import WARP
from hcq.emu.nv.shader.decode import Decoded
from hcq.emu.nv.shader.syntax import Symbol as Name

BOOL, U64 = np.dtype(bool), np.dtype(np.uint64)
# special registers that all threads of a launch share; the others differ from thread to thread, or from block to block
COMMON = (
    "%ntid",
    "%nctaid",
    "%nclusterid",
    "%cluster_nctaid",
    "%nwarpid",
    "%nsmid",
    "%dynamic_smem",
    "%total_smem",
)
OF_BLOCK = ("%ctaid", "%clusterid")


class Layout:
    """Where registers lie in a warp's memory, and which of them are one number for all of its threads.

    is_aligned  each warp is of one block
    """

    def __init__(self, decoded: Decoded, is_aligned: bool) -> None:
        self.decoded, self.is_aligned = decoded, is_aligned
        self.offsets: dict[int, int] = {}  # bytes, by slot
        self.size_bytes = 0
        self.late: dict[int, Name] = dict(decoded.late)
        self.numbers: dict[int, int] = {}  # slots that a launch has one number for, by their place in a table
        self.uniform: set[int] = (
            set()
        )  # registers that the first block gives one number for all threads of a warp
        self.written: set[int] = set()
        # whether threads copy: what they store to shared memory meanwhile is the interpreter's
        self.has_copies = any("cp" == one.opcode for one in decoded.function.body)
        if is_aligned:
            self.uniform |= {slot for slot, name in self.late.items() if name.name.startswith(OF_BLOCK)}
        self.constants = {slot for key, slot in decoded.slots.items() if isinstance(key, tuple)}
        self.constants -= set(self.late)

    def offset(self, slot: int) -> int:
        """Where a register lies."""
        if slot not in self.offsets:
            dtype = self.decoded.first[slot].dtype
            llvm_type(dtype)
            self.offsets[slot] = self.size_bytes
            self.size_bytes += 64 if dtype == BOOL else max(64, WARP * dtype.itemsize)
        return self.offsets[slot]

    def is_number(self, slot: int) -> bool:
        """Whether a launch has one number for this slot."""
        name = self.late.get(slot)
        if name is None or slot == self.decoded.stack:
            return False
        return not name.name.startswith("%") or name.name.startswith(COMMON)


class Registers:
    """The registers of a warp, in symbols."""

    def __init__(self, w: StraightWriter, layout: Layout, mask: str) -> None:
        self.w, self.layout, self.mask = w, layout, mask
        self.off = w.say(f"xor i32 {mask}, -1", False)
        self.values: dict[int, Any] = {}
        self.dirty: set[int] = set()

    def _dtype(self, slot: int) -> Any:
        return self.layout.decoded.first[slot].dtype

    def __getitem__(self, slot: int) -> Any:
        found = self.values.get(slot)
        if found is None:
            found = self.values[slot] = self._read(slot)
        return found

    def _read(self, slot: int) -> Any:
        layout, w, dtype = self.layout, self.w, self._dtype(slot)
        if slot in layout.constants:
            return layout.decoded.first[slot]
        kind = llvm_type(dtype)
        if layout.is_number(slot):
            place = layout.numbers.setdefault(slot, len(layout.numbers))
            at = w.say(f"getelementptr i64, ptr %numbers, i64 {place}", False)
            whole = w.say(f"load i64, ptr {at}", False)
            return (
                w.symbol(f"trunc i64 {whole} to {kind}", dtype, False)
                if kind != "i64"
                else Symbol(w, whole, dtype, False)
            )
        at = w.say(f"getelementptr i8, ptr %own, i64 {layout.offset(slot)}", False)
        if dtype == BOOL:
            return w.mask_from(w.say(f"load i32, ptr {at}", False))
        if slot in layout.uniform:
            first = w.say(f"call i32 @llvm.cttz.i32(i32 {self.mask}, i1 false)", False)
            one = w.say(f"getelementptr {kind}, ptr {at}, i32 {first}", False)
            return w.symbol(f"load {kind}, ptr {one}", dtype, False)
        return w.symbol(f"load <{WARP} x {kind}>, ptr {at}, align 64", dtype, True)

    def __setitem__(self, slot: int, x: Any) -> None:
        dtype = self._dtype(slot)
        if not isinstance(x, (Symbol, np.ndarray, np.generic)) or x.dtype != dtype:
            raise NotTraced(f"a register of {dtype} with something else")
        if not isinstance(x, Symbol):
            x = self.w.constant(x, dtype)
        self.values[slot] = x
        self.dirty.add(slot)

    def flush(self, live: Container[int]) -> None:
        """Write what has changed to the warp's memory, if somebody reads it later."""
        w = self.w
        for slot in sorted(self.dirty):
            if slot not in live:
                continue
            x = self.values[slot]
            self.layout.written.add(slot)
            at = w.say(f"getelementptr i8, ptr %own, i64 {self.layout.offset(slot)}", False)
            if x.dtype == BOOL:
                bits = w.mask_bits(x)
                old = w.say(f"load i32, ptr {at}", False)
                kept = w.say(f"and i32 {old}, {self.off}", False)
                new = w.say(f"and i32 {bits}, {self.mask}", False)
                w.lines.append(f"store i32 {w.say(f'or i32 {kept}, {new}', False)}, ptr {at}")
                continue
            kind = f"<{WARP} x {llvm_type(x.dtype)}>"
            old_row = w.symbol(f"load {kind}, ptr {at}, align 64", x.dtype, True)
            mixed = w.select(w.mask_from(self.mask), x, old_row)
            w.lines.append(f"store {kind} {w.wide(mixed)}, ptr {at}, align 64")
        self.dirty.clear()


class SymbolicBatch:
    """A batch of one warp, as far as steps may know of it."""

    def __init__(self, windows: tuple[int, int]) -> None:
        self.shared_window, self.local_window = windows
        self.count = WARP
        self.lane_in_warp = np.arange(WARP)
        self.warp_start = np.zeros(1, np.int64)

    def __getattr__(self, name: str) -> NoReturn:
        raise NotTraced(f"a batch's {name}")


class SymbolicGroup:
    """The threads of a warp that execute: all that are asked for, as far as a step can see."""

    is_whole = True  # registers are mixed with old values when they are written to memory

    def __init__(self, w: StraightWriter, mask: str, windows: tuple[int, int]) -> None:
        self.batch = SymbolicBatch(windows)
        self.mask = w.mask_from(mask)
        self.full_mask = self.mask

    def __getattr__(self, name: str) -> NoReturn:
        raise NotTraced(f"a group's {name}")
