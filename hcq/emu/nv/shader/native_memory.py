"""Accesses of compiled PTX: addresses of a warp are checked against what there is, then all threads load or store.

In       a load or a store, registers in symbols
Out      lines that carry it out, or leave off before it
Changes  the writer
Next     native_text.py (who asks), spaces.py (what the interpreter does), hcq/emu/compiled/accesses.py (ranges of memory)

Global memory is in ranges; each access keeps the one that its addresses were in last time. Where there is none, where
threads reach into several, or an address is no multiple of the size, the interpreter carries the access out, or reports
it. Of several threads that store to one address the last one wins, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.compiled import accesses
from hcq.emu.compiled.straight import StraightWriter
from hcq.emu.compiled.symbols import NotTraced, Symbol
from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import WARP
from hcq.emu.nv.shader.decode import Code
from hcq.emu.nv.shader.memory_ops import access_of, fit
from hcq.emu.nv.shader.symbolic_batch import BOOL, U64, Registers
from hcq.emu.nv.shader.syntax import Discard, Operand

AT = f"<{WARP} x i64>"
Leave = Callable[[], str]  # a label that leaves off before the instruction


def _fetch(bits: int) -> str:
    """A number of each thread: from one address, thread beside thread, or from anywhere."""
    kind, size = f"<{WARP} x i{bits}>", bits // 8
    lines = [
        f"define internal {kind} @fetch{bits}({AT} %at, i32 %m) noinline #0 {{",
        *_first(size),
        "  br i1 %beside, label %row, label %other",
        "row:",
        "  %all = icmp eq i32 %m, -1",
        "  br i1 %all, label %whole, label %some",
        "whole:",
        f"  %x = load {kind}, ptr %p, align 1",
        f"  ret {kind} %x",
        "some:",
        f"  %y = call {kind} @llvm.masked.load.v{WARP}i{bits}.p0(ptr %p, i32 1, <{WARP} x i1> %on, {kind} zeroinitializer)",
        f"  ret {kind} %y",
        "other:",
        f"  %equal = icmp eq {AT} %at, %ones",
        f"  %eb = bitcast <{WARP} x i1> %equal to i32",
        "  %ec = and i32 %eb, %m",
        "  %same = icmp eq i32 %ec, %m",
        "  br i1 %same, label %one, label %spread",
        "one:",
        "  %fp = inttoptr i64 %a to ptr",
        f"  %z = load i{bits}, ptr %fp, align 1",
        f"  %zi = insertelement {kind} poison, i{bits} %z, i64 0",
        f"  %zs = shufflevector {kind} %zi, {kind} poison, <{WARP} x i32> zeroinitializer",
        f"  ret {kind} %zs",
        "spread:",
    ]
    if bits >= 32:
        lines += [
            f"  %ps = inttoptr {AT} %at to <{WARP} x ptr>",
            f"  %g = call {kind} @llvm.masked.gather.v{WARP}i{bits}.v{WARP}p0(<{WARP} x ptr> %ps, i32 1, "
            f"<{WARP} x i1> %on, {kind} zeroinitializer)",
            f"  ret {kind} %g",
            "}",
        ]
    else:
        lines += [
            *_loop_head(),
            f"  %v = load i{bits}, ptr %lp, align 1",
            f"  %slot = getelementptr i{bits}, ptr %kept, i32 %n",
            f"  store i{bits} %v, ptr %slot, align 1",
            *_loop_tail(),
            f"  %result = load {kind}, ptr %kept, align 64",
            f"  ret {kind} %result",
            "}",
        ]
    mask = f"<{WARP} x i1>"
    declared = [
        f"declare {kind} @llvm.masked.load.v{WARP}i{bits}.p0(ptr, i32, {mask}, {kind})",
        f"declare {kind} @llvm.masked.gather.v{WARP}i{bits}.v{WARP}p0(<{WARP} x ptr>, i32, {mask}, {kind})",
    ]
    return "\n".join([*declared[: 2 if bits == 64 else 1], *lines])


def _first(size: int) -> list[str]:
    """The address of the first thread that is on, and whether all others lie behind it."""
    steps = ", ".join(f"i64 {size * lane}" for lane in range(WARP))
    return [
        f"  %kept = alloca [{WARP} x i64], align 64",
        f"  %on = bitcast i32 %m to <{WARP} x i1>",
        "  %zeros = call i32 @llvm.cttz.i32(i32 %m, i1 false)",
        "  %first = and i32 %zeros, 31",
        f"  %a = extractelement {AT} %at, i32 %first",
        "  %wide = zext i32 %first to i64",
        f"  %before = mul i64 %wide, {size}",
        "  %base = sub i64 %a, %before",
        "  %p = inttoptr i64 %base to ptr",
        f"  %ai = insertelement {AT} poison, i64 %a, i64 0",
        f"  %ones = shufflevector {AT} %ai, {AT} poison, <{WARP} x i32> zeroinitializer",
        f"  %bi = insertelement {AT} poison, i64 %base, i64 0",
        f"  %bases = shufflevector {AT} %bi, {AT} poison, <{WARP} x i32> zeroinitializer",
        f"  %next = add {AT} %bases, <{steps}>",
        f"  %is = icmp eq {AT} %at, %next",
        f"  %ib = bitcast <{WARP} x i1> %is to i32",
        "  %ic = and i32 %ib, %m",
        "  %beside = icmp eq i32 %ic, %m",
    ]


def _loop_head() -> list[str]:
    return [
        f"  %places = alloca {AT}, align 64",
        f"  store {AT} %at, ptr %places, align 64",
        "  br label %loop",
        "loop:",
        "  %rest = phi i32 [%m, %spread], [%less, %loop]",
        "  %n = call i32 @llvm.cttz.i32(i32 %rest, i1 false)",
        "  %ip = getelementptr i64, ptr %places, i32 %n",
        "  %i = load i64, ptr %ip, align 8",
        "  %lp = inttoptr i64 %i to ptr",
    ]


def _loop_tail() -> list[str]:
    return [
        "  %down = sub i32 %rest, 1",
        "  %less = and i32 %rest, %down",
        "  %more = icmp ne i32 %less, 0",
        "  br i1 %more, label %loop, label %end",
        "end:",
    ]


def _keep(bits: int) -> str:
    """A number of each thread is stored, in their order."""
    kind, size = f"<{WARP} x i{bits}>", bits // 8
    lines = [
        f"declare void @llvm.masked.store.v{WARP}i{bits}.p0({kind}, ptr, i32, <{WARP} x i1>)",
        f"define internal void @keep{bits}({kind} %x, {AT} %at, i32 %m) noinline #0 {{",
        *_first(size),
        "  br i1 %beside, label %row, label %spread",
        "row:",
        "  %all = icmp eq i32 %m, -1",
        "  br i1 %all, label %whole, label %some",
        "whole:",
        f"  store {kind} %x, ptr %p, align 1",
        "  ret void",
        "some:",
        f"  call void @llvm.masked.store.v{WARP}i{bits}.p0({kind} %x, ptr %p, i32 1, <{WARP} x i1> %on)",
        "  ret void",
        "spread:",
    ]
    if bits >= 32:
        lines += [
            f"  %ps = inttoptr {AT} %at to <{WARP} x ptr>",
            f"  call void @llvm.masked.scatter.v{WARP}i{bits}.v{WARP}p0({kind} %x, <{WARP} x ptr> %ps, i32 1, "
            f"<{WARP} x i1> %on)",
            "  ret void",
            "}",
        ]
        lines.insert(
            0,
            f"declare void @llvm.masked.scatter.v{WARP}i{bits}.v{WARP}p0({kind}, <{WARP} x ptr>, i32, <{WARP} x i1>)",
        )
    else:
        lines += [
            f"  store {kind} %x, ptr %kept, align 64",
            *_loop_head(),
            f"  %slot = getelementptr i{bits}, ptr %kept, i32 %n",
            f"  %v = load i{bits}, ptr %slot, align 1",
            f"  store i{bits} %v, ptr %lp, align 1",
            *_loop_tail(),
            "  ret void",
            "}",
        ]
    return "\n".join(lines)


def _rows() -> str:
    """Four words of each thread, where all threads are on and lie side by side."""
    v, whole = f"<{WARP} x i32>", f"<{4 * WARP} x i32>"
    four = f"{{{v}, {v}, {v}, {v}}}"
    lines = [
        f"define internal {four} @fetchx4({AT} %at, i32 %m) noinline #0 {{",
        *_first(16),
        "  %all = icmp eq i32 %m, -1",
        "  %both = and i1 %beside, %all",
        "  br i1 %both, label %row, label %other",
        "row:",
        f"  %x = load {whole}, ptr %p, align 1",
    ]
    found = []
    for word in range(4):
        order = ", ".join(f"i32 {4 * lane + word}" for lane in range(WARP))
        lines.append(f"  %r{word} = shufflevector {whole} %x, {whole} poison, <{WARP} x i32> <{order}>")
        found.append(f"%r{word}")
    lines += [*_four_of(four, found, "a"), "other:"]
    for word in range(4):
        lines += [
            f"  %at{word} = add {AT} %at, splat (i64 {4 * word})",
            f"  %s{word} = call {v} @fetch32({AT} %at{word}, i32 %m)",
        ]
    lines += [*_four_of(four, [f"%s{word}" for word in range(4)], "b"), "}"]
    return "\n".join(lines)


def _four_of(four: str, texts: list[str], stem: str) -> list[str]:
    made, lines = "poison", []
    for number, text in enumerate(texts):
        lines.append(f"  %{stem}{number} = insertvalue {four} {made}, <{WARP} x i32> {text}, {number}")
        made = f"%{stem}{number}"
    return [*lines, f"  ret {four} {made}"]


# functions that a program has when it or one of those before calls them
SOMETIMES = {"@fetchx4": _rows()}
SOMETIMES |= {f"@fetch{bits}": _fetch(bits) for bits in (8, 16, 32, 64)}
SOMETIMES |= {f"@keep{bits}": _keep(bits) for bits in (8, 16, 32, 64)}
PRELUDE = f"""
declare i32 @llvm.cttz.i32(i32, i1)
declare <{WARP} x i32> @llvm.masked.gather.v{WARP}i32.v{WARP}p0(<{WARP} x ptr>, i32, <{WARP} x i1>, <{WARP} x i32>)

