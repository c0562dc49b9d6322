"""Accesses of compiled PTX: addresses of a warp are checked against what there is, then all threads load or store.

In       a load or a store, registers in symbols
Out      lines that carry it out, or leave off before it
Changes  the writer
Next     native_text.py (who asks), native_moves.py (what moves numbers), spaces.py (what the interpreter does),
         hcq/emu/compiled/accesses.py (ranges of memory)

Global memory is in ranges; each access keeps the one that its addresses were in last time. Where there is none, where
threads reach into several, or an address is no multiple of the size, the interpreter carries the access out, or reports
it. Of several threads that store to one address the last one wins, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hcq.emu.compiled import accesses
from hcq.emu.compiled.straight import StraightWriter
from hcq.emu.compiled.symbols import NotTraced, Symbol
from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import WARP
from hcq.emu.nv.shader.decode import Code
from hcq.emu.nv.shader.memory_ops import access_of, fit
from hcq.emu.nv.shader.native_moves import AT, get, put, result_of
from hcq.emu.nv.shader.symbolic_batch import BOOL, U64, Registers
from hcq.emu.nv.shader.syntax import Discard, Operand

Leave = Callable[[], str]  # a label that leaves off before the instruction


# functions that a program has when it calls them
SOMETIMES = {
    f"@{verb}{bits}x{count}": text(bits, count)
    for verb, text in (("get", get), ("put", put))
    for bits in (8, 16, 32, 64)
    for count in (1, 2, 4, 8)
}
PRELUDE = f"""
declare i32 @llvm.cttz.i32(i32, i1)
declare <{WARP} x i32> @llvm.masked.gather.v{WARP}i32.v{WARP}p0(<{WARP} x ptr>, i32, <{WARP} x i1>, <{WARP} x i32>)

define internal i1 @seek(ptr %table, ptr %site, {AT} %at, i32 %m, i64 %size, i1 %write) noinline cold #0 {{
  %start = load i64, ptr %site
  %limitp = getelementptr i64, ptr %site, i64 {accesses.LIMIT}
  %limit = load i64, ptr %limitp
  %si = insertelement {AT} poison, i64 %start, i64 0
  %ss = shufflevector {AT} %si, {AT} poison, <{WARP} x i32> zeroinitializer
  %li = insertelement {AT} poison, i64 %limit, i64 0
  %ls = shufflevector {AT} %li, {AT} poison, <{WARP} x i32> zeroinitializer
  %off = sub {AT} %at, %ss
  %out = icmp uge {AT} %off, %ls
  %ob = bitcast <{WARP} x i1> %out to i32
  %bad = and i32 %ob, %m
  %any = icmp ne i32 %bad, 0
  %which = select i1 %any, i32 %bad, i32 %m
  %n = call i32 @llvm.cttz.i32(i32 %which, i1 false)
  %a = extractelement {AT} %at, i32 %n
  %p = getelementptr i64, ptr %site, i64 {accesses.ADDRESS}
  store i64 %a, ptr %p
  %again = call i1 @find(ptr %table, ptr %site, i64 %size, i1 %write)
  %go = and i1 %again, %any
  br i1 %go, label %yes, label %no
yes:
  ret i1 true
