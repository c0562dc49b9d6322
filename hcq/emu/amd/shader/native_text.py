"""The code of a program as one function of LLVM IR, which runs waves from one place until something stops them.

In       a Program, the MODE that its waves run under
Out      Text: the IR, where waves can enter, and what each way out means
Next     symbolic_batch.py (what steps are traced on), native_memory.py and native_matrix.py (what is not traced),
         native.py (runs it)

Each instruction's own step is traced: what the interpreter does with arrays is written down once as code for one wave.
What cannot be traced is left to the interpreter: the code leaves off before it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.amd.shader.control import BRANCHES, branch_target, compile_ending, condition, direct_targets
from hcq.emu.amd.shader.errors import ShaderFault
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.kept_programs import Text
from hcq.emu.amd.shader.loads_to_lds import is_load_to_lds
from hcq.emu.amd.shader.matrix_ops import Product
from hcq.emu.amd.shader.native_matrix import KEPT, MatrixText
from hcq.emu.amd.shader.native_memory import MemoryText
from hcq.emu.amd.shader.operands import Context, Mode, Step
from hcq.emu.amd.shader.program import Program
from hcq.emu.amd.shader.symbolic_batch import SymbolicBatch
from hcq.emu.compiled import accesses
from hcq.emu.compiled.accesses import LOOKUP, PRELUDE
from hcq.emu.compiled.symbols import NotTraced
from hcq.emu.compiled.writer import WIDTH, Writer, declarations
from hcq.errors import UsageError

SHORT_RUN = 3  # instructions between two that are not compiled, which are not worth going in and out again
CLOCKS = {"s_memtime", "s_memrealtime", "s_getreg_b32", "s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"}
CLOCKS |= {"s_get_barrier_state"}  # which differs from one look to the next as well
WAITS = {"s_waitcnt", "s_clause", "s_nop", "s_delay_alu", "s_wait_loadcnt", "s_wait_dscnt"}  # nothing is done
MOST_TOGETHER = 24  # loads whose addresses are checked together
FAILURES = (NotTraced, TypeError, ValueError, IndexError, KeyError, AttributeError, ShaderFault, UsageError)


class Translator:
    """Writes the function of a program."""

    def __init__(self, program: Program, mode: int, registers: int) -> None:
        self.program, self.mode, self.registers = program, Mode(mode), registers
        self.text = Text()
        self.writer = Writer(program.wave_size)
        self.writer.tables = {}
        self.memory, self.matrices = MemoryText(), MatrixText(program.wave_size)
        self.temporaries = {1: 0, 2: 0}  # by their words

    def translate(self) -> Text:
        """The whole program."""
        starts = self._starts()
        self.memory, self.matrices = MemoryText(), MatrixText(self.program.wave_size)
        text = self.text
        text.entries = {self._from_entry(pc): number for number, pc in enumerate(sorted(starts))}
        looped = self._looped()
        lines: list[str] = []
        for pc in sorted(starts):
            lines += self._block(pc, pc in looped)
        text.sites = self.memory.sites
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
        self.can = {pc: self.traces(inst) for pc, inst in program.instructions.items()}
        starts: set[int] = set()
        for leader in sorted(program.leaders - program.frontier):  # beyond those nothing is known
            if self._is_retry_loop(leader):
                continue
            pc, run, begin, is_head = leader, 0, leader, True
            while (inst := program.instructions.get(pc)) is not None:
                if self.can.get(pc):
                    run += 1
                else:
                    self._keep(starts, begin, run, is_head)
                    # behind a barrier all waves go on: it is worth it, however short
                    run, begin, is_head = 0, inst.next_pc, inst.name == "s_barrier"
                if direct_targets(inst) != [inst.next_pc]:
                    break
                pc = inst.next_pc
                if pc in program.leaders:
                    break
            if run:
                self._keep(starts, begin, run, is_head)
        return starts

    def _is_retry_loop(self, leader: int) -> bool:
        """Whether a block goes round a compare-and-swap: the interpreter foresees how such loops end."""
        try:
            return self.program.block(leader, self.mode.bits).retries
        except FAILURES:
            return False

    def _keep(self, starts: set[int], begin: int, run: int, is_head: bool) -> None:
        if run > SHORT_RUN or (run and is_head):
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

    def traces(self, inst: Instruction) -> bool:
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
        self.batch = SymbolicBatch(w, self.registers, self.mode.bits)

    def _block(self, start: int, is_looped: bool) -> list[str]:
        program = self.program
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
            stop = functools.partial(self._stop, pc, length - 1)
            together = self._loads_from(pc)
            if together:
                self.memory.load_all([self._context(one) for one in together], self.batch, stop)
                length += len(together) - 1
                pc = together[-1].next_pc
                continue
            self._trace(self._context(inst), stop)
            pc = inst.next_pc
        self.batch.close()
        flushed = self.batch.flushed()
        w.close()
        self.temporaries = {
            words: max(most, self.batch.most[words]) for words, most in self.temporaries.items()
        }
        lines = [*head, *w.done, *flushed, *tail]
        w.done = []
        return lines

    def _loads_from(self, pc: int) -> list[Instruction]:
        """Loads in a row, none of which needs what an earlier one loads: their addresses are checked together."""
        found: list[Instruction] = []
        loaded: set[int] = set()
        program, length = self.program, 0
        while length < MOST_TOGETHER and (inst := program.instructions.get(pc)) is not None:
            if not self.can.get(pc) or (length and pc in program.leaders):
                break
            length += 1
            pc = inst.next_pc
            if inst.name in WAITS:
                if found:
                    found.append(inst)
                continue
            registers = self.memory.registers_of_load(self._context(inst))
            if registers is None or registers[0] & loaded:
                break
            loaded |= registers[1]
            found.append(inst)
        while found and found[-1].name in WAITS:
            found.pop()
        return found if sum(one.name not in WAITS for one in found) > 1 else []

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
        if self.memory.writes(ctx, b, stop):
            return
        step: Step = self.program.compile_step(ctx)
        if isinstance(step, Product):
            self.matrices.write(b, step)
            return
        before = b.state()
        try:
            with self.writer.attempt():
                step(b)  # type: ignore[arg-type]
        except FAILURES:
            vars(b).update(before)
            if not (self.writer.vector or b.pending):
                raise
            b.close()  # lanes of other lanes are read from memory: it has to be up to date
            before = b.state()
            try:
                with self.writer.attempt():
                    step(b)  # type: ignore[arg-type]
            except FAILURES:
                vars(b).update(before)
                raise
        b.lanes_now = None

    # -- the function around the blocks

    def _behind_barriers(self) -> str:
        """For each way out the entry behind its barrier; -1 for another."""
        text, program = self.text, self.program
        numbers = []
        for place in text.exits:
            inst = program.instructions.get((program.entry + place) & 0xFFFFFFFFFFFFFFFF)
            is_barrier = inst is not None and inst.name == "s_barrier"
            behind = text.entries.get(self._from_entry(inst.next_pc), -1) if inst is not None else -1
            numbers.append(behind if is_barrier else -1)
        text.has_barriers = max(numbers, default=-1) >= 0
        listed = ", ".join(f"i64 {number}" for number in numbers or [-1])
        return f"@behind = internal constant [{max(1, len(numbers))} x i64] [{listed}]"

    def _function(self, blocks: list[str]) -> str:
        lanes, text = self.program.wave_size, self.text
        cases = " ".join(f"i64 {number}, label %b{place:x}" for place, number in text.entries.items())
        kept = [
            f"  %kept{words}_{number + 1} = alloca [{lanes} x i{32 * words}], align 64"
            for words, most in self.temporaries.items()
            for number in range(most)
        ]
        matrices = self.matrices.module
        room = [f"  %m{name} = alloca [{KEPT} x double], align 64" for name in "abd"] if matrices else []
        lines = [*blocks, *(line for one in self.memory.module.values() for line in one.split("\n"))]
        intrinsics = sorted(_declared(lines) | self.matrices.declared)
        fields = "\n".join(
            f"  %p{number} = getelementptr i64, ptr %table, i64 {number}\n  %f{name} = load {kind}, ptr %p{number}"
            for number, name, kind in (
                (accesses.VECTORS, "vectors", "ptr"),
                (accesses.WAVE_BYTES, "stride", "i64"),
                (accesses.SCALARS, "scalars", "ptr"),
                (accesses.CONDITIONS, "conditions", "ptr"),
                (accesses.EXITS, "exits", "ptr"),
                (accesses.ENTRIES, "entries", "ptr"),
                (accesses.FUELS, "fuels", "ptr"),
                (accesses.GROUPS, "groups", "ptr"),
                (accesses.GROUP_COUNT, "groupcount", "i64"),
                (accesses.MEETS, "meets", "i64"),
                (accesses.SHARED, "shared", "ptr"),
                (accesses.SCRATCH, "scratch", "ptr"),
            )
        )
        return "\n".join(
            [
                PRELUDE,
                LOOKUP,
                *(
                    text
                    for name, text in accesses.SOMETIMES.items()
                    if any(f"{name}(" in one for one in lines)
                ),
                *intrinsics,
                *matrices.values(),
                *self.memory.module.values(),
                "@nothing = internal constant [16 x i32] zeroinitializer",
                *(self.writer.tables or {}).values(),
                self._behind_barriers(),
                'define i32 @run(ptr %table) "min-legal-vector-width"="512" {',
                "start:",
                *kept,
                *room,
                fields,
                *GROUP_LOOP,
                "  %ownat = mul i64 %number, %fstride",
                "  %own = getelementptr i8, ptr %fvectors, i64 %ownat",
                "  %scalars = getelementptr [128 x i32], ptr %fscalars, i64 %number",
                "  %scc = getelementptr i8, ptr %fconditions, i64 %number",
                "  %exit = getelementptr i32, ptr %fexits, i64 %number",
                "  %sharedat = getelementptr i64, ptr %fshared, i64 %number",
                "  %shared = load i64, ptr %sharedat",
                "  %scratchat = getelementptr i64, ptr %fscratch, i64 %number",
                "  %scratch = load i64, ptr %scratchat",
                "  %fuel = getelementptr i64, ptr %ffuels, i64 %number",
                "  %entryat = getelementptr i64, ptr %fentries, i64 %number",
                "  %entry = load i64, ptr %entryat",
                f"  switch i64 %entry, label %nowhere [ {cases} ]",
                "nowhere:",  # a wave that has ended, or waits
                "  br label %out",
                *blocks,
                "out:",
                *MEETING,
                "end:",
                "  ret i32 0",
                "}",
                "",
            ]
        )


# waves of a workgroup run to a barrier one after the other, then they go on from it
GROUP_LOOP = """  br label %group
group:
  %g = phi i64 [0, %start], [%gnext, %apart]
  %firstat = getelementptr i64, ptr %fgroups, i64 %g
  %first = load i64, ptr %firstat
  %gnext = add i64 %g, 1
  %lastat = getelementptr i64, ptr %fgroups, i64 %gnext
  %last = load i64, ptr %lastat
  br label %round
