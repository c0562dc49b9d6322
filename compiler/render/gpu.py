"""GPU renderer: the same linear program as a kernel whose blocks are the program's groups.

In       a Program, the dialect of a GPU family
Out      LLVM IR of one kernel: pointers to global memory in, one group of the program per block
Next     llvm.py (every instruction is spelled there), amdgpu.py and nvptx.py (the dialects), asked_ahead.py (order)

On the CPU a call gets a range of groups; here each block has one. What the threads of a block share lies in one array
in shared memory, which the object declares, or, where it is more than an object can, each launch asks for. Buffers
start at multiples of BUFFER_ALIGN bytes, which makes vectors of 16 bytes one instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from hcq.compiler.linear.across import lower_across
from hcq.compiler.linear.alignment import BUFFER_ALIGN, Alignment
from hcq.compiler.linear.narrow_indices import narrow_indices
from hcq.compiler.linear.program import OF_NUMBERS, UNITS_READ, Instruction, Program
from hcq.compiler.render.asked_ahead import AskedAhead, Mark, parted
from hcq.compiler.render.bulk import BULK, MAP_ALIGN, MAP_BYTES, others_meet
from hcq.compiler.render.llvm import Text
from hcq.compiler.render.llvm_arithmetic import (
    RenderError,
    arithmetic,
    called_by_lane,
    memory_type,
    register_type,
    suffix,
)
from hcq.compiler.render.warpgroup import WARPGROUP
from hcq.ir.dtype import DType, dtypes
from hcq.ir.op import Op

SHARED = "ptr addrspace(3)"
SAME_IN_A_WAVE = {Op.LOOP, Op.SHARED, Op.PARAM, Op.CONST, Op.SPECIAL}  # but for the number of the thread


@dataclass(frozen=True)
class Dialect:
    """What LLVM calls things on one GPU family."""

    convention: str  # the calling convention of kernels
    block_id: str  # the intrinsic for a block's number along x
    thread_id: str  # the intrinsic for a thread's place in its block along x
    attributes: Callable[[Program], str]  # of a kernel
    registers: Mapping[str, str]  # the constraint of inline assembly for a number's register, by LLVM's type
    extremes: frozenset[str]  # LLVM's types of floats whose greater one, or NaN, is one instruction
    power: str  # the intrinsic for 2**x of a float: 0 where that is below the least normal number
    wave: Callable[[str], int]  # threads that run in step, by architecture
    exchange: Callable[[Text, str, int], str]  # a 32-bit value of the thread whose number differs by a mask
    # (text, unit, a, b, d, exponents of blocks or none): a @ b + d
    matrix: Callable[[Text, str, str, str, str, list[str]], str]
    load_rows: Callable[[Text, str, DType, bool], str]  # (text, pointer, dtype, is turned)
    # (text, four words, which byte): the words' bytes of that number, as a word; None: LLVM finds them well by itself
    column: Callable[[Text, list[str], int], str] | None
    round_tf32: Callable[[Text, str, int], str]  # (text, floats, how many)
    # (text, shared, global, bytes, condition or None): begins a copy; zeros where the condition is off
    copy: Callable[[Text, str, str, int, str | None], None]
    quotient: (
        str  # the intrinsic for a / b of floats to two units in the last place; "": LLVM has a word for that
    )
    # of copies by waves, to where their first threads copy: (text, a thread's number): that of its wave's first one
    first: Callable[[Text, str], str] | None
    # (text, n): until all batches but n are there; -1 ends a batch. Of copies by waves: all copies but n
    wait: Callable[[Text, int], None]
    warpgroup: Callable[[Text, Instruction], str]  # the name of what one of WARPGROUP gives
    bulk: Callable[[Text, Instruction], None]  # one of BULK
    shared_fence: Callable[[Text], None]  # stores to shared memory are seen by matrix units that read it
    declared_shared: int  # bytes of shared memory that an object can declare
    in_order: str  # what is called where LLVM is to move nothing across; "": it does so rightly by itself
    bare_barrier: tuple[str, ...]  # behind a wait that leaves some copies under way
    barrier: tuple[str, ...]  # lines; and what they call is declared so
    barrier_declarations: tuple[str, ...]


def render(program: Program, arch: str, dialect: Dialect) -> str:
    """The module's text. Raises RenderError for what these kernels have no spelling for."""
    lower_across(program, dialect.wave(arch))
    narrow_indices(program)
    return _KernelText(program, dialect).module()