no:
  %tp = getelementptr i64, ptr %site, i64 {accesses.TRIES}
  store i64 0, ptr %tp
  ret i1 false
}}
attributes #0 = {{ "min-legal-vector-width"="512" }}
"""


class Place(NamedTuple):
    """Addresses of a warp, and the range that they have to be in: from `start` on, so many. The host's begin at delta.

    site   where that range is kept, and `again`: where the access begins anew with another one
    """

    at: str
    start: str
    limit: str
    delta: str
    site: str = ""
    again: str = ""

    @property
    def arguments(self) -> str:
        """As functions take them."""
        return f"{AT} {self.at}, i64 {self.start}, i64 {self.limit}, i64 {self.delta}"


class Access:
    """One load or store being written."""

    def __init__(
        self,
        w: StraightWriter,
        registers: Registers,
        windows: tuple[int, int],
        site: int,
        is_write: bool,
        leave: Leave,
    ) -> None:
        self.is_write, self._again = is_write, ""
        self.w, self.registers, self.windows, self.site, self.leave = w, registers, windows, site, leave
        self.on = registers.mask

    # -- which threads

    def guard(self, code: Code) -> None:
        """Only threads whose guard holds; if there are none, nothing is done."""
        if code.guard is None:
            return
        slot, negated = code.guard
        chosen = self.registers[slot]
        bits = self.w.mask_bits(self.w.as_symbol(~chosen if negated else chosen, BOOL))
        self.on = self.w.say(f"and i32 {bits}, {self.registers.mask}", False)

    # -- addresses

    def leave_if(self, condition: str, stem: str) -> None:
        """Leave before the instruction where a condition holds."""
        w = self.w
        go = w.fresh(stem)[1:]
        w.lines += [f"br i1 {condition}, label %{self.leave()}, label %{go}", f"{go}:"]

    def _some(self, condition: str) -> str:
        """Whether a condition of threads holds in one that is on."""
        w = self.w
        bits = w.say(f"bitcast <{WARP} x i1> {condition} to i32", True)
        return w.say(f"icmp ne i32 {w.say(f'and i32 {bits}, {self.on}', True)}, 0", True)

    def _count(self, limit: str, size: int) -> str:
        """At how many addresses so many bytes are below a limit."""
        w = self.w
        fits = w.say(f"icmp uge i64 {limit}, {size}", False)
        return w.say(f"select i1 {fits}, i64 {w.say(f'sub i64 {limit}, {size - 1}', False)}, i64 0", False)

    def _within(self, at: str, limit: str, size: int) -> str:
        """Where [at, at + size) is below a limit."""
        w = self.w
        return w.say(f"icmp ult {AT} {at}, {w.wide(w.symbol_of(self._count(limit, size), U64))}", True)

    def _add(self, at: str, more: str) -> str:
        return self.w.say(f"add {AT} {at}, {more}", True)

    def _rows(self, name: str) -> str:
        return self.w.say(f"load {AT}, ptr {name}, align 64", True)

    def place(self, where: Any, at: Any, size: int, is_write: bool) -> Place:
        """Addresses, and the range that they have to be in."""
        w = self.w
        text = w.wide(w.as_symbol(at, U64))
        is_generic = where is spaces.GENERIC and size <= spaces.MOST_BYTES
        if where in (spaces.GLOBAL, spaces.GENERIC) and not is_generic:
            site = self._site()
            start, limit, delta = (
                accesses.field(w, site, number) for number in (accesses.START, accesses.LIMIT, accesses.DELTA)
            )
            return Place(text, start, limit, delta, site, self._again)
        if size > spaces.MOST_BYTES:
            raise NotTraced("an access of more than 16 bytes to memory that is not global")
        shared = self._shared_size(is_write)
        if where is spaces.SHARED:
            if self.registers.layout.is_aligned:
                begin = w.say("load i64, ptr %starts", False)
                return Place(text, "0", self._count(shared, size), begin)
            return self._own(text, shared, "%starts", size)
        if where is spaces.LOCAL:
            return self._own(text, "%localsize", "%locals", size)
        if is_generic:
            return self._generic(text, shared, size)
        raise NotTraced("parameters of each thread")

    def _shared_size(self, is_write: bool) -> str:
        """None for stores while copies of threads to shared memory are under way: who wins is the interpreter's."""
        w = self.w
        if not is_write or not self.registers.layout.has_copies:
            return "%storedsize" if is_write else "%sharedsize"
        some = w.say(f"icmp ne i64 {w.say('load i64, ptr %p_copying', False)}, 0", False)
        return w.say(f"select i1 {some}, i64 0, i64 %storedsize", False)

    def _own(self, at: str, limit: str, starts: str, size: int) -> Place:
        """Addresses in a stretch that each thread has for itself."""
        outside = self.w.say(f"xor <{WARP} x i1> {self._within(at, limit, size)}, splat (i1 true)", True)
        self.leave_if(self._some(outside), "in")
        return Place(self._add(at, self._rows(starts)), "0", "-1", "0")

    def _site(self) -> str:
        w = self.w
        site = w.say(
            f"getelementptr [{accesses.SITE_WORDS} x i64], ptr %sites, i64 {self.site}", False, "site"
        )
        self._again = w.fresh("try")[1:]
        w.lines += [f"br label %{self._again}", f"{self._again}:"]
        return site

    def _generic(self, at: str, shared: str, size: int) -> Place:
        """Addresses in the windows of shared and of local memory; all others are global."""
        w = self.w
        site = self._site()
        start, limit, delta = (
            w.wide(w.symbol_of(accesses.field(w, site, number), U64))
            for number in (accesses.START, accesses.LIMIT, accesses.DELTA)
        )
        inside = w.say(f"icmp ult {AT} {w.say(f'sub {AT} {at}, {start}', True)}, {limit}", True)
        there = self._add(at, delta)
        for window, extent, begin in (
            (self.windows[0], shared, self._rows("%starts")),
            (self.windows[1], "%localsize", self._rows("%locals")),
        ):
            own = w.say(f"sub {AT} {at}, splat (i64 {window})", True)
            here = self._within(own, extent, size)
            inside = w.say(f"or <{WARP} x i1> {inside}, {here}", True)
            other = self._add(own, begin)
            there = w.say(f"select <{WARP} x i1> {here}, {AT} {other}, {AT} {there}", True)
        outside = w.say(f"xor <{WARP} x i1> {inside}, splat (i1 true)", True)
        bits = w.say(f"bitcast <{WARP} x i1> {outside} to i32", True)
        bad = w.say(f"and i32 {bits}, {self.on}", True)
        is_bad = w.say(f"icmp ne i32 {bad}, 0", True)
        go = w.fresh("go")[1:]
        w.lines += [f"br i1 {is_bad}, label %{go}look, label %{go}", f"{go}look:"]
        self._seek(site, at, bad, size)
        w.lines.append(f"{go}:")
        return Place(there, "0", "-1", "0")

    def _seek(self, site: str, at: str, which: str, size: int) -> None:
        """Look for the range that addresses are in, and begin anew; or leave."""
        found = self.w.say(
            f"call i1 @seek(ptr %table, ptr {site}, {AT} {at}, i32 {which}, i64 {size}, "
            f"i1 {str(self.is_write).lower()})",
            False,
        )
        self.w.lines.append(f"br i1 {found}, label %{self._again}, label %{self.leave()}")

    def check(self, ok: str, place: Place, size: int) -> None:
        """Go on where an access was made; else look for another range, or leave."""
        w = self.w
        if not place.site:
            self.leave_if(w.say(f"xor i1 {ok}, true", False), "made")
            return
        go = w.fresh("made")[1:]
        w.lines += [f"br i1 {ok}, label %{go}, label %{go}look", f"{go}look:"]
        self._seek(place.site, place.at, self.on, size)
        w.lines.append(f"{go}:")
        tries = w.say(f"getelementptr i64, ptr {place.site}, i64 {accesses.TRIES}", False)
        w.lines.append(f"store i64 0, ptr {tries}")

    # -- numbers

    def fetch(self, place: Place, bits: int, count: int) -> list[str]:
        """So many numbers of each thread, side by side."""
        w, kind = self.w, result_of(bits, count)
        made = w.say(f"call {kind} @get{bits}x{count}({place.arguments}, i32 {self.on})", True)
        self.check(w.say(f"extractvalue {kind} {made}, 0", False), place, bits // 8 * count)
        return [w.say(f"extractvalue {kind} {made}, {number + 1}", True) for number in range(count)]

    def keep(self, place: Place, values: list[Symbol]) -> None:
        """Store numbers of each thread, side by side."""
        w, bits, count = self.w, 8 * values[0].itemsize, len(values)
        given = ", ".join(f"<{WARP} x i{bits}> {w.wide(value)}" for value in values)
        ok = w.say(f"call i1 @put{bits}x{count}({given}, {place.arguments}, i32 {self.on})", False)
        self.check(ok, place, bits // 8 * count)

    # -- parameters

    def parameters(self, at: Any, size: int, scalar: Any, count: int) -> list[Symbol]:
        """Numbers at an address that all threads have."""
        w = self.w
        place = w.as_symbol(at, U64)
        if place.is_vector or size > spaces.MOST_BYTES:
            raise NotTraced("parameters of each thread")
        text = place.text
        low = w.say(f"and i64 {text}, {size - 1}", False)
        odd = w.say(f"icmp ne i64 {low}, 0", False)
        end = w.say(f"add i64 {text}, {size}", False)
        beyond = w.say(f"icmp ugt i64 {end}, %parambytes", False)
        far = w.say(f"icmp ult i64 {end}, {text}", False)
        bad = w.say(f"or i1 {w.say(f'or i1 {odd}, {beyond}', False)}, {far}", False)
        self.leave_if(bad, "param")
        bits = 8 * np.dtype(scalar).itemsize
        found = []
        for number in range(count):
            where = w.say(f"add i64 {text}, {number * bits // 8}", False)
            pointer = w.say(f"getelementptr i8, ptr %params, i64 {where}", False)
            found.append(w.symbol(f"load i{bits}, ptr {pointer}, align 1", np.dtype(scalar), False))
        return found


def load(code: Code, access: Access) -> None:
    """`ld` and `ldu`."""
    where, at_of, type_, operands = access_of(code, 1, 0)
    code.done()
    count, size = len(operands), type_.size_bytes * len(operands)
    w, registers = access.w, access.registers
    if type_.size_bytes > 8:
        raise NotTraced("numbers of 16 bytes")
    access.guard(code)
    at = at_of(registers)  # type: ignore[arg-type]
    if where is spaces.PARAMS:
        if code.guard is not None:
            raise NotTraced("parameters of some threads")
        values = access.parameters(at, size, type_.bits, count)
    else:
        place = access.place(where, at, size, is_write=False)
        texts = access.fetch(place, 8 * type_.size_bytes, count)
        values = [Symbol(w, text, type_.bits, True) for text in texts]
    for operand, value in zip(operands, values):
        if not isinstance(operand, Discard):
            deliver(code, access, operand, value, type_)


def deliver(code: Code, access: Access, operand: Operand, value: Any, type_: Any) -> None:
    """Into a register, in the threads that are on."""
    w, registers = access.w, access.registers
    slot = code.destination(operand, type_, is_wide=True)
    extend = fit(type_, code.lowering.decoded.first[slot].dtype.type)
    if extend is not None:
        value = extend(value)
    if access.on != registers.mask:
        value = w.select(w.mask_from(access.on), value, w.as_symbol(registers[slot], value.dtype))
    registers[slot] = value


def store(code: Code, access: Access) -> None:
    """`st`."""
    where, at_of, type_, operands = access_of(code, 0, 1)
    code.done()
    if type_.size_bytes > 8 or where is spaces.PARAMS:
        raise NotTraced("a store of numbers of 16 bytes, or to parameters")
    w, registers = access.w, access.registers
    access.guard(code)
    values = []
    for operand in operands:
        data = registers[code.slot(operand, type_, is_wide=True)]
        values.append(w.as_symbol(data.astype(type_.bits), np.dtype(type_.bits)))
    size = type_.size_bytes * len(operands)
    access.keep(access.place(where, at_of(registers), size, is_write=True), values)  # type: ignore[arg-type]