define internal i1 @seek(ptr %table, ptr %site, {AT} %at, i32 %bad, i64 %size, i1 %write) noinline cold #0 {{
  %n = call i32 @llvm.cttz.i32(i32 %bad, i1 false)
  %a = extractelement {AT} %at, i32 %n
  %p = getelementptr i64, ptr %site, i64 {accesses.ADDRESS}
  store i64 %a, ptr %p
  %again = call i1 @find(ptr %table, ptr %site, i64 %size, i1 %write)
  br i1 %again, label %yes, label %no
yes:
  ret i1 true
no:
  %tp = getelementptr i64, ptr %site, i64 {accesses.TRIES}
  store i64 0, ptr %tp
  ret i1 false
}}
attributes #0 = {{ "min-legal-vector-width"="512" }}
"""


class Access:
    """One load or store being written."""

    def __init__(
        self, w: StraightWriter, registers: Registers, windows: tuple[int, int], site: int, leave: Leave
    ) -> None:
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

    def _lanes(self, at: Any) -> str:
        return self.w.wide(self.w.as_symbol(at, U64))

    def _leave_if(self, condition: str, stem: str) -> None:
        w = self.w
        go = w.fresh(stem)[1:]
        w.lines += [f"br i1 {condition}, label %{self.leave()}, label %{go}", f"{go}:"]

    def _some(self, condition: str) -> str:
        """Whether a condition of threads holds in one that is on."""
        w = self.w
        bits = w.say(f"bitcast <{WARP} x i1> {condition} to i32", True)
        return w.say(f"icmp ne i32 {w.say(f'and i32 {bits}, {self.on}', True)}, 0", True)

    def _check_alignment(self, at: str, size: int) -> None:
        if size == 1:
            return
        w = self.w
        low = w.say(f"and {AT} {at}, splat (i64 {size - 1})", True)
        self._leave_if(self._some(w.say(f"icmp ne {AT} {low}, zeroinitializer", True)), "even")

    def _within(self, at: str, limit: str, size: int) -> str:
        """Where [at, at + size) is below a limit."""
        w = self.w
        fits = w.say(f"icmp uge i64 {limit}, {size}", False)
        last = w.say(f"select i1 {fits}, i64 {w.say(f'sub i64 {limit}, {size - 1}', False)}, i64 0", False)
        return w.say(f"icmp ult {AT} {at}, {w.wide(w.symbol_of(last, U64))}", True)

    def _add(self, at: str, more: str) -> str:
        return self.w.say(f"add {AT} {at}, {more}", True)

    def _shared_size(self, is_write: bool) -> str:
        """None for stores while copies of threads to shared memory are under way: who wins is the interpreter's."""
        return "%storedsize" if is_write else "%sharedsize"

    def shared(self, at: str, size: int, is_write: bool) -> str:
        """Addresses in the block's shared memory."""
        w = self.w
        inside = self._within(at, self._shared_size(is_write), size)
        outside = w.say(f"xor <{WARP} x i1> {inside}, splat (i1 true)", True)
        self._leave_if(self._some(outside), "in")
        return self._add(at, self._shared_start())

    def _shared_start(self) -> str:
        return self.w.say(f"load {AT}, ptr %starts, align 64", True)

    def _local_start(self) -> str:
        return self.w.say(f"load {AT}, ptr %locals, align 64", True)

    def local(self, at: str, size: int) -> str:
        """Addresses in the thread's local memory."""
        w = self.w
        outside = w.say(f"xor <{WARP} x i1> {self._within(at, '%localsize', size)}, splat (i1 true)", True)
        self._leave_if(self._some(outside), "in")
        return self._add(at, self._local_start())

    def _site(self) -> str:
        return self.w.say(
            f"getelementptr [{accesses.SITE_WORDS} x i64], ptr %sites, i64 {self.site}", False, "site"
        )

    def everywhere(self, at: str, size: int, is_write: bool, is_generic: bool) -> str:
        """Addresses in global memory; generic ones may also be in the windows of shared and of local memory."""
        w = self.w
        site = self._site()
        tag = w.fresh("try")[1:]
        w.lines += [f"br label %{tag}", f"{tag}:"]
        start, limit, delta = (
            w.wide(w.symbol_of(accesses.field(w, site, number), U64))
            for number in (accesses.START, accesses.LIMIT, accesses.DELTA)
        )
        inside = w.say(f"icmp ult {AT} {w.say(f'sub {AT} {at}, {start}', True)}, {limit}", True)
        there = self._add(at, delta)
        if is_generic:
            for window, extent, begin in (
                (self.windows[0], self._shared_size(is_write), self._shared_start()),
                (self.windows[1], "%localsize", self._local_start()),
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
        found = w.fresh("found")
        w.lines += [
            f"br i1 {is_bad}, label %{tag}look, label %{tag}go",
            f"{tag}look:",
            f"{found} = call i1 @seek(ptr %table, ptr {site}, {AT} {at}, i32 {bad}, i64 {size}, "
            f"i1 {str(is_write).lower()})",
            f"br i1 {found}, label %{tag}, label %{self.leave()}",
            f"{tag}go:",
        ]
        w.lines.append(f"store i64 0, ptr {w.say(f'getelementptr i64, ptr {site}, i64 {accesses.TRIES}', False)}")
        return there

    def host(self, where: Any, at: Any, size: int, is_write: bool) -> str:
        """Addresses of the host's memory."""
        text = self._lanes(at)
        if where in (spaces.GLOBAL, spaces.GENERIC):
            self._check_alignment(text, size)
            is_generic = where is spaces.GENERIC and size <= spaces.MOST_BYTES
            return self.everywhere(text, size, is_write, is_generic)
        if size > spaces.MOST_BYTES:
            raise NotTraced("an access of more than 16 bytes to memory that is not global")
        self._check_alignment(text, size)
        if where is spaces.SHARED:
            return self.shared(text, size, is_write)
        if where is spaces.LOCAL:
            return self.local(text, size)
        raise NotTraced("parameters of each thread")

    # -- numbers

    def fetch(self, at: str, bits: int, count: int) -> list[str]:
        """So many numbers of each thread, side by side."""
        w = self.w
        if bits == 32 and count == 4:
            v = f"<{WARP} x i32>"
            four = f"{{{v}, {v}, {v}, {v}}}"
            all_four = w.say(f"call {four} @fetchx4({AT} {at}, i32 {self.on})", True)
            return [w.say(f"extractvalue {four} {all_four}, {word}", True) for word in range(4)]
        found = []
        for number in range(count):
            there = self._add(at, f"splat (i64 {number * bits // 8})") if number else at
            found.append(w.say(f"call <{WARP} x i{bits}> @fetch{bits}({AT} {there}, i32 {self.on})", True))
        return found

    def keep(self, at: str, values: list[Symbol]) -> None:
        """Store numbers of each thread, side by side."""
        w = self.w
        for number, value in enumerate(values):
            bits = 8 * value.itemsize
            there = self._add(at, f"splat (i64 {number * bits // 8})") if number else at
            w.lines.append(f"call void @keep{bits}(<{WARP} x i{bits}> {w.wide(value)}, {AT} {there}, i32 {self.on})")

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
        self._leave_if(bad, "param")
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
        there = access.host(where, at, size, is_write=False)
        texts = access.fetch(there, 8 * type_.size_bytes, count)
        values = [Symbol(w, text, type_.bits, True) for text in texts]
    for operand, value in zip(operands, values):
        if not isinstance(operand, Discard):
            _deliver(code, access, operand, value, type_)


def _deliver(code: Code, access: Access, operand: Operand, value: Any, type_: Any) -> None:
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
    there = access.host(where, at_of(registers), type_.size_bytes * len(operands), is_write=True)  # type: ignore[arg-type]
    access.keep(there, values)