class _KernelText(Text):
    pointer = "ptr addrspace(1)"  # global memory
    space = "p1"

    def __init__(self, program: Program, dialect: Dialect):
        super().__init__(program)
        self.dialect = dialect
        self.extremes, self.power = dialect.extremes, dialect.power
        self.own_group: Instruction | None = None  # the loop over groups, which here is no loop
        self.aligned = Alignment()
        self.is_without_producers = False
        # sums of such weights are divided as well as these are known; see ../passes/weights.py
        self.has_fast_weights = any(it.op is Op.EXP2 for it in program.instructions)
        self.metadata: list[str] = []
        self.batch = 0  # copies of every wave in the last batch
        self.has_waited = False  # the instruction before is a wait
        self.put_off: list[str] = []  # lines that need what was loaded ahead
        self.first: Instruction | None = None  # the number of the wave's first thread
        self.guard: Instruction | None = None  # the condition for copies that stand here
        self.guarded = ""  # their block
        self.other_facts = ""
        if dialect.first is not None and any(it.op is Op.COPY_SHARED for it in program.instructions):
            self.first = Instruction(Op.SPECIAL, dtypes.index, (), "wave", 0)
            self.copy_facts, self.other_facts = self._scopes()

    def _mark(self, mark: Mark) -> None:
        if mark is Mark.REST:
            self.lines += self.put_off
            self.put_off = []
            return
        self._end_guard()
        self.line(f"call void @{self.dialect.in_order}(i32 0)")
        self.declare(f"declare void @{self.dialect.in_order}(i32)")

    def module(self) -> str:
        program, dialect = self.program, self.dialect
        has_units = any(it.op is Op.MATRIX for it in program.instructions)
        order = AskedAhead() if dialect.in_order and has_units else None
        for it in program.instructions if order is None else order.all(program.instructions):
            if isinstance(it, Mark):
                self._mark(it)
                continue
            if it.op is not Op.COPY_SHARED or it.src[5] is not self.guard:
                self._end_guard()
            begin = len(self.lines)
            self.instruction(it)
            if order is not None and order.is_ahead(it):
                self.lines[begin:], rest = parted(self.lines[begin:])
                self.put_off += rest
        params = []
        for param, _ in program.params:
            facts = "noalias" if param.writable else "noalias readonly"
            where = f"{self.pointer} {facts} align {BUFFER_ALIGN}"
            if param.index in program.tensor_maps:
                where = f'ptr byval([{MAP_BYTES} x i8]) align {MAP_ALIGN} "nvvm.grid_constant"'
            params.append(f"{where} %p{param.index}")
        head = [f"; {program.name}: {program.groups} blocks of {program.launched} threads"]
        head += [f"; p{p.index}: {d.name} {list(p.shape)}" for p, d in program.params]
        if program.shared_bytes:
            kind = f"[{program.shared_bytes} x i8]"
            what = f"internal addrspace(3) global {kind} poison"
            if program.ask_for_shared(dialect.declared_shared):
                what = "external addrspace(3) global [0 x i8]"
            head.append(f"@shared = {what}, align {program.shared_align}")
        head.append(f"define {dialect.convention} void @{program.name}({', '.join(params)}) #0 {{")
        head.append("entry:")
        tail = ["  ret void", "}", "", *self.declarations, ""]
        tail.append(f"attributes #0 = {{ {dialect.attributes(program)} }}")
        return "\n".join([*head, *self.lines, *tail, *self.metadata]) + "\n"

    def before_narrowing(self, dtype: DType, name: str) -> str:
        return self.opaque(dtype, name)

    def widened(self, of: DType, to: DType, name: str) -> str:
        return self.opaque(to, self.let(f"fpext {register_type(of)} {name} to {register_type(to)}"))

    def opaque(self, dtype: DType, name: str) -> str:
        """Through an empty inline assembly, lane by lane, which is no instruction.

        Where LLVM 22 sees `select (x < 0), x, 0`, it takes that for a minimum, and has -0.0 for 0.0; so on AMD for
        0.0 - 0.0. There it also rounds a product to float16 by v_fma_mixlo_f16 a, b, 0, which makes 0.0 of -0.0. Of two
        llvm.arithmetic.fence in a row it drops one, and AMD's backend knows none.
        """
        one, vector = register_type(dtype.scalar), register_type(dtype)
        through = f'call {one} asm "", "={self.dialect.registers[one]},0"'
        if dtype.lanes == 1:
            return self.let(f"{through}({one} {name})")
        made = "poison"
        for lane in range(dtype.lanes):
            taken = self.let(f"extractelement {vector} {name}, i64 {lane}")
            passed = self.let(f"{through}({one} {taken})")
            made = self.let(f"insertelement {vector} {made}, {one} {passed}, i64 {lane}")
        return made

    def instruction(self, it: Instruction) -> None:
        if it.op is Op.SCRATCH:
            raise RenderError("a kernel for a GPU was given packed operands: stage and box are for CPUs")
        if it.op is Op.SPECIAL:
            self.names[it] = self.special(it)
        elif it.op is Op.LOOP and it.src[0] is not None and it.src[0].op is Op.SPECIAL:
            self.own_group = it
            self.names[it] = self.names[it.source(0)]
        elif it.op is Op.ENDLOOP and it.src[0] is self.own_group is not None:
            self.own_group = None
        elif it.op is Op.SHARED:
            self.names[it] = self.let(f"getelementptr inbounds i8, {SHARED} @shared, i32 {it.arg}")
        elif it.op is Op.SHUFFLE:
            self.names[it] = self.shuffle(it)
        elif it.op is Op.SHL and it.dtype.lanes > 1 and it.dtype.scalar.bits == 64:
            self.names[it] = self.lane_by_lane(it)
        elif it.op is Op.MAX and it.arg == OF_NUMBERS and not self.extremes:
            self.names[it] = self.greater(it)
        elif it.op is Op.VECTOR and self.dialect.column is not None and _is_column(it):
            self.names[it] = self.column(it)
        elif it.op is Op.DIV and self.has_fast_weights and it.dtype.scalar is dtypes.float32:
            self.names[it] = self.quotient(it)
        elif it.op is Op.MATRIX:
            a, b, d, *exponents = (self.name(it.source(place)) for place in range(len(it.src)))
            self.names[it] = self.dialect.matrix(self, it.arg, a, b, d, exponents)
        elif it.op is Op.COPY_SHARED:
            self.copy_shared(it)
        elif it.op is Op.COMMIT:
            self.batch = it.arg or 0
            self.dialect.wait(self, -1)
        elif it.op is Op.WAIT:
            self.wait(it)
        elif it.op is Op.LOAD_ROWS:
            self.names[it] = self.load_rows(it)
        elif it.op is Op.ROUND_TF32:
            self.names[it] = self.dialect.round_tf32(self, self.name(it.source(0)), it.dtype.lanes)
        elif it.op is Op.PRODUCER:
            self.producer(it)
        elif it.op in BULK:
            self.dialect.bulk(self, it)
        elif it.op in WARPGROUP:
            self.names[it] = self.dialect.warpgroup(self, it)
        elif it.op is Op.BARRIER and self.is_without_producers:
            line = others_meet(self.program.threads)
            self.line(f'call void asm sideeffect "{line}", "~{{memory}}"() convergent')
        elif it.op is Op.BARRIER:
            if it.arg == UNITS_READ:
                self.dialect.shared_fence(self)
            for text in self.dialect.bare_barrier if self.has_waited else self.dialect.barrier:
                self.line(text)
            for text in self.dialect.barrier_declarations:
                self.declare(text)
        else:
            super().instruction(it)
        self.has_waited = it.op is Op.WAIT

    def special(self, it: Instruction) -> str:
        """The number of the block or of the thread in it. The range of groups ends at nobody's."""
        if it.arg == "last":
            return ""
        function = self.dialect.thread_id if it.arg == "thread" else self.dialect.block_id
        count = self.program.launched if it.arg == "thread" else self.program.groups
        self.declare(f"declare i32 @{function}()")
        known = self.fact(f"!{{i32 0, i32 {count}}}")
        number = self.let(f"call i32 @{function}(), !range {known}")
        kind = register_type(it.dtype)
        if it.arg == "thread" and self.first is not None and self.dialect.first is not None:
            first = self.dialect.first(self, number)
            self.first = Instruction(it.op, it.dtype, (), "wave", it.depth)
            self.names[self.first] = first if kind == "i32" else self.let(f"zext i32 {first} to {kind}")
        return number if kind == "i32" else self.let(f"zext i32 {number} to {kind}")

    def fact(self, what: str) -> str:
        """The name of a piece of metadata."""
        self.metadata.append(f"!{len(self.metadata)} = {what}")
        return f"!{len(self.metadata) - 1}"

    def _scopes(self) -> tuple[str, str]:
        """Facts of copies by waves, and of all other accesses to shared memory.

        None meets the other at the time: waits and barriers see to that. LLVM would wait for all copies that are under
        way before it reads anything there.
        """
        domain = self.fact('distinct !{!"shared memory"}')
        copies, others = (self.fact(f'!{{!{{!"{name}", {domain}}}}}') for name in ("copies", "others"))
        return (f", !alias.scope {copies}, !noalias {others}", f", !alias.scope {others}, !noalias {copies}")

    def facts_of(self, address: Instruction) -> str:
        return self.other_facts if address.op is Op.SHARED else ""

    def producer(self, it: Instruction) -> None:
        """Part the producers, of whom one does what stands here, from the threads that compute."""
        if it.arg == "begin":
            thread = it.source(0).source(0)
            kind = register_type(thread.dtype)
            is_other = self.let(f"icmp ult {kind} {self.name(thread)}, {self.program.threads}")
            self.line(f"br i1 {is_other}, label %others, label %producers")
            self.lines.append("producers:")
            self.line(f"br i1 {self.name(it.source(0))}, label %producer, label %producers.done")
            self.block = "producer"
            self.lines.append("producer:")
            return
        self.line("br label %producers.done")
        self.lines.append("producers.done:")
        self.line("ret void")
        self.block = "others"
        self.lines.append("others:")
        self.is_without_producers = True

    def quotient(self, it: Instruction) -> str:
        """A quotient of floats that is as good as the sums of weights that it is made of."""
        names = [self.name(it.source(place)) for place in (0, 1)]
        if self.dialect.quotient:
            return called_by_lane(self, self.dialect.quotient, it.dtype, names)
        accuracy = self.fact("!{float 2.5}")
        return self.let(f"fdiv {register_type(it.dtype)} {', '.join(names)}, !fpmath {accuracy}")

    def shuffle(self, it: Instruction) -> str:
        """Another thread's value, 32 bits at a time."""
        dtype, value = it.dtype, self.name(it.source(0))
        kind, bits = register_type(dtype), 1 if dtype.is_bool else dtype.bits
        number = value if kind == f"i{bits}" else self.let(f"bitcast {kind} {value} to i{bits}")
        words = max(1, bits // 32)
        if bits < 32:
            number = self.let(f"zext i{bits} {number} to i32")
        made = ""
        for word in range(words):
            part = number
            if words > 1:
                part = self.let(f"lshr i{bits} {number}, {32 * word}")
                part = self.let(f"trunc i{bits} {part} to i32")
            part = self.dialect.exchange(self, part, it.arg)
            if words > 1:
                part = self.let(f"zext i32 {part} to i{bits}")
                part = self.let(f"shl i{bits} {part}, {32 * word}") if word else part
                part = self.let(f"or i{bits} {made}, {part}") if word else part
            made = part
        if bits < 32:
            made = self.let(f"trunc i32 {made} to i{bits}")
        return made if kind == f"i{bits}" else self.let(f"bitcast i{bits} {made} to {kind}")

    def lane_by_lane(self, it: Instruction) -> str:
        """A vector's lanes as numbers of their own.

        LLVM 22's AMDGPU backend ends the process ("target-independent node should have been selected") where vectors of
        64 bits that were made of 32 are moved by 32; no GPU has a vector operation for them.
        """
        made, vector, one = "poison", register_type(it.dtype), register_type(it.dtype.scalar)
        for lane in range(it.dtype.lanes):
            picked = [
                (self.let(f"extractelement {vector} {self.name(s)}, i64 {lane}"), s.dtype.scalar)
                for s in it.src
                if s
            ]
            number = arithmetic(self, it.op, it.dtype.scalar, picked, [s.number for s in it.src if s])
            made = self.let(f"insertelement {vector} {made}, {one} {number}, i64 {lane}")
        return made

    def greater(self, it: Instruction) -> str:
        """One instruction, which makes no difference between kinds of NaN, and loses one beside a number."""
        kind = register_type(it.dtype)
        function = f"llvm.maxnum.{suffix(it.dtype)}"
        self.declare(f"declare {kind} @{function}({kind}, {kind})")
        sources = ", ".join([f"{kind} {self.name(it.source(place))}" for place in range(2)])
        return self.let(f"call nnan {kind} @{function}({sources})")

    def column(self, it: Instruction) -> str:
        """One byte of each of some vectors, four words at a time."""
        assert self.dialect.column is not None
        count = len(it.src) // 4
        made = "poison"
        for number in range(count):
            words = []
            for source in it.src[4 * number : 4 * number + 4]:
                assert source is not None
                (lane,), row = source.arg, source.source(0)
                kind = f"<{row.dtype.lanes // 4} x i32>"
                whole = self.let(f"bitcast {register_type(row.dtype)} {self.name(row)} to {kind}")
                words.append(self.let(f"extractelement {kind} {whole}, i64 {lane // 4}"))
            word = self.dialect.column(self, words, lane % 4)
            made = self.let(f"insertelement <{count} x i32> {made}, i32 {word}, i64 {number}")
        return self.let(f"bitcast <{count} x i32> {made} to {register_type(it.dtype)}")

    def load_rows(self, it: Instruction) -> str:
        """Fragments of squares in shared memory, whose rows start where the threads say."""
        offset, is_turned = it.arg
        at = Instruction(it.op, it.dtype, it.src, offset, it.depth)
        pointer = self.place(at, memory_type(it.dtype.scalar), True)
        return self.dialect.load_rows(self, pointer, it.dtype, is_turned)

    def copy_shared(self, it: Instruction) -> None:
        """Begin a copy to shared memory, in pieces as large as both addresses divide by."""
        to, source, depth = it.src[:2], it.src[2:4], it.depth
        mask, guard = it.src[4], it.src[5]
        places = [
            Instruction(it.op, it.dtype, src, at, depth) for src, at in zip((to, source), it.arg, strict=True)
        ]
        size = min([self.aligned.bytes(place, it.dtype) for place in places])
        if self.first is not None:
            self._begin_guard(guard)
            places[0] = self._of_first(places[0], {})
        pointers = [self.place(place, memory_type(it.dtype.scalar), mask is None) for place in places]
        on = None if mask is None else self.name(mask)
        if self.first is None:
            self._begin_guard(guard)
        for start in range(0, it.dtype.itemsize * it.dtype.lanes, size):
            here = pointers
            if start:
                kinds = (SHARED, self.pointer)
                here = [
                    self.let(f"getelementptr i8, {kind} {pointer}, i64 {start}")
                    for kind, pointer in zip(kinds, pointers, strict=True)
                ]
            self.dialect.copy(self, here[0], here[1], size, on)
        if self.first is None:
            self._end_guard()

    def _begin_guard(self, guard: Instruction | None) -> None:
        """What follows is done where a condition holds, until it ends. Copies by waves with one condition share it."""
        if guard is self.guard is not None:
            return
        number, self.count = self.count, self.count + 1
        if guard is not None:
            self.line(f"br i1 {self.name(guard)}, label %copy{number}, label %copy{number}.done")
            self.lines.append(f"copy{number}:")
            self.guard, self.guarded = guard, f"copy{number}"

    def _end_guard(self) -> None:
        if self.guard is not None:
            self.guard = None
            self.line(f"br label %{self.guarded}.done")
            self.block = f"{self.guarded}.done"
            self.lines.append(f"{self.block}:")

    def _of_first(self, it: Instruction, known: dict[Instruction, Instruction]) -> Instruction:
        """An index, or a place, as the first thread of the wave has it: one number, which needs no vector register."""
        if it.op is Op.SPECIAL and it.arg == "thread":
            assert self.first is not None
            return self.first
        if it.op in SAME_IN_A_WAVE:
            return it
        if it not in known:
            src = tuple([source and self._of_first(source, known) for source in it.src])
            known[it] = it
            if src != it.src:
                known[it] = Instruction(it.op, it.dtype, src, it.arg, it.depth)
                if it.op is not Op.COPY_SHARED:
                    self.instruction(known[it])
        return known[it]

    def wait(self, it: Instruction) -> None:
        """Until all batches but some are there. Copies by waves are counted, so only if all of these were begun."""
        if self.first is None:
            self.dialect.wait(self, it.arg)
            return
        begun = it.src[0] if it.src else None
        left = it.arg * self.batch
        if begun is None or not left:
            self.dialect.wait(self, 0)
            return
        number, self.count = self.count, self.count + 1
        self.line(f"br i1 {self.name(begun)}, label %wait{number}.some, label %wait{number}.all")
        for what, few in (("some", left), ("all", 0)):
            self.lines.append(f"wait{number}.{what}:")
            self.dialect.wait(self, few)
            self.line(f"br label %wait{number}.done")
        self.block = f"wait{number}.done"
        self.lines.append(f"{self.block}:")

    # -- memory -----------------------------------------------------------------------------------------------------

    def pointer_to(self, address: Instruction) -> str:
        return SHARED if address.op is Op.SHARED else self.pointer

    def alignment(self, it: Instruction, dtype: DType) -> int:
        return self.aligned.bytes(it, dtype)

    def load(self, it: Instruction) -> str:
        """Lanes with masks of their own are read one by one, those that are off from the buffer's start: no branches,
        and LLVM's NVPTX backend (22) gives up on a vector whose mask it finds to be constant.

        A buffer that the kernel writes is only read by lanes that are on: another thread may be writing its start.
        """
        dtype, mask = it.dtype, it.src[2] if len(it.src) > 2 else None
        address = it.source(0)
        is_written = address.op is Op.PARAM and address.arg.writable
        if mask is None or (dtype.lanes == 1 and not is_written):
            return super().load(it)
        kind, element = memory_type(dtype), memory_type(dtype.scalar)
        pointer, start = self.place(it, element, False), self.name(address)
        if mask.op is Op.BROADCAST and is_written:
            mask = mask.source(0)  # all lanes or none
        if mask.dtype.lanes == 1:
            value = self.read_where(self.name(mask), kind, pointer, self.alignment(it, dtype))
            return self.let(f"icmp ne {kind} {value}, zeroinitializer") if dtype.is_bool else value
        if not is_written and (piece := self._piece(it, dtype, mask)) > 1:
            return self._by_pieces(dtype, self.name(mask), pointer, start, piece)
        value = "poison"
        for lane in range(dtype.lanes):
            here = self.let(f"extractelement <{dtype.lanes} x i1> {self.name(mask)}, i64 {lane}")
            place = self.let(f"getelementptr {element}, {self.pointer} {pointer}, i64 {lane}")
            if is_written:
                chosen = self.read_where(here, element, place, dtype.scalar.itemsize)
            else:
                safe = self.let(f"select i1 {here}, {self.pointer} {place}, {self.pointer} {start}")
                read = self.let(f"load {element}, {self.pointer} {safe}, align {dtype.scalar.itemsize}")
                chosen = self.let(f"select i1 {here}, {element} {read}, {element} zeroinitializer")
            value = self.let(f"insertelement {kind} {value}, {element} {chosen}, i64 {lane}")
        return self.let(f"icmp ne {kind} {value}, zeroinitializer") if dtype.is_bool else value

    def _piece(self, it: Instruction, dtype: DType, mask: Instruction) -> int:
        """How many lanes are read at once, of a load whose lanes have masks: all of them are on, or none."""
        address = it.source(0)
        if dtype.is_bool or address.op is not Op.PARAM or prod(address.arg.shape) < dtype.lanes:
            return 1
        return min(self.aligned.alike(mask), self.aligned.bytes(it, dtype) // dtype.scalar.itemsize)

    def _by_pieces(self, dtype: DType, mask: str, pointer: str, start: str, piece: int) -> str:
        """Neighbours at once; those that are off are read from the buffer's start."""
        lanes, element = dtype.lanes, memory_type(dtype.scalar)
        kind, whole, made = f"<{piece} x {element}>", f"<{lanes} x {element}>", "poison"
        for first in range(0, lanes, piece):
            here = self.let(f"extractelement <{lanes} x i1> {mask}, i64 {first}")
            place = self.let(f"getelementptr {element}, {self.pointer} {pointer}, i64 {first}")
            safe = self.let(f"select i1 {here}, {self.pointer} {place}, {self.pointer} {start}")
            read = self.let(f"load {kind}, {self.pointer} {safe}, align {piece * dtype.scalar.itemsize}")
            chosen = self.let(f"select i1 {here}, {kind} {read}, {kind} zeroinitializer")
            if piece == lanes:
                return chosen
            wide = ", ".join([f"i32 {lane}" if lane < piece else "i32 poison" for lane in range(lanes)])
            spread = self.let(f"shufflevector {kind} {chosen}, {kind} poison, <{lanes} x i32> <{wide}>")
            picks = ", ".join(
                [
                    f"i32 {lanes + lane - first if first <= lane < first + piece else lane}"
                    for lane in range(lanes)
                ]
            )
            made = self.let(f"shufflevector {whole} {made}, {whole} {spread}, <{lanes} x i32> <{picks}>")
        return made

    def read_where(self, condition: str, element: str, pointer: str, align: int) -> str:
        """An element that is read where a condition holds; zero elsewhere."""
        number, self.count, before = self.count, self.count + 1, self.block
        self.line(f"br i1 {condition}, label %load{number}, label %load{number}.done")
        self.lines.append(f"load{number}:")
        read = self.let(f"load {element}, {self.pointer} {pointer}, align {align}")
        self.line(f"br label %load{number}.done")
        self.block = f"load{number}.done"
        self.lines.append(f"{self.block}:")
        return self.let(f"phi {element} [ {read}, %load{number} ], [ zeroinitializer, %{before} ]")

    def store(self, it: Instruction) -> None:
        mask = it.src[3] if len(it.src) > 3 else None
        if mask is not None and mask.op is Op.BROADCAST:
            mask = mask.source(0)  # all lanes or none
        if mask is None or mask.dtype.lanes > 1:
            super().store(it)
            return
        number, self.count = self.count, self.count + 1
        self.line(f"br i1 {self.name(mask)}, label %store{number}, label %store{number}.done")
        self.lines.append(f"store{number}:")
        super().store(Instruction(it.op, it.dtype, it.src[:3], it.arg, it.depth))
        self.line(f"br label %store{number}.done")
        self.block = f"store{number}.done"
        self.lines.append(f"{self.block}:")


def _is_column(it: Instruction) -> bool:
    """Whether a vector of bytes is the same one of each of some vectors: a row of a tile that is turned."""
    lanes = {source.arg for source in it.src if source is not None and source.op is Op.LANE}
    rows = [source.source(0) for source in it.src if source is not None and source.op is Op.LANE]
    return (
        it.dtype.scalar.itemsize == 1
        and not it.dtype.is_bool
        and len(it.src) % 4 == 0
        and len(rows) == len(it.src)
        and len(lanes) == 1
        and all(row.dtype.lanes % 4 == 0 and len(it.source(0).arg) == 1 for row in rows)
    )
