"""Loads, stores and atomics as code of the host: vector memory, LDS, scratch and buffers; and scalar loads.

In       a Context for one instruction, the batch of symbols, lines that leave off before the instruction
Out      lines that check every address, and then move data; functions that atomics call
Changes  the Writer
Next     hcq/emu/compiled/accesses.py (ranges, gathers), memory_ops.py and lds_ops.py (the same for the interpreter)

An access has two segments. The first finds out where every lane goes; where one goes wrong, nothing has happened yet,
and the interpreter carries the instruction out. The second moves the data. Lanes of an atomic act in order, one by
one; in memory each replaces the number that it has found and no other, as the host and other GPUs may change it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hcq.emu.amd.shader import lane_access
from hcq.emu.amd.shader.atomic_ops import Atomic, parse_atomic
from hcq.emu.amd.shader.lane_access import Access, access_of
from hcq.emu.amd.shader.lds_ops import offset16, pair_access, registers
from hcq.emu.amd.shader.memory_ops import SWIZZLE_ENABLE, Buffer, address_of, atomic_returns
from hcq.emu.amd.shader.operands import Context, scalar64
from hcq.emu.amd.shader.scalar_memory_ops import LOAD_WORDS, VCC_HI, offset_of
from hcq.emu.amd.shader.symbolic_batch import BOOL, U32, U64, Mask, SymbolicBatch
from hcq.emu.compiled import accesses, loads, stores
from hcq.emu.compiled.accesses import Attempt, Place
from hcq.emu.compiled.accesses import field as table_field
from hcq.emu.compiled.loads import V1, V32, V64
from hcq.emu.compiled.symbols import NotTraced, Symbol, llvm_type
from hcq.emu.compiled.writer import WIDTH, Writer

Stop = Callable[[], list[str]]
LOADS = ("GLOBAL", "FLAT", "DS", "SCRATCH", "MUBUF")


@dataclass
class Move:
    """What an instruction moves. data: registers that are stored, of each element; the second one's of an atomic."""

    kind: str  # memory, lds, scratch, buffer
    access: Access
    offsets: list[int]  # of the elements; -1: the instruction's own
    data: list[int]
    vdst: int | None


def move_of(ctx: Context) -> Move | None:
    """What an instruction moves; None for one that moves nothing, or nothing that is compiled."""
    inst, fields = ctx.inst, ctx.inst.fields
    tail = inst.name.split("_", 1)[1] if "_" in inst.name else ""
    if inst.format == "DS":
        return None if fields.get("gds") else _in_lds(ctx, tail)
    kind = {"GLOBAL": "memory", "FLAT": "memory", "SCRATCH": "scratch", "MUBUF": "buffer"}.get(inst.format)
    access = access_of(ctx, tail) if kind is not None else None
    if kind is None or access is None or fields.get("lds") or fields.get("tfe"):
        return None
    if kind == "scratch" and ctx.isa.flat_scratch:
        return None
    file = ctx.acc_offset if fields.get("acc") else 0
    own = fields["vdata" if kind == "buffer" else "data"] + file
    vdst = fields["vdst"] + file if "vdst" in fields else own
    if access.verb == "atomic":
        second = own + access.words
        return Move(kind, access, [-1], [own, second], vdst if atomic_returns(ctx) else None)
    return Move(kind, access, [-1], [own], vdst)