round:
  br label %wave
wave:
  %number = phi i64 [%first, %round], [%after, %out]""".split("\n")
MEETING = """  %after = add i64 %number, 1
  %more = icmp ult i64 %after, %last
  br i1 %more, label %wave, label %meet
meet:
  %may = icmp ne i64 %fmeets, 0
  br i1 %may, label %ask, label %apart
ask:
  %exit0at = getelementptr i32, ptr %fexits, i64 %first
  %exit0 = load i32, ptr %exit0at
  %behindat = getelementptr i64, ptr @behind, i32 %exit0
  %behind = load i64, ptr %behindat
  %goes = icmp sge i64 %behind, 0
  br i1 %goes, label %compare, label %apart
compare:
  %c = phi i64 [%first, %ask], [%cn, %same]
  %cexitat = getelementptr i32, ptr %fexits, i64 %c
  %cexit = load i32, ptr %cexitat
  %cfuelat = getelementptr i64, ptr %ffuels, i64 %c
  %cfuel = load i64, ptr %cfuelat
  %here = icmp eq i32 %cexit, %exit0
  %time = icmp sgt i64 %cfuel, 0
  %both = and i1 %here, %time
  br i1 %both, label %same, label %apart
same:
  %cn = add i64 %c, 1
  %cmore = icmp ult i64 %cn, %last
  br i1 %cmore, label %compare, label %pass
pass:
  %p = phi i64 [%first, %same], [%pn, %pass]
  %pentryat = getelementptr i64, ptr %fentries, i64 %p
  store i64 %behind, ptr %pentryat
  %pfuelat = getelementptr i64, ptr %ffuels, i64 %p
  %pfuel = load i64, ptr %pfuelat
  %pless = sub i64 %pfuel, 1
  store i64 %pless, ptr %pfuelat
  %pn = add i64 %p, 1
  %pmore = icmp ult i64 %pn, %last
  br i1 %pmore, label %pass, label %round
apart:
  %others = icmp ult i64 %gnext, %fgroupcount
  br i1 %others, label %group, label %end""".split("\n")


def _declared(lines: list[str]) -> set[str]:
    """Declarations of LLVM's functions that lines call."""
    found = {"declare i64 @llvm.cttz.i64(i64, i1)", f"declare i{WIDTH} @llvm.cttz.i{WIDTH}(i{WIDTH}, i1)"}
    return found | declarations(lines)
