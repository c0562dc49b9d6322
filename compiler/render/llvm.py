"""LLVM renderer: a linear program as LLVM IR text with real vector types.

In       a Program
Out      the text of one module with one function: void entry(ptr p0, ptr p1, ..., ptr group)
Next     llvm_arithmetic.py (one spelling per operation), ../assemble/llvm_cpu.py (who turns it into an object)
Source   LLVM Language Reference; the group struct is hcq/cpu's: { i64 first, last, grid x, y, z; ptr scratch; ... }

Loops are written with their test at the end (a loop that may be empty is guarded once), accumulators become phis, so
no pass has to find them. Booleans are i1 in registers and bytes in memory; bfloat16 and 8-bit floats are their bits.
`contract` lets a product and a sum become one FMA; nothing else may be reassociated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction, Program
from hcq.compiler.render import llvm_arithmetic as spell
from hcq.compiler.render.llvm_arithmetic import RenderError, literal, memory_type, register_type
from hcq.compiler.render.llvm_streams import FENCE, METADATA, STREAMED, Streams
from hcq.ir.dtype import DType, dtypes
from hcq.ir.op import ARITHMETIC, Op

if TYPE_CHECKING:
    from hcq.compiler.render.llvm_prefetch import Prefetches

SCRATCH_FIELD = 5  # of struct hcq_group, in 8-byte words


def render(program: Program, arch: str) -> str:
    """The module's text. Raises RenderError for an operation that this target has no spelling for."""
    text = Text(program)
    if arch == "x86_64":
        text.has_extremes, text.halves_by_four, text.streams = True, True, Streams(program)
        if any(it.dtype.scalar.itemsize == 1 and not it.dtype.is_bool for it in program.instructions):
            from hcq.compiler.render.llvm_prefetch import Prefetches

            text.prefetches, text.bytes_by_table = Prefetches(program), True
    return text.module()