def _in_lds(ctx: Context, tail: str) -> Move | None:
    data0, data1, vdst = registers(ctx)
    pair = pair_access(tail)
    if pair is not None and pair[0] in ("load", "store"):
        verb, bits, stride = pair
        offsets = [ctx.inst.fields[name] * stride * bits // 8 for name in ("offset0", "offset1")]
        return Move("lds", Access(verb, bits), offsets, [data0, data1], vdst)
    access = access_of(ctx, tail)
    if access is not None and access.verb in ("load", "store"):
        return None if "addtid" in tail else Move("lds", access, [-1], [data0], vdst)
    atomic = parse_atomic(tail.replace("_rtn", ""))
    if atomic is None:
        return None
    if ctx.inst.name.startswith("ds_cmpst_"):
        data0, data1 = data1, data0
    access = Access("atomic", 8 * np.dtype(atomic.dtype).itemsize, atomic=atomic)
    return Move("lds", access, [-1], [data0, data1], vdst if "_rtn" in tail else None)


class MemoryText:
    """Writes accesses. module: the functions that they call, by name."""

    def __init__(self) -> None:
        self.sites = 0
        self.module: dict[str, str] = {}

    def writes(self, ctx: Context, b: SymbolicBatch, stop: Stop) -> bool:
        """Write an access; False for an instruction that is none. stop: lines that leave off before it."""
        if ctx.inst.format == "SMEM" and ctx.inst.name.startswith(("s_load_", "s_buffer_load_")):
            _scalar_load(ctx, b, stop)
            return True
        move = move_of(ctx)
        if move is None:
            return False
        function = self._function(move.access.atomic, move.kind) if move.access.atomic is not None else ""
        if move.access.verb == "load":
            self.load_all([ctx], b, stop)
            return True
        b.close()
        b.free_temporaries()
        attempt = Attempt(b.writer, self.sites)
        reached = [self._reach(ctx, b, attempt, move, offset) for offset in move.offsets]
        self.sites = attempt.next_site
        if move.access.verb == "store":
            if _is_sorted(move):
                self.module[stores.name(move.access.words)] = stores.text(move.access.words)
            _store(ctx, b, attempt, move, reached, stop)
        else:
            _modify(b, attempt, move, reached[0], function, stop)
        b.lanes_now = None
        return True

    def registers_of_load(self, ctx: Context) -> tuple[set[int], set[int]] | None:
        """The vector registers that a load reads, and those that it writes; None for what is no load."""
        move = move_of(ctx) if ctx.inst.format in LOADS else None
        if move is None or move.access.verb != "load" or move.vdst is None:
            return None
        fields = ctx.inst.fields
        first = [fields[name] for name in ("addr", "vaddr") if name in fields]
        read = {register + word for register in first for word in range(2)}
        count = len(move.offsets) * move.access.words
        return read, set(range(move.vdst, move.vdst + count))

    def load_all(self, contexts: list[Context], b: SymbolicBatch, stop: Stop) -> None:
        """Write several loads, none of which needs what another loads: one segment checks and fetches all."""
        b.close()
        b.free_temporaries()
        attempt = Attempt(b.writer, self.sites)
        parts = []
        for ctx in contexts:
            move = move_of(ctx) if ctx.inst.format in LOADS else None
            if move is not None:
                parts.append((move, *self._fetch(ctx, b, attempt, move)))
        self.sites = attempt.next_site
        attempt.end(stop())
        for move, bits, rows in parts:
            _deliver(b, move, bits, rows)
            b.lanes_now = None

    def _fetch(self, ctx: Context, b: SymbolicBatch, attempt: Attempt, move: Move) -> tuple[str, list[str]]:
        """What a load finds, kept for the next segment; and the bits of its mask, where it has one of its own."""
        access, w, rows, bits = move.access, b.writer, [], ""
        is_whole = access.bits >= 32 and access.words in loads.WORDS and move.kind in ("memory", "lds")
        for offset in move.offsets:
            if not is_whole:
                reached = self._reach(ctx, b, attempt, move, offset)
                bits = reached.bits
                texts = [_narrowed(w, access, reached, text) for text in _fetched(b, move, reached.place)]
            elif move.kind == "lds":
                addresses = _in_workgroup(ctx, b, offset)
                bounds = attempt.part(*_within(w, "%shared", accesses.SHARED_BYTES, 4 * access.words))
                texts = attempt.take(bounds, addresses, b.lanes, access.words)
            else:
                addresses = w.as_symbol(address_of(ctx)(b), U64)  # type: ignore[arg-type]
                bounds = attempt.known(4 * access.words, False)
                texts = attempt.take(bounds, addresses, b.lanes, access.words)
            if is_whole:
                self.module[loads.name(access.words)] = loads.text(access.words)
            for text in texts:
                row = b.temporary()
                accesses.spill(w, row, V32, text)
                rows.append(row)
        return bits, rows

    def _reach(self, ctx: Context, b: SymbolicBatch, attempt: Attempt, move: Move, offset: int) -> Reached:
        """Where the lanes go with one element."""
        w, access, size = b.writer, move.access, move.access.bits // 8
        mask, bits, left = b.lanes, "", None  # left: lanes for which the interpreter carries it out
        if move.kind == "lds":
            addresses: Any = _in_workgroup(ctx, b, offset)
        elif move.kind == "buffer":
            buffer = Buffer(ctx, access)
            addresses, room = buffer.reach(b)  # type: ignore[arg-type]
            inside = room >= np.uint64(size)
            if size > 4 and access.verb != "atomic":  # some words are in the range, and some are not
                left = ~inside & (room >= np.uint64(4))
                inside = room >= np.uint64(4)
            if buffer.may_spread:
                is_spread, there, is_apart = _spread(w, buffer, b)
                addresses, inside = (
                    w.select(is_spread, there, w.as_symbol(addresses, U64)),
                    inside | is_spread,
                )
                left = is_apart if left is None else left | is_apart
                if size > 4 or access.verb == "atomic":
                    left = left | is_spread
            mask = mask & inside
            bits = w.bits_of(mask)
        else:
            addresses = address_of(ctx)(b)  # type: ignore[arg-type]
        addresses = w.as_symbol(addresses, U64)
        is_narrow = size < 4 and access.verb == "load"  # the word around it is read
        checked = addresses & np.uint64(0xFFFFFFFFFFFFFFFC) if is_narrow else addresses
        reach = 4 if is_narrow else size
        if size == 2 and is_narrow:  # a half word that two words share
            left = _or(left, (addresses & np.uint64(3)) == np.uint64(3))
        elif move.kind == "scratch" and size >= 4:
            left = (addresses & np.uint64(3)) != np.uint64(0)
        elif move.kind == "scratch" and size == 2:
            left = (addresses & np.uint64(3)) == np.uint64(3)
        elif access.verb == "atomic":
            left = _or(left, (addresses & np.uint64(size - 1)) != np.uint64(0))
        if left is not None:
            checked = w.select(w.as_symbol(left, BOOL), np.full(1, 2**64 - 1, np.uint64), checked)
        if move.kind in ("memory", "buffer"):
            place = attempt.check(checked, mask, reach, access.verb != "load")
        elif move.kind == "lds":
            place = attempt.inside(checked, mask, *_within(w, "%shared", accesses.SHARED_BYTES, reach))
        else:
            _, limit = _within(w, "%scratch", accesses.SCRATCH_BYTES, reach)
            place = self._in_scratch(b, attempt.inside(checked, mask, "0", limit), checked)
        return Reached(place, addresses, bits)

    def _in_scratch(self, b: SymbolicBatch, place: Place, offsets: Symbol) -> Place:
        """Words of all lanes lie beside each other."""
        w = b.writer
        lane = w.as_symbol(np.arange(w.lanes, dtype=np.uint64) * np.uint64(4), U64)
        word: Any = (offsets & np.uint64(0xFFFFFFFFFFFFFFFC)) * np.uint64(w.lanes)
        there = word + lane + (offsets & np.uint64(3)) + w.symbol_of("%scratch", np.uint64)
        return Place(w.wide(there), place.on)

    def _function(self, atomic: Atomic, kind: str) -> str:
        """The function that carries an atomic out for some lanes. Raises NotTraced for what has none."""
        where = "lds" if kind == "lds" else "memory"
        name = f"atomic_{where}_{atomic.name}_{np.dtype(atomic.dtype).name}"
        if name not in self.module:
            self.module[name] = _atomic_text(name, atomic, where == "lds")
        return name


@dataclass
class Reached:
    """Where lanes go. bits: the name of the mask, where not all lanes that are on go anywhere."""

    place: Place
    addresses: Symbol
    bits: str


def _within(w: Writer, base: str, size_field: int, size: int) -> tuple[str, str]:
    """Where a part of memory begins, and at how many of its addresses so many bytes fit."""
    length = table_field(w, "%table", size_field)
    last = w.say(f"sub i64 {length}, {size - 1}", False)
    fits = w.say(f"icmp uge i64 {length}, {size}", False)
    return base, w.say(f"select i1 {fits}, i64 {last}, i64 0", False)


def _or(first: Any, second: Any) -> Any:
    return second if first is None else first | second


def _spread(w: Writer, buffer: Buffer, b: SymbolicBatch) -> tuple[Symbol, Symbol, Symbol]:
    """(whether a descriptor is swizzled, where its lanes go then, which of them the interpreter has to take there).

    These are words that two words share, and descriptors that it refuses.
    """
    start, offsets = buffer.spread_places(b)  # type: ignore[arg-type]
    is_spread: Any = buffer.word(b, 1) & np.uint64(SWIZZLE_ENABLE) != np.uint64(0)  # type: ignore[arg-type]
    control: Any = buffer.word(b, 3) & np.uint64(buffer.spread_mask)  # type: ignore[arg-type]
    lane: Any = w.as_symbol(np.arange(w.lanes, dtype=np.uint64) * np.uint64(4), U64)
    low: Any = offsets & np.uint64(3)
    there = (offsets - low) * np.uint64(w.lanes) + low + lane + start
    beyond = low + np.uint64(buffer.size) > np.uint64(4)
    is_apart = is_spread & (beyond | (control != np.uint64(buffer.spread_bits)))
    return w.as_symbol(is_spread, BOOL), w.as_symbol(there, U64), w.as_symbol(is_apart, BOOL)


def _word_step(b: SymbolicBatch, move: Move) -> int:
    """Bytes from a lane's word to its next one."""
    return 4 * b.writer.lanes if move.kind == "scratch" else 4


def _fetched(b: SymbolicBatch, move: Move, place: Place) -> list[str]:
    w, step, words = b.writer, _word_step(b, move), move.access.words
    if step == 4:
        return accesses.fetch(w, place, words)
    found = []
    for word in range(words):
        at = place.at if not word else w.say(f"add {V64} {place.at}, splat (i64 {step * word})", True)
        found += accesses.fetch(w, Place(at, place.on), 1)
    return found


def _in_workgroup(ctx: Context, b: SymbolicBatch, offset: int) -> Symbol:
    """Addresses in LDS."""
    added = offset16(ctx) if offset < 0 else np.uint64(offset)
    own: Any = b.u32[ctx.inst.fields["addr"]].astype(U64)
    return b.writer.as_symbol((own + added) & np.uint64(0xFFFFFFFF), U64)


def _narrowed(w: Writer, access: Access, one: Reached, text: str) -> str:
    """The bytes that are asked for, of the word around them."""
    if access.bits >= 32:
        return text
    shift = (one.addresses & np.uint64(3)).astype(U32) << np.uint32(3)
    value: Any = (Symbol(w, text, U32, True) >> shift) & np.uint32((1 << access.bits) - 1)
    if access.signed:
        top = np.uint32(1 << access.bits - 1)
        value = (value ^ top) - top
    return str(value.text)


def _deliver(b: SymbolicBatch, move: Move, bits: str, rows: list[str]) -> None:
    w, access = b.writer, move.access
    assert move.vdst is not None
    for number, row in enumerate(rows):
        found: Any = Symbol(w, accesses.unspill(w, row, V32), U32, True)
        if bits:  # what is out of a buffer's range reads 0
            found = w.select(w.mask_of(bits), found, np.zeros(1, np.uint32))
        if access.half is not None and access.clears:
            found = (found & np.uint32(0xFFFF)) << np.uint32(16 * access.half)
        elif access.half is not None:
            b.u16[move.vdst, :, :, access.half].put(found.astype(np.uint16), b.lanes)
            continue
        lane_access.deliver(b, b.u32[move.vdst + number], found)  # type: ignore[arg-type]


def _is_sorted(move: Move) -> bool:
    """Whether a store's words are sorted by lane, where lanes lie side by side."""
    return move.access.bits >= 32 and move.access.words in stores.WORDS and move.kind in ("memory", "lds")


def _store(
    ctx: Context, b: SymbolicBatch, attempt: Attempt, move: Move, reached: list[Reached], stop: Stop
) -> None:
    w, words = b.writer, move.access.words
    kept, rows = [], []
    for one in reached:
        row = b.temporary(2)
        accesses.spill(w, row, V64, one.place.at)
        kept.append(row)
        if _is_sorted(move):
            ways = [way(w, one.place.at, one.place.on, words) for way in (stores.row, stores.even)]
            rows.append([w.bits_of(Symbol(w, way, BOOL, True)) for way in ways])
    attempt.end(stop())
    for number, (one, row, register) in enumerate(zip(reached, kept, move.data)):
        if not rows:
            _store_words(b, move, one, row, register)
            continue
        tag, (beside, even) = w.fresh("rows")[1:], rows[number]
        for name, is_so, give in (
            ("whole", stores.is_apart(w, row, beside, words), stores.give),
            ("lanes", stores.is_even(w, row, even, words), stores.give_each),
        ):
            w.scalar.append(f"br i1 {is_so}, label %{tag}{name}, label %{tag}{name}not")
            w.place(f"{tag}{name}")
            give(w, accesses.unspill(w, row, V64), [b.u32[register + word].text for word in range(words)])
            b.close()
            w.scalar.append(f"br label %{tag}end")
            w.place(f"{tag}{name}not")
        _store_words(b, move, one, row, register)
        w.scalar.append(f"br label %{tag}end")
        w.place(f"{tag}end")


def _store_words(b: SymbolicBatch, move: Move, one: Reached, row: str, register: int) -> None:
    """Word after word, of lanes that go anywhere."""
    w, access, step = b.writer, move.access, _word_step(b, move)
    for word in range(access.words):
        at = accesses.unspill(w, row, V64)
        on = w.wide(w.mask_of(one.bits)) if one.bits else w.wide(b.lanes)
        value: Any = b.u32[register + word]
        if access.half:
            value = value >> np.uint32(16)
        if word:
            at = w.say(f"add {V64} {at}, splat (i64 {step * word})", True)
        accesses.keep(w, value.text, at, on, 0, min(32, access.bits))
        b.close()


def _modify(b: SymbolicBatch, attempt: Attempt, move: Move, one: Reached, function: str, stop: Stop) -> None:
    w, atomic = b.writer, move.access.atomic
    assert atomic is not None
    row = b.temporary(2)
    accesses.spill(w, row, V64, one.place.at)
    attempt.end(stop())
    at = accesses.unspill(w, row, V64)
    if one.bits:
        b.lanes = Mask(w.mask_of(one.bits), one.bits)
    wide = move.access.words == 2
    kind = V64 if wide else V32
    data = [
        b.pair(register, U64) if wide else b.u32[register].copy()
        for register in move.data[: 1 + atomic.takes_two]
    ]
    texts = [w.wide(value) for value in data]
    found = w.say(
        f"call {kind} @{function}({V64} {at}, {V1} {w.wide(b.lanes)}, {kind} {texts[0]}, {kind} {texts[-1]})",
        True,
    )
    if move.vdst is None:
        return
    value = Symbol(w, found, U64 if wide else U32, True)
    if wide:
        b.put_pair(move.vdst, value, U64)
    else:
        b.u32[move.vdst].put(value, b.lanes)


def _atomic_text(name: str, atomic: Atomic, is_shared: bool) -> str:
    """Lane after lane. LDS belongs to a workgroup, of which one wave runs at a time."""
    dtype = np.dtype(atomic.dtype)
    one = f"i{8 * dtype.itemsize}"
    many, size = f"<{WIDTH} x {one}>", dtype.itemsize
    w = Writer(WIDTH)
    bits = np.dtype(f"u{size}")
    old, x, y = (w.symbol_of(text, bits).view(dtype) for text in ("%old", "%dx", "%dy"))
    new = w.as_symbol(atomic.combine(old, x, y), dtype).view(bits)
    if w.vector or new.is_vector or llvm_type(bits) != one:
        raise NotTraced("an atomic that is not of one number")
    head = [
        f"define internal {many} @{name}({V64} %at, {V1} %on, {many} %x, {many} %y) noinline #0 {{",
        "entry:",
        *(
            f"%p{n} = alloca {kind}, align 128"
            for n, kind in (("at", V64), ("x", many), ("y", many), ("f", many))
        ),
        *(
            f"store {kind} {v}, ptr %p{n}"
            for n, kind, v in (("at", V64, "%at"), ("x", many, "%x"), ("y", many, "%y"))
        ),
        f"store {many} zeroinitializer, ptr %pf",
        f"%mask = bitcast {V1} %on to i{WIDTH}",
        "br label %loop",
        "loop:",
        f"%m = phi i{WIDTH} [%mask, %entry], [%left, %done]",
        f"%none = icmp eq i{WIDTH} %m, 0",
        "br i1 %none, label %end, label %lane",
        "lane:",
        f"%first = call i{WIDTH} @llvm.cttz.i{WIDTH}(i{WIDTH} %m, i1 true)",
        f"%less = sub i{WIDTH} %m, 1",
        f"%left = and i{WIDTH} %m, %less",
        f"%i = zext i{WIDTH} %first to i64",
        *(
            f"%q{n} = getelementptr {kind}, ptr %p{n}, i64 %i"
            for n, kind in (("at", "ptr"), ("x", one), ("y", one), ("f", one))
        ),
        "%there = load ptr, ptr %qat",
        f"%dx = load {one}, ptr %qx",
        f"%dy = load {one}, ptr %qy",
    ]
    if is_shared:
        body = [
            f"%old = load {one}, ptr %there, align 1",
            *w.scalar,
            f"store {one} {new.text}, ptr %there, align 1",
            "br label %done",
        ]
    else:
        body = [
            f"%begin = load atomic {one}, ptr %there monotonic, align {size}",
            "br label %try",
            "try:",
            f"%old = phi {one} [%begin, %lane], [%seen, %try]",
            *w.scalar,
            f"%pair = cmpxchg ptr %there, {one} %old, {one} {new.text} seq_cst seq_cst, align {size}",
            f"%seen = extractvalue {{ {one}, i1 }} %pair, 0",
            f"%ok = extractvalue {{ {one}, i1 }} %pair, 1",
            "br i1 %ok, label %done, label %try",
        ]
    tail = [
        "done:",
        f"store {one} %old, ptr %qf",
        "br label %loop",
        "end:",
        f"%found = load {many}, ptr %pf",
        f"ret {many} %found",
        "}",
    ]
    return "\n".join([*head, *body, *tail])


def _scalar_load(ctx: Context, b: SymbolicBatch, stop: Stop) -> None:
    """Words from memory to scalar registers, or one byte or half word; 0 where a descriptor's range ends."""
    name, fields = ctx.inst.name, ctx.inst.fields
    is_buffer = name.startswith("s_buffer")
    kind = name.rpartition("_")[2]
    words = LOAD_WORDS.get(kind)
    bits = 32 if words is not None else int(kind[1:])
    size = 4 * words if words is not None else bits // 8
    first, sdata = 2 * fields["sbase"], fields["sdata"]
    if sdata + (words or 1) > VCC_HI + 1:
        raise NotTraced("scalar loads to what is no scalar register")
    w = b.writer
    base: Any = scalar64(ctx, first)(b)  # type: ignore[arg-type]
    offset: Any = offset_of(ctx)(b)  # type: ignore[arg-type]
    if is_buffer:
        base = base & np.uint64(0xFFFFFFFFFFFF)
    address = w.as_symbol((base + offset) & ~np.uint64(min(size, 4) - 1), U64)
    inside = w.as_symbol(offset + np.uint64(size) <= b.scalar(first + 2), BOOL) if is_buffer else None
    if w.vector or b.pending:
        b.close()
    there = w.say(f"call i64 @host(ptr %table, i64 {address.text}, i64 {size})", False)
    none = w.say(f"icmp eq i64 {there}, 0", False)
    if inside is not None:
        none = w.say(f"and i1 {none}, {inside.text}", False)
    tag = f"{w.fresh('s')[1:]}"
    w.scalar += [f"br i1 {none}, label %leave{tag}, label %pass{tag}", f"leave{tag}:", *stop()]
    w.place(f"pass{tag}")
    where = w.say(f"inttoptr i64 {there} to ptr", False)
    if inside is not None:
        where = w.say(f"select i1 {inside.text}, ptr {where}, ptr @nothing", False)
    if words is None:
        found = w.say(f"load i{bits}, ptr {where}, align 1", False)
        verb = "sext" if kind[0] == "i" else "zext"
        b.set_scalar(sdata, w.symbol(f"{verb} i{bits} {found} to i32", U32, False))
        return
    for word in range(words):
        at = w.say(f"getelementptr i32, ptr {where}, i64 {word}", False)
        b.set_scalar(sdata + word, w.symbol(f"load i32, ptr {at}, align 4", U32, False))
