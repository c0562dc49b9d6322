"""The code of a program as one function of LLVM IR, which runs waves from one place until something stops them.

In       a Program, the MODE that its waves run under
Out      Text: the IR, where waves can enter, and what each way out means
Changes  nothing
Next     symbolic_batch.py (what steps are traced on), native.py (runs it), hcq/emu/compiled/accesses.py (memory)

Each instruction's own step is traced: what the interpreter does with arrays is written down once as code for one wave.
What cannot be traced is left to the interpreter: the code leaves off before it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hcq.emu.amd.shader import lane_access
from hcq.emu.amd.shader.control import BRANCHES, branch_target, compile_ending, condition, direct_targets
from hcq.emu.amd.shader.errors import ShaderFault
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.lane_access import Access, parse_access
from hcq.emu.amd.shader.lds_ops import offset16, pair_access, registers
from hcq.emu.amd.shader.loads_to_lds import is_load_to_lds
from hcq.emu.amd.shader.memory_ops import address_of
from hcq.emu.amd.shader.operands import Context, Mode, Step, scalar64
from hcq.emu.amd.shader.program import Program
from hcq.emu.amd.shader.scalar_memory_ops import LOAD_WORDS, VCC_HI, offset_of
from hcq.emu.amd.shader.symbolic_batch import U32, U64, SymbolicBatch
from hcq.emu.compiled import accesses
from hcq.emu.compiled.accesses import PRELUDE, V32, V64, Attempt
from hcq.emu.compiled.accesses import field as table_field
from hcq.emu.compiled.symbols import NotTraced, Symbol
from hcq.emu.compiled.writer import WIDTH, Writer
from hcq.errors import UsageError

SHORT_RUN = 3  # instructions between two that are not compiled, which are not worth going in and out again
CLOCKS = {"s_memtime", "s_memrealtime", "s_getreg_b32", "s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"}
FAILURES = (NotTraced, TypeError, ValueError, IndexError, KeyError, AttributeError, ShaderFault, UsageError)


@dataclass
class Text:
    """What is there of a program. why_not: of instructions that are left to the interpreter.

    Addresses are counted from the program's entry on: the same code elsewhere has the same text.
    """

    ir: str = ""
    entries: dict[int, int] = field(default_factory=dict)  # by address: the number of an entry
    exits: list[int] = field(default_factory=list)  # the address that a way out leads to
    troubles: set[int] = field(default_factory=set)  # of these: where an access may find no memory
    rows: dict[int, int] = field(default_factory=dict)  # by vector register: its place in a wave's memory
    written: set[int] = field(default_factory=set)  # of those places
    sites: int = 0
    uses_shared: bool = False
    why_not: dict[str, str] = field(default_factory=dict)


class Translator:
    """Writes the function of a program."""

    def __init__(self, program: Program, mode: int, registers: int) -> None:
        self.program, self.mode, self.registers = program, Mode(mode), registers
        self.text = Text()
        self.writer = Writer(program.wave_size)
        self.temporaries = 0
        self.sites = 0

    def translate(self) -> Text:
        """The whole program."""
        starts = self._starts()
        self.sites = 0
        text = self.text
        text.entries = {self._from_entry(pc): number for number, pc in enumerate(sorted(starts))}
        looped = self._looped()
        lines: list[str] = []
        for pc in sorted(starts):
            lines += self._block(pc, pc in looped)
        text.sites = self.sites
        text.ir = self._function(lines)
        return text

    def _from_entry(self, pc: int) -> int:
        return (pc - self.program.entry) & 0xFFFFFFFFFFFFFFFF

    def _label(self, pc: int) -> str:
        return f"b{self._from_entry(pc):x}"

    def _is_entry(self, pc: int) -> bool:
        return self._from_entry(pc) in self.text.entries

    # -- which instructions, which blocks

    def _starts(self) -> set[int]:
        """Where blocks begin that are compiled, at least in part."""
        program = self.program
        self.can = {pc: self._is_traced(inst) for pc, inst in program.instructions.items()}
        starts: set[int] = set()
        for leader in sorted(program.leaders - program.frontier):  # beyond those nothing is known
            if self._is_retry_loop(leader):
                continue
            pc, run, begin = leader, 0, leader
            while (inst := program.instructions.get(pc)) is not None:
                if self.can.get(pc):
                    run += 1
                else:
                    self._keep(starts, begin, pc, run, leader)
                    run, begin = 0, inst.next_pc
                if direct_targets(inst) != [inst.next_pc]:
                    break
                pc = inst.next_pc
                if pc in program.leaders:
                    break
            if run:
                self._keep(starts, begin, pc, run, leader)
        return starts

    def _is_retry_loop(self, leader: int) -> bool:
        """Whether a block goes round a compare-and-swap: the interpreter foresees how such loops end."""
        try:
            return self.program.block(leader, self.mode.bits).retries
        except FAILURES:
            return False

    def _keep(self, starts: set[int], begin: int, end: int, run: int, leader: int) -> None:
        if run > SHORT_RUN or (run and begin == leader):
            starts.add(begin)

    def _looped(self) -> set[int]:
        """Where branches lead back to."""
        found = set()
        for inst in self.program.instructions.values():
            for target in direct_targets(inst):
                if target <= inst.pc:
                    found.add(target)
        return found

    def _context(self, inst: Instruction) -> Context:
        program = self.program
        return Context(program.isa, inst, self.mode, program.wave_size, program.acc_offset)

    def _is_traced(self, inst: Instruction) -> bool:
        """Whether an instruction can be compiled: it is tried."""
        if inst.name == "s_branch" or inst.name in BRANCHES:
            return True
        self._begin()
        try:
            self._trace(self._context(inst), list)
            self.batch.close()
        except FAILURES as problem:
            self.text.why_not[inst.name] = str(problem)
            return False
        return True

    # -- one block

    def _begin(self) -> None:
        w = self.writer
        w.close()
        w.done = []
        self.batch = SymbolicBatch(w, self.registers, self.mode.bits, self.text.rows)

    def _block(self, start: int, is_looped: bool) -> list[str]:
        program, text = self.program, self.text
        self._begin()
        w = self.writer
        w.label = label = self._label(start)
        head = [f"{label}:"]
        if is_looped:
            left = w.fresh("left")
            w.scalar += [
                f"{left} = load i64, ptr %fuel",
                f"{left}x = icmp slt i64 {left}, 0",
                f"br i1 {left}x, label %spent_{label}, label %go_{label}",
                f"spent_{label}:",
                *self._leave(start, 0),
            ]
            w.place(f"go_{label}")
        pc, length = start, 0
        while True:
            inst = program.instructions.get(pc)
            if length and self._is_entry(pc):
                tail = [*self._spend(length), f"br label %{self._label(pc)}"]
                break
            if inst is None or not self.can.get(pc) or (length and pc in program.leaders):
                tail = self._leave(pc, length)
                break
            length += 1
            if inst.name == "s_branch":
                tail = [*self._spend(length), *self._goto(branch_target(inst))]
                break
            if inst.name in BRANCHES:
                tail = self._branch(inst, length)
                break
            done = length - 1
            self._trace(self._context(inst), functools.partial(self._stop, pc, done))
            pc = inst.next_pc
        self.batch.close()
        flushed = self.batch.flushed()
        w.close()
        text.written |= self.batch.written
        self.temporaries = max(self.temporaries, self.batch.used)
        lines = [*head, *w.done, *flushed, *tail]
        w.done = []
        return lines

    def _branch(self, inst: Instruction, length: int) -> list[str]:
        """A conditional branch."""
        ctx = self._context(inst)
        taken: Any = condition(ctx, inst.name)(self.batch)  # type: ignore[arg-type]
        name = self.batch.scalar_text(taken, np.bool_)
        yes, no = branch_target(inst), inst.next_pc
        tag = f"_{self._label(inst.pc)}"
        return [
            *self._spend(length),
            f"br i1 {name}, label %yes{tag}, label %no{tag}",
            f"yes{tag}:",
            *self._goto(yes),
            f"no{tag}:",
            *self._goto(no),
        ]

    def _goto(self, pc: int) -> list[str]:
        return [f"br label %{self._label(pc)}"] if self._is_entry(pc) else self._leave(pc, 0)

    def _spend(self, count: int) -> list[str]:
        left = self.writer.fresh("fuel")
        return [
            f"{left} = load i64, ptr %fuel",
            f"{left}n = sub i64 {left}, {count}",
            f"store i64 {left}n, ptr %fuel",
        ]

    def _leave(self, pc: int, count: int) -> list[str]:
        """Leave off before an instruction; everything is where it belongs."""
        place = self._from_entry(pc)
        if place not in self.text.exits:
            self.text.exits.append(place)
        number = self.text.exits.index(place)
        return [*(self._spend(count) if count else ()), f"store i32 {number}, ptr %exit", "br label %out"]

    def _stop(self, pc: int, count: int) -> list[str]:
        """Leave off in the middle of a block, for the interpreter to go on."""
        self.text.troubles.add(self._from_entry(pc))
        return [*self.batch.flushed(), *self._leave(pc, count)]

    # -- one instruction

    def _trace(self, ctx: Context, stop: Callable[[], list[str]]) -> None:
        """Write an instruction. stop: lines that leave off before it. Raises NotTraced and others of FAILURES."""
        inst, b = ctx.inst, self.batch
        if inst.name in CLOCKS or is_load_to_lds(inst):
            raise NotTraced("clocks, and loads to LDS")
        if compile_ending(ctx) is not None:
            raise NotTraced("it ends a block")
        if inst.format == "SMEM" and inst.name.startswith(("s_load_", "s_buffer_load_")):
            self._scalar_load(ctx, stop)
            return
        access = self._access(inst)
        if access is not None:
            self._memory(ctx, access, stop)
            return
        step: Step = self.program.compile_step(ctx)
        before, saved = b.state(), self.sites
        try:
            with self.writer.attempt():
                step(b)  # type: ignore[arg-type]
        except FAILURES:
            vars(b).update(before)
            if not (self.writer.vector or b.pending):
                raise
            b.close()  # lanes of other lanes are read from memory: it has to be up to date
            self.sites = saved
            before = b.state()
            try:
                with self.writer.attempt():
                    step(b)  # type: ignore[arg-type]
            except FAILURES:
                vars(b).update(before)
                raise
        b.lanes_now = None

    def _access(self, inst: Instruction) -> tuple[str, Access, list[int]] | None:
        """(memory or lds, what moves, offsets of the elements) of a load or store; None for what is none."""
        tail = inst.name.split("_", 1)[1] if "_" in inst.name else ""
        if inst.format in ("GLOBAL", "FLAT"):
            access = parse_access(tail)
            return (
                ("memory", access, [0]) if access is not None and access.verb in ("load", "store") else None
            )
        if inst.format != "DS" or inst.fields.get("gds"):
            return None
        pair = pair_access(tail)
        if pair is not None and pair[0] in ("load", "store"):
            verb, bits, stride = pair
            offsets = [inst.fields[name] * stride * bits // 8 for name in ("offset0", "offset1")]
            return "lds", Access(verb, bits), offsets
        access = parse_access(tail)
        if access is None or access.verb not in ("load", "store") or "addtid" in tail:
            return None
        return "lds", access, [-1]

    def _memory(
        self, ctx: Context, what: tuple[str, Access, list[int]], stop: Callable[[], list[str]]
    ) -> None:
        """A load or a store."""
        kind, access, offsets = what
        b, w, size = self.batch, self.writer, access.bits // 8
        b.close()
        attempt = Attempt(w, self.sites)
        mask = b.lanes
        places = []
        for offset in offsets:
            if kind == "memory":
                addresses: Any = address_of(ctx)(b)  # type: ignore[arg-type]
            else:
                register, _ = ctx.inst.fields["addr"], registers(ctx)
                added = offset16(ctx) if offset < 0 else np.uint64(offset)
                addresses = (b.u32[register].astype(U64) + added) & np.uint64(0xFFFFFFFF)
            is_narrow = size < 4 and access.verb == "load"  # the word around it is read
            checked = addresses & np.uint64(0xFFFFFFFFFFFFFFFC) if is_narrow else addresses
            reach = 4 if is_narrow else size
            if size == 2 and is_narrow:  # a half word that two words share: the interpreter's
                odd = (addresses & np.uint64(3)) == np.uint64(3)
                checked = w.select(odd, np.full(1, 2**64 - 1, np.uint64), checked)
            if kind == "memory":
                place = attempt.check(checked, mask, reach, access.verb == "store")
            else:
                self.text.uses_shared = True
                place = attempt.inside(checked, mask, *self._shared(reach))
            places.append((place, addresses))
        self.sites = attempt.next_site
        if access.verb == "load":
            self._load(ctx, access, attempt, places, stop)
        else:
            self._store(ctx, access, attempt, places, stop)

    def _shared(self, size: int) -> tuple[str, str]:
        """Where the workgroup's LDS begins in memory, and at how many addresses so many bytes fit."""
        w = self.writer
        length = table_field(w, "%table", accesses.SHARED_BYTES)
        last = w.say(f"sub i64 {length}, {size - 1}", False)
        fits = w.say(f"icmp uge i64 {length}, {size}", False)
        return "%shared", w.say(f"select i1 {fits}, i64 {last}, i64 0", False)

    def _load(self, ctx: Context, access: Access, attempt: Attempt, places: list[Any], stop: Any) -> None:
        b, w = self.batch, self.writer
        rows = []
        for place, addresses in places:
            for text in accesses.fetch(w, place, access.words):
                if access.bits < 32:
                    shift = (addresses & np.uint64(3)).astype(U32) << np.uint32(3)
                    value = (Symbol(w, text, U32, True) >> shift) & np.uint32((1 << access.bits) - 1)
                    if access.signed:
                        top = np.uint32(1 << access.bits - 1)
                        value = (value ^ top) - top
                    text = value.text
                row = b.temporary()
                accesses.spill(w, row, V32, text)
                rows.append(row)
        attempt.end(stop())
        fields = ctx.inst.fields
        file = ctx.acc_offset if fields.get("acc") else 0
        vdst = (
            registers(ctx)[2] if ctx.inst.format == "DS" else fields.get("vdst", fields.get("data", 0)) + file
        )
        for number, row in enumerate(rows):
            found = Symbol(w, accesses.unspill(w, row, V32), U32, True)
            if access.half is None:
                lane_access.deliver(b, b.u32[vdst + number], found)  # type: ignore[arg-type]
            else:
                b.u16[vdst, :, :, access.half].put(found.astype(np.uint16), b.lanes)

    def _store(self, ctx: Context, access: Access, attempt: Attempt, places: list[Any], stop: Any) -> None:
        b, w = self.batch, self.writer
        kept = []
        for place, _ in places:
            row = b.temporary()
            accesses.spill(w, row, V64, place.at)
            kept.append(row)
        attempt.end(stop())
        fields = ctx.inst.fields
        file = ctx.acc_offset if fields.get("acc") else 0
        data = list(registers(ctx)[:2]) if ctx.inst.format == "DS" else [fields["data"] + file]
        for row, register in zip(kept, data):
            for word in range(access.words):
                at = accesses.unspill(w, row, V64)
                value = b.u32[register + word] >> np.uint32(16) if access.half else b.u32[register + word]
                accesses.keep(w, value.text, at, w.wide(b.lanes), word, min(32, access.bits))
                b.close()

    def _scalar_load(self, ctx: Context, stop: Callable[[], list[str]]) -> None:
        """Words from memory to scalar registers."""
        name, fields = ctx.inst.name, ctx.inst.fields
        words = LOAD_WORDS.get(name[7:]) if name.startswith("s_load_") else None
        first, sdata = 2 * fields["sbase"], fields["sdata"]
        if words is None or sdata + words > VCC_HI + 1:
            raise NotTraced("scalar loads of less than a word, and through descriptors")
        b, w = self.batch, self.writer
        base: Any = scalar64(ctx, first)(b)  # type: ignore[arg-type]
        offset: Any = offset_of(ctx)(b)  # type: ignore[arg-type]
        address = w.as_symbol((base + offset) & ~np.uint64(3), U64)
        if w.vector or b.pending:
            b.close()
        there = w.say(f"call i64 @host(ptr %table, i64 {address.text}, i64 {4 * words})", False)
        none = w.say(f"icmp eq i64 {there}, 0", False)
        tag = f"{w.fresh('s')[1:]}"
        w.scalar += [f"br i1 {none}, label %leave{tag}, label %pass{tag}", f"leave{tag}:", *stop()]
        w.place(f"pass{tag}")
        where = w.say(f"inttoptr i64 {there} to ptr", False)
        for word in range(words):
            at = w.say(f"getelementptr i32, ptr {where}, i64 {word}", False)
            b.set_scalar(sdata + word, w.symbol(f"load i32, ptr {at}, align 4", U32, False))

    # -- the function around the blocks

    def _function(self, blocks: list[str]) -> str:
        lanes, text = self.program.wave_size, self.text
        rows = max(1, len(text.rows))
        cases = " ".join(f"i64 {number}, label %b{place:x}" for place, number in text.entries.items())
        kept = [
            f"  %kept{number + 1} = alloca [{lanes} x i64], align 64" for number in range(self.temporaries)
        ]
        loads: list[str] = []
        stores: list[str] = []
        for register, row in text.rows.items():
            for lines, is_load in ((loads, True), (stores, False)):
                if not is_load and row not in text.written:
                    continue
                tag = f"{'i' if is_load else 'o'}{row}"
                theirs = f"  %x{tag} = getelementptr i8, ptr %vectors, i64 %y{tag}"
                lines += [f"  %y{tag} = mul i64 %stride, {register}", theirs]
                own = f"  %z{tag} = getelementptr [{lanes} x i32], ptr %own, i64 {row}"
                kind = f"<{lanes} x i32>"
                source, target = (f"%x{tag}", f"%z{tag}") if is_load else (f"%z{tag}", f"%x{tag}")
                lines += [
                    own,
                    f"  %w{tag} = load {kind}, ptr {source}, align 4",
                    f"  store {kind} %w{tag}, ptr {target}, align 4",
                ]
        intrinsics = sorted(_declared(blocks))
        fields = "\n".join(
            f"  %p{number} = getelementptr i64, ptr %table, i64 {number}\n  %f{name} = load {kind}, ptr %p{number}"
            for number, name, kind in (
                (accesses.WAVES, "waves", "i64"),
                (accesses.VECTORS, "vectors", "ptr"),
                (accesses.REGISTER_BYTES, "stride", "i64"),
                (accesses.SCALARS, "scalars", "ptr"),
                (accesses.CONDITIONS, "conditions", "ptr"),
                (accesses.EXITS, "exits", "ptr"),
                (accesses.ENTRY, "entry", "i64"),
                (accesses.FUEL, "fuel", "i64"),
                (accesses.SHARED, "shared", "ptr"),
            )
        )
        return "\n".join(
            [
                PRELUDE,
                *(
                    text
                    for name, text in accesses.SOMETIMES.items()
                    if any(f"{name}(" in one for one in blocks)
                ),
                *intrinsics,
                'define i32 @run(ptr %table) "min-legal-vector-width"="512" {',
                "start:",
                f"  %own = alloca [{rows} x [{lanes} x i32]], align 64",
                "  %fuel = alloca i64",
                *kept,
                fields,
                "  %stride = add i64 %fstride, 0",
                "  br label %wave",
                "wave:",
                "  %number = phi i64 [0, %start], [%after, %out]",
                f"  %vectorsat = mul i64 %number, {4 * lanes}",
                "  %vectors = getelementptr i8, ptr %fvectors, i64 %vectorsat",
                "  %scalars = getelementptr [128 x i32], ptr %fscalars, i64 %number",
                "  %scc = getelementptr i8, ptr %fconditions, i64 %number",
                "  %exit = getelementptr i32, ptr %fexits, i64 %number",
                "  %sharedat = getelementptr i64, ptr %fshared, i64 %number",
                "  %shared = load i64, ptr %sharedat",
                "  store i64 %ffuel, ptr %fuel",
                *loads,
                f"  switch i64 %fentry, label %nowhere [ {cases} ]",
                "nowhere:",
                "  unreachable",
                *blocks,
                "out:",
                *stores,
                "  %rest = load i64, ptr %fuel",
                "  %used = sub i64 %ffuel, %rest",
                f"  %ep = getelementptr i64, ptr %table, i64 {accesses.EXECUTED}",
                "  %before = load i64, ptr %ep",
                "  %sum = add i64 %before, %used",
                "  store i64 %sum, ptr %ep",
                "  %after = add i64 %number, 1",
                "  %more = icmp ult i64 %after, %fwaves",
                "  br i1 %more, label %wave, label %end",
                "end:",
                "  ret i32 0",
                "}",
                "",
            ]
        )


def _declared(lines: list[str]) -> set[str]:
    """Declarations of LLVM's functions that lines call."""
    found = {"declare i64 @llvm.cttz.i64(i64, i1)", f"declare i{WIDTH} @llvm.cttz.i{WIDTH}(i{WIDTH}, i1)"}
    for line in lines:
        if "@llvm." not in line or "masked" in line or "cttz" in line:
            continue
        head, _, tail = line.partition("call ")[2].partition("@")
        name, _, arguments = tail.partition("(")
        kinds = ", ".join(head.strip() for _ in range(arguments.count(f"{head.strip()} ")))
        found.add(f"declare {head.strip()} @{name}({kinds})")
    return found