class Text:
    """The text of one kernel while it is written, instruction by instruction; gpu.py says what GPUs spell otherwise."""

    pointer = "ptr"  # how the address of a buffer's element is written
    space = "p0"  # and how intrinsics call its address space
    has_extremes = False
    extremes: frozenset[str] = frozenset()  # types of floats whose greater one, or NaN, is one instruction
    power = ""  # the target's own intrinsic for 2**x
    halves_by_four = False  # whether a single half is widened as the first of four
    bytes_by_table = False  # whether a single byte becomes a float by a table
    copy_facts = ""  # metadata of copies that waves begin
    prefetches: Prefetches | None = None  # loads that ask for what comes later, too
    streams: Streams | None = None  # stores that go past the caches, where a target has them

    def __init__(self, program: Program):
        self.program = program
        self.lines: list[str] = []
        self.names: dict[Instruction, str] = {}
        self.now: dict[Instruction, str] = {}  # accumulators: the name of their present value
        self.count = 0
        self.block = "entry"
        self.loops: list[_OpenLoop] = []
        self.declarations: dict[str, None] = {}
        self.scratch: str | None = None
        self.has_streamed = False

    def module(self) -> str:
        """The whole module. Raises RenderError."""
        program = self.program
        params = []
        for param, _ in program.params:
            facts = "noalias" if param.writable else "noalias readonly"
            params.append(f"ptr {facts} %p{param.index}")
        for it in program.instructions:
            self.instruction(it)
        if self.has_streamed:
            self.declare(f"declare void @{FENCE}()")
            self.line(f"call void @{FENCE}()")
        head = [f"; {program.name}: {program.groups} group{'s' if program.groups != 1 else ''}"]
        head += [f"; p{p.index}: {d.name} {list(p.shape)}" for p, d in program.params]
        head.append(f"define void @{program.name}({', '.join([*params, 'ptr readonly %group'])}) nounwind {{")
        head.append("entry:")
        if self.scratch:
            head.append(f"  %scratch.field = getelementptr inbounds i64, ptr %group, i64 {SCRATCH_FIELD}")
            head.append("  %scratch = load ptr, ptr %scratch.field, align 8")
        tail = ["  ret void", "}"]
        if self.declarations:
            tail += ["", *self.declarations]
        if self.has_streamed:
            tail += ["", METADATA]
        return "\n".join(head + self.lines + tail) + "\n"

    # -- lines ------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Add a line to the function's body."""
        self.lines.append("  " + text)

    def fresh(self) -> str:
        """A name that nothing has yet."""
        self.count += 1
        return f"%v{self.count}"

    def let(self, text: str) -> str:
        """A new name for the value of `text`."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def call(self, result: str, function: str, arguments: list[tuple[str, str]]) -> str:
        """The value of an intrinsic; arguments are (type, value)."""
        self.declare(f"declare {result} @{function}({', '.join(t for t, _ in arguments)})")
        return self.let(f"call {result} @{function}({', '.join(f'{t} {v}' for t, v in arguments)})")

    def looked_up(self, of: DType, to: DType, name: str) -> str | None:
        """A single byte as a float from a table, None where there is none for that."""
        if not self.bytes_by_table:
            return None
        from hcq.compiler.render import llvm_bytes

        return llvm_bytes.looked_up(self, of, name) if llvm_bytes.is_looked_up(of, to) else None

    def before_narrowing(self, dtype: DType, name: str) -> str:
        """The value that is rounded to a narrower format, kept apart from its rounding where a target needs that."""
        return name

    def widened(self, of: DType, to: DType, name: str) -> str:
        """A float as one of a wider format, of which LLVM does not know that it was widened.

        Where it does, LLVM 22 takes `select (x > 0), 0, x` for a minimum, and then has 0.0 for -0.0. On x86 it moves a
        single half into whichever register, beside what is there (VPINSRW): such a register may be an accumulator, and
        the next product then waits for the last sum. So a single half is the first of four.
        """
        if self.halves_by_four and (of, to) == (dtypes.float16, dtypes.float32):
            four = self.let(f"insertelement <4 x half> zeroinitializer, half {name}, i64 0")
            wide = self.widened(of.vec(4), to.vec(4), four)
            return self.let(f"extractelement <4 x float> {wide}, i64 0")
        kind = register_type(to)
        wide = self.let(f"fpext {register_type(of)} {name} to {kind}")
        return self.call(kind, f"llvm.arithmetic.fence.{spell.suffix(to)}", [(kind, wide)])

    def opaque(self, dtype: DType, name: str) -> str:
        """The same value; where a target needs that, one of which LLVM knows nothing."""
        return name

    def declare(self, text: str) -> None:
        """Declare an intrinsic, once."""
        self.declarations[text] = None

    def name(self, it: Instruction) -> str:
        """The operand that stands for an instruction's value at this place."""
        if it.op is Op.ACCUMULATOR:
            return self.now[it]
        return self.names[it]

    # -- instructions -----------------------------------------------------------------------------------------------

    def instruction(self, it: Instruction) -> None:
        """Write one instruction. Raises RenderError for what no linear program holds."""
        op = it.op
        if op is Op.CONST:
            self.names[it] = literal(it.arg, it.dtype)
        elif op is Op.PARAM:
            self.names[it] = f"%p{it.arg.index}"
        elif op is Op.SCRATCH:
            self.scratch = "%scratch"
            self.names[it] = self.let(f"getelementptr inbounds i8, ptr %scratch, i64 {it.arg}")
        elif op is Op.SPECIAL:
            field = {"first": 0, "last": 1}[it.arg]
            place = self.let(f"getelementptr inbounds i64, ptr %group, i64 {field}")
            self.names[it] = self.let(f"load i64, ptr {place}, align 8")
        elif op is Op.ACCUMULATOR:
            self.now[it] = self.name(it.source(0))
        elif op is Op.UPDATE:
            self.now[it.source(0)] = self.name(it.source(1))
        elif op is Op.LOOP:
            self.begin_loop(it)
        elif op is Op.ENDLOOP:
            self.end_loop()
        elif op is Op.LOAD:
            self.names[it] = self.load(it)
        elif op is Op.STORE:
            self.store(it)
        elif op is Op.BROADCAST:
            self.names[it] = self.broadcast(it)
        elif op is Op.VECTOR:
            self.names[it] = self.vector(it)
        elif op is Op.LANE:
            self.names[it] = self.lane(it)
        elif op is Op.DOT:
            from hcq.compiler.render import llvm_dots

            self.names[it] = llvm_dots.dot(self, it)
        elif op in ARITHMETIC:
            sources = [(self.name(s), s.dtype) for s in it.src if s is not None]
            numbers = [s.number for s in it.src if s is not None]
            unsigned = it.arg == NOT_NEGATIVE
            self.names[it] = spell.arithmetic(self, it.op, it.dtype, sources, numbers, unsigned)
        else:
            raise RenderError(f"{op.name}: not an instruction of a linear program")

    def begin_loop(self, it: Instruction) -> None:
        """Open a loop: its guard, its label, the names of its phis, which `end_loop` writes."""
        low, high = (self.name(s) for s in it.src if s is not None)
        loop = _OpenLoop(it, self.count, low, high, self.block, dict(self.now))
        self.count += 1
        facts = it.arg
        self.lines.append("")
        self.line(f"; {facts.name} in {low} .. {high}")
        if facts.runs:
            self.line(f"br label %{loop.label}")
        else:
            some = self.let(f"icmp slt {loop.kind} {low}, {high}")
            self.line(f"br i1 {some}, label %{loop.label}, label %{loop.label}.done")
        self.lines.append(f"{loop.label}:")
        self.block = loop.label
        counter = f"%{facts.name.replace('.', '_')}.{loop.number}"
        self.names[it] = counter
        loop.counter = counter
        loop.phi_line = len(self.lines)
        self.lines.append("")  # written when the loop ends: only then the next values have names
        for accumulator in facts.carried:
            name = self.fresh()
            loop.phis[accumulator] = name
            self.now[accumulator] = name
        self.loops.append(loop)

    def end_loop(self) -> None:
        """Close the innermost loop: its test, and the phis at its head and behind it."""
        loop = self.loops.pop()
        latch = self.block
        following = self.let(f"add nuw nsw {loop.kind} {loop.counter}, 1")
        again = self.let(f"icmp slt {loop.kind} {following}, {loop.high}")
        self.line(f"br i1 {again}, label %{loop.label}, label %{loop.label}.done")
        counts = f"[ {loop.low}, %{loop.before} ], [ {following}, %{latch} ]"
        phis = [f"  {loop.counter} = phi {loop.kind} {counts}"]
        for accumulator, name in loop.phis.items():
            kind = register_type(accumulator.dtype)
            phis.append(
                f"  {name} = phi {kind} [ {loop.outside[accumulator]}, %{loop.before} ], "
                f"[ {self.now[accumulator]}, %{latch} ]"
            )
        self.lines[loop.phi_line] = "\n".join(phis)
        self.block = f"{loop.label}.done"
        self.lines.append(f"{self.block}:")
        if not loop.it.arg.runs:
            for accumulator in loop.phis:
                kind = register_type(accumulator.dtype)
                self.now[accumulator] = self.let(
                    f"phi {kind} [ {loop.outside[accumulator]}, %{loop.before} ], "
                    f"[ {self.now[accumulator]}, %{latch} ]"
                )

    # -- memory -----------------------------------------------------------------------------------------------------

    def place(self, it: Instruction, element: str, checked: bool) -> str:
        """The address of an access; only what needs no mask is known to lie inside its buffer.

        In two steps it is not known of the first one: a walk backwards has a base before the buffer's start.
        """
        base = it.src[1]
        address = it.source(0)
        kind, pointer = self.pointer_to(address), self.name(address)
        inbounds = "inbounds " if checked and (base is None or not it.arg) else ""
        if base is not None:
            index = f"{register_type(base.dtype)} {self.name(base)}"
            pointer = self.let(f"getelementptr {inbounds}{element}, {kind} {pointer}, {index}")
        if it.arg:
            pointer = self.let(f"getelementptr {inbounds}{element}, {kind} {pointer}, i64 {it.arg}")
        return pointer

    def pointer_to(self, address: Instruction) -> str:
        """The type of an address."""
        return self.pointer

    def facts_of(self, address: Instruction) -> str:
        """Metadata of accesses to what begins there."""
        return ""

    def alignment(self, it: Instruction, dtype: DType) -> int:
        """What divides the address of an access to `dtype`, in bytes."""
        return dtype.itemsize

    def load(self, it: Instruction) -> str:
        """The value of a LOAD; a bool becomes one bit."""
        dtype = it.dtype
        mask = it.src[2] if len(it.src) > 2 else None
        kind = memory_type(dtype)
        pointer = self.place(it, memory_type(dtype.scalar), mask is None)
        align = self.alignment(it, dtype)
        if mask is None:
            how = f"align {align}{self.facts_of(it.source(0))}"
            value = self.let(f"load {kind}, {self.pointer_to(it.source(0))} {pointer}, {how}")
            if self.prefetches:
                self.prefetch(pointer, self.prefetches.lines(it))
        elif dtype.lanes == 1:
            address = self.name(it.source(0))
            safe = self.let(
                f"select i1 {self.name(mask)}, {self.pointer} {pointer}, {self.pointer} {address}"
            )
            read = self.let(f"load {kind}, {self.pointer} {safe}, align {align}")
            value = self.let(f"select i1 {self.name(mask)}, {kind} {read}, {kind} zeroinitializer")
        else:
            lanes = dtype.lanes
            function = f"llvm.masked.load.{spell.memory_suffix(dtype)}.{self.space}"
            self.declare(f"declare {kind} @{function}({self.pointer}, <{lanes} x i1>, {kind})")
            value = self.let(
                f"call {kind} @{function}({self.pointer} align {align} {pointer}, <{lanes} x i1> {self.name(mask)}, "
                f"{kind} zeroinitializer)"
            )
        if dtype.is_bool:
            value = self.let(f"icmp ne {kind} {value}, zeroinitializer")
        return value

    def prefetch(self, pointer: str, lines: int) -> None:
        """Ask for lines that stand well behind a place."""
        from hcq.compiler.render import llvm_prefetch as ahead

        for line in range(lines):
            where = ahead.AHEAD_BYTES + ahead.LINE_BYTES * line
            place = self.let(f"getelementptr i8, {self.pointer} {pointer}, i64 {where}")
            self.declare(f"declare void @{ahead.FUNCTION}({self.pointer}, i32, i32, i32)")
            self.line(f"call void @{ahead.FUNCTION}({self.pointer} {place}, {ahead.ARGUMENTS})")

    def store(self, it: Instruction) -> None:
        """Write a STORE; a bool becomes a byte."""
        value = it.source(2)
        mask = it.src[3] if len(it.src) > 3 else None
        dtype = value.dtype
        kind = memory_type(dtype)
        pointer = self.place(it, memory_type(dtype.scalar), mask is None)
        name = self.name(value)
        if dtype.is_bool:
            name = self.let(f"zext {register_type(dtype)} {name} to {kind}")
        if mask is None:
            how = f"align {self.alignment(it, dtype)}{self.facts_of(it.source(0))}"
            if self.streams and self.streams.takes(it, dtype):
                how, self.has_streamed = STREAMED, True
            self.line(f"store {kind} {name}, {self.pointer_to(it.source(0))} {pointer}, {how}")
            return
        lanes, masks = dtype.lanes, self.name(mask)
        if lanes == 1:  # a masked store of one lane
            kind = f"<1 x {kind}>"
            name = self.let(f"insertelement {kind} poison, {memory_type(dtype)} {name}, i64 0")
            masks = self.let(f"insertelement <1 x i1> poison, i1 {masks}, i64 0")
        function = f"llvm.masked.store.{spell.memory_suffix(dtype)}.{self.space}"
        self.declare(f"declare void @{function}({kind}, {self.pointer}, <{lanes} x i1>)")
        place = f"{self.pointer} align {dtype.itemsize} {pointer}"
        self.line(f"call void @{function}({kind} {name}, {place}, <{lanes} x i1> {masks})")

    # -- lanes ------------------------------------------------------------------------------------------------------

    def broadcast(self, it: Instruction) -> str:
        """A scalar in every lane."""
        found = None
        if self.bytes_by_table:
            from hcq.compiler.render import llvm_bytes

            found = llvm_bytes.product_in_lanes(self, it.source(0), it.dtype.lanes)
        return found or self.in_lanes(it.source(0), it.dtype)

    def in_lanes(self, source: Instruction, dtype: DType) -> str:
        """The same, one value that is known as a scalar."""
        scalar = register_type(source.dtype)
        if source.op is Op.CONST:
            return f"splat ({scalar} {self.name(source)})"
        vector = register_type(dtype)
        one = self.let(f"insertelement {vector} poison, {scalar} {self.name(source)}, i64 0")
        zeros = f"<{dtype.lanes} x i32> zeroinitializer"
        return self.let(f"shufflevector {vector} {one}, {vector} poison, {zeros}")

    def vector(self, it: Instruction) -> str:
        """A vector of scalars."""
        scalar, vector = register_type(it.dtype.scalar), register_type(it.dtype)
        sources = [it.source(lane) for lane in range(len(it.src))]
        if all(source.op is Op.CONST for source in sources):
            return f"<{', '.join([f'{scalar} {self.name(source)}' for source in sources])}>"
        value = "poison"
        for lane, source in enumerate(sources):
            value = self.let(f"insertelement {vector} {value}, {scalar} {self.name(source)}, i64 {lane}")
        return value

    def lane(self, it: Instruction) -> str:
        """Lanes of one vector or of two, in a new order; a scalar where it is one."""
        source = it.source(0)
        vector = register_type(source.dtype)
        if it.dtype.lanes == 1:
            return self.let(f"extractelement {vector} {self.name(source)}, i64 {it.arg[0]}")
        order = ", ".join(f"i32 {lane}" for lane in it.arg)
        second = self.name(it.src[1]) if len(it.src) > 1 and it.src[1] is not None else "poison"
        picks = f"<{len(it.arg)} x i32> <{order}>"
        return self.let(f"shufflevector {vector} {self.name(source)}, {vector} {second}, {picks}")


@dataclass
class _OpenLoop:
    it: Instruction
    number: int
    low: str
    high: str
    before: str  # the block that it is entered from
    outside: dict[Instruction, str]  # the accumulators' names there
    counter: str = ""
    phi_line: int = 0
    phis: dict[Instruction, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"loop{self.number}"

    @property
    def kind(self) -> str:
        return register_type(self.it.dtype)
