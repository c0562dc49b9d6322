"""A kernel as one function of LLVM IR that runs threadgroups, one after the other.

In       a Source, one of its kernels
Out      Code: the text, the sites at which a thread may fail, and how much memory a group needs
Changes  nothing
Next     expressions.py (what one thread computes), compiled.py (machine code of it, and its launch)
Source   Metal Shading Language Specification: "Threadgroup and SIMD-group Synchronization Functions", "SIMD-group
         Functions", "Threadgroup Address Space"

Between two places where threads meet (a barrier, an exchange), one thread after the other runs: a Piece, which is a
loop over the threads of the group. What a thread keeps from one piece to the next has a slot for each thread; what it
needs in one piece only stays in a register. A loop or a condition around such a place is run by all threads together,
each with a mask that says whether it takes part.

What machine.py finds is found here, too: accesses outside, races in threadgroup memory, barriers that some threads do
not reach. Each element of threadgroup memory remembers who wrote it and who read it, as epoch * MOST_THREADS + thread;
each barrier begins another epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, is_dataclass
from typing import Any, NamedTuple

from hcq.emu.metal.shader import syntax
from hcq.emu.metal.shader.errors import NotCompiled
from hcq.emu.metal.shader.expressions import Expressions, Site, spelled
from hcq.emu.metal.shader.machine import COLUMNS, MATRIX, ROWS, SIMD, UNTOUCHED
from hcq.emu.metal.shader.parser import Source
from hcq.emu.metal.shader.syntax import Expression, Function, Statement
from hcq.emu.metal.shader.typed import BARRIERS, Made, Pointer, Value
from hcq.emu.metal.shader.types import BOOL, SIZES, Type

ARGUMENTS = (
    "first",
    "last",
    "threads",
    "rows",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
)
FAULT = len(ARGUMENTS)  # of the words of a launch: the site and its index
TABLE = FAULT + 2  # and from here on, where each memory begins, and its bytes
MOST_THREADS = 2048
SEVERAL = MOST_THREADS - 1  # readers
EPOCHS = 1 << 19  # then all is forgotten, and they begin again
SLOT_UNIT = 16  # slots are for a multiple of so many threads, and begin at a multiple of as many bytes
_PARTED = "some threads of a group reach a threadgroup_barrier that the others do not."
_OUTSIDE = "simd_shuffle_xor by {index} reaches a thread that is not in the SIMD group."
_NO_GROUPS = "a matrix of SIMD groups, of which {index} threads are no whole number."
_NOT_WHOLE = "a product of matrices that some threads of a SIMD group do not reach."
_NOT_THERE = "simd_shuffle_xor asks a thread that is not there."


class Code(NamedTuple):
    """A kernel's text. A group needs fixed_bytes, and slot_bytes for each row."""

    text: str
    sites: list[Site]
    fixed_bytes: int
    slot_bytes: int

    @property
    def lines(self) -> int:
        """Of the text."""
        return self.text.count("\n")


@dataclass(frozen=True)
class Variable(Value):
    """A variable of a thread; its text is its name. is_uniform: one for all of them."""

    is_uniform: bool = False


@dataclass(frozen=True)
class Given(Value):
    """What hardware says of a thread."""


@dataclass
class Piece:
    """A loop over the threads.

    uses    the variables in it, and whether they are written
    shared  of them, those that threads read of each other: as they were before the piece
    """

    name: str
    masks: tuple[Variable, ...]
    lines: list[str] = field(default_factory=list)
    uses: dict[Variable, bool] = field(default_factory=dict)
    shared: set[Variable] = field(default_factory=set)

    @property
    def written(self) -> set[Variable]:
        """Variables that are not yet in their slots."""
        return {one for one, is_written in self.uses.items() if is_written}


class _Shared(NamedTuple):
    """Threadgroup memory in the memory of a group. unit: bytes that are remembered by themselves."""

    at: int
    size_bytes: int
    unit: int
    writers_at: int
    readers_at: int


def write(source: Source, kernel: Function) -> Code:
    """The text of a kernel. Raises NotCompiled for what is interpreted only."""
    return _Groups(source, kernel).code()


class _Groups(Expressions):
    def __init__(self, source: Source, kernel: Function) -> None:
        super().__init__(source)
        self.kernel = kernel
        self.outer = self.lines  # those around threads, with the name of a piece where threads run
        self.pieces: dict[str, Piece] = {}
        self.piece: Piece | None = None
        self.masks: tuple[Variable, ...] = ()
        self.live: Variable | None = None
        self.met: dict[int, Variable] = {}  # what a call gave at which threads met, by the call
        self.results: list[
            tuple[Variable, str]
        ] = []  # of the functions around: the result, and where they end
        self.variables: list[Variable] = []
        self.slotted: set[Variable] = set()  # read by other threads, so never in a register
        self.allocated: list[str] = []
        self.sizes: set[tuple[str, int]] = set()
        self.shared: dict[str, _Shared] = {}
        self.fixed_bytes = 0
        self.passed: list[str] = []

    # ------------------------------------------------------------ pieces

    def enter(self, masks: tuple[Variable, ...] | None = None) -> None:
        """Threads run, if they do not already: those of the masks."""
        if self.piece is not None:
            return
        made = Piece(self.fresh("piece"), self.masks if masks is None else masks)
        self.slotted.update(made.masks)
        self.jump(f"{made.name}.start")
        self.say(made.name)
        self.pieces[made.name] = self.piece = made
        self.lines, self.block = made.lines, f"{made.name}.begun"

    def leave(self) -> None:
        """All of them have come here."""
        if self.piece is None:
            return
        self.jump(f"{self.piece.name}.end")
        self.lines, self.block, self.piece = self.outer, f"{self.piece.name}.done", None

    @property
    def thread(self) -> str:
        """The number of the thread that runs."""
        assert self.piece is not None
        return f"%{self.piece.name}.t"

    # ------------------------------------------------------------ variables

    def variable_of(self, stem: str, kind: Type, is_uniform: bool = False) -> Variable:
        """A new one."""
        if kind.lanes > 1 and kind.scalar == "bool":
            raise NotCompiled(f"a variable of {kind}")
        made = Variable(self.fresh(stem.replace(":", "_")), kind, None, is_uniform)
        if is_uniform:
            self.allocated.append(f"  %{made.text} = alloca {spelled(kind)}")
        else:
            self.variables.append(made)
        return made

    def cell(self, one: Variable, is_written: bool) -> str:
        """Where a variable is while this piece runs."""
        if one.is_uniform:
            return f"%{one.text}"
        self.enter()
        assert self.piece is not None
        self.piece.uses[one] = self.piece.uses.get(one, False) or is_written
        return f"%{one.text}.{self.piece.name}"

    def put(self, one: Variable, value: str) -> None:
        """Its new value."""
        cell = self.cell(one, True)
        self.say(f"store {spelled(one.kind)} {value}, ptr {cell}")

    def got(self, one: Variable) -> Value:
        """What it has."""
        cell = self.cell(one, False)
        return self.let(f"load {spelled(one.kind)}, ptr {cell}", one.kind)

    def slot(self, one: Variable, thread: str) -> str:
        """Where the variable of any thread is kept between pieces."""
        self.slotted.add(one)
        return self.word(f"getelementptr {spelled(one.kind)}, ptr %slots.{one.text}, i64 {thread}")

    def named(self, name: str) -> Value:
        found = self.find(name)
        if isinstance(found, Variable):
            return self.got(found)
        if isinstance(found, Given):
            return self.given(found)
        return super().named(name)

    def given(self, what: Given) -> Value:
        """What hardware says of a thread, or of its group."""
        self.enter()
        thread, name = self.thread, what.text
        plain = {
            "thread_index_in_threadgroup": thread,
            "thread_index_in_simdgroup": f"and i64 {thread}, {SIMD - 1}",
            "simdgroup_index_in_threadgroup": f"lshr i64 {thread}, {SIMD.bit_length() - 1}",
        }
        if name in plain:
            text = plain[name] if name == "thread_index_in_threadgroup" else self.word(plain[name])
            return self.narrowed(text, what.kind)
        lanes = []
        for axis in "xyz"[: what.kind.lanes]:
            if name == "threadgroup_position_in_grid":
                text = f"%group.{axis}"
            elif name == "threads_per_threadgroup":
                text = f"%block_{axis}"
            elif name == "threadgroups_per_grid":
                text = f"%grid_{axis}"
            elif name in ("thread_position_in_threadgroup", "thread_position_in_grid"):
                text = self.inside(axis)
                if name == "thread_position_in_grid":
                    text = self.word(f"add i64 {text}, {self.word(f'mul i64 %group.{axis}, %block_{axis}')}")
            else:
                raise NotCompiled(f"[[{name}]]")
            lanes.append(self.narrowed(text, Type(what.kind.scalar)))
        return lanes[0] if what.kind.lanes == 1 else self.vector(lanes, what.kind)

    def inside(self, axis: str) -> str:
        """A coordinate of the thread in its group."""
        if axis == "x":
            return self.word(f"urem i64 {self.thread}, %block_x")
        if axis == "y":
            return self.word(f"urem i64 {self.word(f'udiv i64 {self.thread}, %block_x')}, %block_y")
        return self.word(f"udiv i64 {self.thread}, %layer")

    def narrowed(self, text: str, kind: Type) -> Value:
        """A word of 64 bits as a whole number."""
        return self.converted(Value(text, Type("ulong")), Type(kind.scalar))

    # ------------------------------------------------------------ memory

    def base(self, memory: str) -> str:
        return f"%base.{memory}"

    def elements(self, memory: str, size_bytes: int) -> str:
        if memory in self.shared:
            return str(self.shared[memory].size_bytes // size_bytes)
        self.sizes.add((memory, size_bytes))
        return f"%count.{memory}.{size_bytes}"

    def noted(self, place: Pointer, index: str, verb: str) -> None:
        """A race: somebody else wrote it in this epoch, or read what is written now."""
        shared = self.shared.get(place.memory)
        if shared is None:
            return
        size = SIZES[place.kind.scalar]
        parts = size // shared.unit
        entries = place.kind.lanes * parts
        vector = f"<{entries} x i32>"
        first = index if parts == 1 else self.word(f"mul i64 {index}, {parts}")
        writers, readers = (
            self.word(f"getelementptr i32, ptr %{which}.{place.memory}, i64 {first}")
            for which in ("writers", "readers")
        )
        epoch = self.word("load i32, ptr %epoch")
        me = self.word(f"add i32 {epoch}, {self.word(f'trunc i64 {self.thread} to i32')}")
        many_epoch, many_me = (self.spread(one, entries) for one in (epoch, me))

        def touched(entry: str, what: str) -> None:
            now = self.word(f"icmp uge {vector} {entry}, {many_epoch}")
            other = self.word(f"icmp ne {vector} {entry}, {many_me}")
            wrong = self.word(f"and <{entries} x i1> {now}, {other}")
            bits = self.word(f"bitcast <{entries} x i1> {wrong} to i{entries}")
            site = Site(
                f"a race: a thread {what}, at byte {{index}} of {{name}}, with no barrier between.",
                size,
                place.memory,
            )
            at = self.word(f"mul i64 {index}, {size}")
            self.guard(self.word(f"icmp eq i{entries} {bits}, 0"), site, at)

        wrote = self.word(f"load {vector}, ptr {writers}, align 4")
        read = self.word(f"load {vector}, ptr {readers}, align 4")
        if verb == "reads":
            touched(wrote, "reads what another one wrote")
            stale = self.word(f"icmp ult {vector} {read}, {many_epoch}")
            same = self.word(f"icmp eq {vector} {read}, {many_me}")
            mine = self.word(f"or <{entries} x i1> {stale}, {same}")
            several = self.spread(self.word(f"add i32 {epoch}, {SEVERAL}"), entries)
            new = self.word(f"select <{entries} x i1> {mine}, {vector} {many_me}, {vector} {several}")
            self.say(f"store {vector} {new}, ptr {readers}, align 4")
            return
        touched(wrote, "writes what another one wrote")
        touched(read, "writes what another one read")
        self.say(f"store {vector} {many_me}, ptr {writers}, align 4")

    def spread(self, word: str, entries: int) -> str:
        """A word in each entry."""
        one = self.word(f"insertelement <{entries} x i32> poison, i32 {word}, i32 0")
        return self.word(
            f"shufflevector <{entries} x i32> {one}, <{entries} x i32> poison, <{entries} x i32> zeroinitializer"
        )

    # ------------------------------------------------------------ statements

    def statement(self, it: Statement) -> None:
        for call in self.meetings(it):
            self.meet(call)
        if self.piece is not None and self.piece.shared & set(self.matrices_in(it)):
            self.leave()  # others may still have to read them
        match it:
            case syntax.Declare():
                made = self.variable_of(it.name, it.kind)
                self.enter()
                value = None if it.value is None else self.converted(self.value(it.value), it.kind)
                self.put(made, "zeroinitializer" if value is None else value.text)
                self.scopes[-1][it.name] = made
            case syntax.Assign():
                self.enter()
                self.assign(it)
            case syntax.If():
                if self.meets(it.then) or self.meets(it.otherwise):
                    self.branch_together(it)
                else:
                    self.enter()
                    self.branch(it)
            case syntax.For():
                if self.meets(it.body):
                    self.loop_together(it)
                else:
                    self.enter()
                    self.loop(it)
            case syntax.Return():
                self.enter()
                self.give(it)
            case syntax.Do():
                if it.value.name in BARRIERS:
                    self.barrier()
                else:
                    self.product(*self.product_of(it.value))

    def assign(self, it: syntax.Assign) -> None:
        """To a variable, or into memory."""
        if isinstance(it.target, syntax.Name):
            one = self.variable(it.target.name)
            if not isinstance(one, Variable):
                raise NotCompiled(f"an assignment to {it.target.name}")
            self.put(one, self.converted(self.value(it.value), one.kind).text)
            return
        if isinstance(it.target, syntax.Index) and isinstance(it.target.base, syntax.Member):
            name, number = self.element_of(it.target)
            whole = self.variable(name)
            assert isinstance(whole, Variable)
            value = self.converted(self.value(it.value), Type(whole.kind.scalar))
            kind, before = spelled(whole.kind), self.got(whole).text
            made = f"insertelement {kind} {before}, {spelled(value.kind)} {value.text}, i32 {number}"
            self.put(whole, self.word(made))
            return
        place = self.written(it.target)
        self.store(place, self.converted(self.value(it.value), place.kind))

    def branch(self, it: syntax.If) -> None:
        """Each thread for itself."""
        yes, no, after = (self.fresh(stem) for stem in ("then", "else", "after"))
        self.say(f"br i1 {self.truth(it.condition)}, label %{yes}, label %{no}")
        for label, body in ((yes, it.then), (no, it.otherwise)):
            self.label(label)
            self.statements(body)
            self.jump(after)
        self.label(after)

    def loop(self, it: syntax.For) -> None:
        """Each thread for itself."""
        head, body, after = (self.fresh(stem) for stem in ("head", "body", "after"))
        low = self.converted(self.value(it.low), it.kind)
        counter = self.variable_of(it.name, it.kind)
        self.put(counter, low.text)
        self.scopes.append({it.name: counter})
        self.jump(head)
        self.label(head)
        self.say(f"br i1 {self.truth(it.condition)}, label %{body}, label %{after}")
        self.label(body)
        self.statements(it.body)
        step = self.converted(self.value(it.step), it.kind)
        self.put(counter, self.operated("+", self.got(counter), step).text)
        self.jump(head)
        self.label(after)
        self.scopes.pop()

    def give(self, it: syntax.Return) -> None:
        """Out of a function, or the end of a thread."""
        if self.results:
            assert it.value is not None
            result, end = self.results[-1]
            self.put(result, self.converted(self.value(it.value), result.kind).text)
            if end:
                self.jump(end)
                self.label(self.fresh("never"))
            return
        assert self.piece is not None
        if self.live is not None:
            self.put(self.live, "false")
        self.jump(f"{self.piece.name}.end")
        self.label(self.fresh("never"))

    def called(self, it: syntax.Call, function: Function, given: list[Value]) -> Value:
        """A function in which nobody meets is written where it is called."""
        known = self.met.get(id(it))
        if known is not None:
            return self.got(known)
        if not self.meets(function.body):
            return self.got(self.inlined(function, given, self.fresh("returned")))
        if any(isinstance(one, syntax.Return) for one in _inner(function.body)):
            raise NotCompiled(f"{function.name}, in which threads meet and return early")
        return self.got(self.inlined(function, given, ""))

    def inlined(self, function: Function, given: list[Value], end: str) -> Variable:
        """Its statements; the variable that has its result. end: where they lead, "" where all threads go through."""
        assert function.result is not None
        scopes, at, result = self.scopes, self.at, self.variable_of(function.name, function.result)
        names: dict[str, Made] = {}
        for parameter, value in zip(function.parameters, given):
            if value.number is not None:
                names[parameter.name] = value
                continue
            one = self.variable_of(parameter.name, parameter.kind)
            self.put(one, value.text)
            names[parameter.name] = one
        self.scopes = [names]
        self.results.append((result, end))
        self.statements(function.body)
        self.results.pop()
        if end:
            self.jump(end)
            self.label(end)
        self.scopes, self.at = scopes, at
        return result

    # ------------------------------------------------------------ where threads meet

    def matrices_in(self, it: Statement) -> list[Made]:
        """The matrices that there are by now of which a statement changes an element."""
        match it:
            case syntax.Assign(target=syntax.Index(base=syntax.Member(base=syntax.Name(name=name)))):
                return [scope[name] for scope in self.scopes if name in scope]
            case syntax.If():
                return [made for one in (*it.then, *it.otherwise) for made in self.matrices_in(one)]
            case syntax.For():
                return [made for one in it.body for made in self.matrices_in(one)]
        return []

    def meets(self, body: list[Statement]) -> bool:
        """Whether threads meet in these statements."""
        for one in body:
            match one:
                case syntax.Do():
                    return True
                case syntax.If():
                    if self.meets(one.then) or self.meets(one.otherwise):
                        return True
                case syntax.For():
                    if self.meets(one.body):
                        return True
            if self.meetings(one):
                return True
        return False

    def meetings(self, it: Statement) -> list[syntax.Call]:
        """The calls of a statement's own expressions at which threads meet, in the order in which they are made."""
        found: list[syntax.Call] = []
        match it:
            case syntax.Declare():
                if it.value is not None:
                    self.collect(it.value, found, False)
            case syntax.Assign():
                self.collect(it.target, found, False)
                self.collect(it.value, found, False)
            case syntax.If():
                self.collect(it.condition, found, False)
            case syntax.For():
                for one in (it.low, it.condition, it.step):
                    self.collect(one, found, True)
            case syntax.Return():
                if it.value is not None:
                    self.collect(it.value, found, False)
        return found

    def collect(self, it: Expression, found: list[syntax.Call], is_open: bool) -> None:
        """is_open: not all threads may come to this expression, or not once."""
        match it:
            case syntax.Unary() | syntax.Cast():
                self.collect(it.value, found, is_open)
            case syntax.Binary():
                self.collect(it.left, found, is_open)
                self.collect(it.right, found, is_open or it.sign in ("&&", "||"))
            case syntax.Choice():
                self.collect(it.condition, found, is_open)
                self.collect(it.yes, found, True)
                self.collect(it.no, found, True)
            case syntax.Index():
                self.collect(it.base, found, is_open)
                self.collect(it.index, found, is_open)
            case syntax.Member():
                self.collect(it.base, found, is_open)
            case syntax.Call():
                for one in it.arguments:
                    self.collect(one, found, is_open)
                function = self.source.functions.get(it.name)
                if it.name == "simd_shuffle_xor" or (function is not None and self.meets(function.body)):
                    if is_open:
                        raise NotCompiled(f"{it.name} where not all threads come")
                    found.append(it)

    def meet(self, call: syntax.Call) -> None:
        """Make a call for all threads, and remember what each was given."""
        self.enter()
        self.met.pop(id(call), None)
        value = self.call(call)
        made = self.variable_of("met", value.kind)
        self.put(made, value.text)
        self.met[id(call)] = made

    def shuffle(self, it: syntax.Call, value: Value, by: Value) -> Value:
        known = self.met.get(id(it))
        if known is not None:
            return self.got(known)
        if by.number is None:
            raise NotCompiled("simd_shuffle_xor by a number that is not written")
        mine = self.variable_of("mine", value.kind)
        self.put(mine, value.text)
        self.leave()
        self.enter()
        number = int(by.number)
        other = self.word(f"xor i64 {self.thread}, {number}")
        inside = "false" if number >= SIMD else self.word(f"icmp ult i64 {other}, %threads")
        self.guard(inside, Site(_OUTSIDE), str(number))
        for mask in self.masks:
            there = self.word(f"load i1, ptr {self.slot(mask, other)}")
            self.guard(there, Site(_NOT_THERE), "0")
        return self.let(f"load {spelled(value.kind)}, ptr {self.slot(mine, other)}", value.kind)

    def product(self, d: Value, a: Value, b: Value, c: Value) -> None:
        """d = a @ b + c of matrices of each SIMD group; rounded as in machine.py."""
        assert isinstance(a, Variable) and isinstance(b, Variable)
        if self.piece is not None and (a in self.piece.written or b in self.piece.written):
            self.leave()
        self.enter()
        assert self.piece is not None
        self.piece.shared |= {a, b}
        whole = self.word(f"and i64 %threads, {SIMD - 1}")
        self.guard(self.word(f"icmp eq i64 {whole}, 0"), Site(_NO_GROUPS), "%threads")
        for mask in self.masks:
            for lane in range(SIMD):
                other = self.word(f"or i64 {self.word(f'and i64 {self.thread}, -{SIMD}')}, {lane}")
                self.guard(self.word(f"load i1, ptr {self.slot(mask, other)}"), Site(_NOT_WHOLE), "0")
        assert isinstance(c, Variable) and isinstance(d, Variable)
        sums = self.got(c)
        lanes = [self.lane(sums, number) for number in range(2)]
        rows, columns = _threads_of(ROWS), _threads_of(COLUMNS)
        in_row = self.word(f"and i64 {self.thread}, {~(SIMD - 1) | rows}")
        in_column = self.word(f"and i64 {self.thread}, {~(SIMD - 1) | columns}")
        for k in range(MATRIX):
            of_k, at_k = (
                next(t for t in range(SIMD) if not t & mine and places[t] == at)
                for mine, places, at in ((rows, COLUMNS, k // 2 * 2), (columns, ROWS, k))
            )
            left, right = self.held(a, in_row, of_k), self.held(b, in_column, at_k)
            factor = self.as_float(self.lane(left, k % 2))
            for number in range(2):
                made = self.operated("*", factor, self.as_float(self.lane(right, number)))
                lanes[number] = self.operated("+", lanes[number], made)
        found = self.vector(lanes, d.kind).text
        if d in (a, b):
            raise NotCompiled("a product of matrices that takes the place of a factor")
        self.put(d, found)

    def held(self, one: Variable, group: str, lane: int) -> Value:
        """What a thread of the same row, or of the same column, has of a matrix."""
        other = self.word(f"or i64 {group}, {lane}")
        return self.let(f"load {spelled(one.kind)}, ptr {self.slot(one, other)}", one.kind)

    def as_float(self, value: Value) -> Value:
        """An element of a factor."""
        if value.kind.scalar != "bfloat":
            return self.converted(value, Type("float"))
        wide = self.word(f"shl i32 {self.word(f'zext i16 {value.text} to i32')}, 16")
        return self.let(f"bitcast i32 {wide} to float", Type("float"))

    def barrier(self) -> None:
        """All threads of the group, or none; then another epoch."""
        self.leave()
        if self.masks:
            every, some = self.flag("every", "true"), self.flag("some", "false")
            self.enter(())
            there = "true"
            for mask in self.masks:
                there = self.word(f"and i1 {there}, {self.got(mask).text}")
            for one, word in ((every, "and"), (some, "or")):
                self.put(one, self.word(f"{word} i1 {self.got(one).text}, {there}"))
            self.leave()
            same = self.word(f"icmp eq i1 {self.got(every).text}, {self.got(some).text}")
            self.guard(same, Site(_PARTED), "0")
        self.next_epoch()

    def next_epoch(self) -> None:
        """Nobody has touched threadgroup memory yet."""
        if not self.shared:
            return
        new = self.word(f"add i32 {self.word('load i32, ptr %epoch')}, {MOST_THREADS}")
        self.say(f"store i32 {new}, ptr %epoch")
        full = self.word(f"icmp uge i32 {new}, {EPOCHS * MOST_THREADS}")
        again, after = self.fresh("again"), self.fresh("epoch")
        self.say(f"br i1 {full}, label %{again}, label %{after}")
        self.label(again)
        for name, one in self.shared.items():
            for which in ("writers", "readers"):
                self.fill(f"%{which}.{name}", 0, 4 * (one.size_bytes // one.unit))
        self.say(f"store i32 {MOST_THREADS}, ptr %epoch")
        self.jump(after)
        self.label(after)

    def fill(self, base: str, byte: int, size_bytes: int) -> None:
        """Memory with one byte all over."""
        self.declared["memset"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
        self.say(f"call void @llvm.memset.p0.i64(ptr {base}, i8 {byte}, i64 {size_bytes}, i1 false)")

    def flag(self, stem: str, value: str) -> Variable:
        """A bool that all threads have together, as it is now."""
        self.leave()
        made = self.variable_of(stem, BOOL, True)
        self.put(made, value)
        return made

    def masked(self, condition: Expression, holds: bool, inside: str, after: str) -> Variable:
        """A mask of the threads for which a condition holds, or does not. Where there are some, on to `inside`."""
        mask, some = self.variable_of("mask", BOOL), self.flag("some", "false")
        self.enter(())
        self.put(mask, "false")
        self.leave()
        self.enter()
        held = self.truth(condition)
        if not holds:
            held = self.word(f"xor i1 {held}, true")
        self.put(mask, held)
        self.put(some, self.word(f"or i1 {self.got(some).text}, {held}"))
        self.leave()
        self.say(f"br i1 {self.got(some).text}, label %{inside}, label %{after}")
        self.label(inside)
        return mask

    def inside_of(self, mask: Variable) -> tuple[Variable, ...]:
        """The masks of statements under this one, which holds for none that those around leave out."""
        return (mask,) if self.live is None else (self.live, mask)

    def branch_together(self, it: syntax.If) -> None:
        """Threads meet inside."""
        before = self.masks
        self.enter()
        condition = self.variable_of("condition", BOOL)
        self.put(condition, self.truth(it.condition))
        self.scopes.append({"": condition})
        for body, holds in ((it.then, True), (it.otherwise, False)):
            if not body:
                continue
            inside, after = self.fresh("inside"), self.fresh("after")
            mask = self.masked(syntax.Name("", it.line), holds, inside, after)
            self.masks = self.inside_of(mask)
            self.statements(body)
            self.leave()
            self.jump(after)
            self.label(after)
            self.masks = before
        self.scopes.pop()

    def loop_together(self, it: syntax.For) -> None:
        """Threads meet inside. Where the bounds are numbers, all of them count as one."""
        head, body, after = (self.fresh(stem) for stem in ("head", "body", "after"))
        before, condition = self.masks, it.condition
        as_one = (
            isinstance(it.low, syntax.Number)
            and isinstance(condition, syntax.Binary)
            and isinstance(condition.left, syntax.Name)
            and condition.left.name == it.name
            and isinstance(condition.right, syntax.Number)
        )
        self.leave() if as_one else self.enter()
        low = self.converted(self.value(it.low), it.kind)
        counter = self.variable_of(it.name, it.kind, as_one)
        self.put(counter, low.text)
        self.scopes.append({it.name: counter})
        self.leave()
        self.jump(head)
        self.label(head)
        if as_one:
            self.say(f"br i1 {self.truth(condition)}, label %{body}, label %{after}")
            self.label(body)
        else:
            self.masks = self.inside_of(self.masked(condition, True, body, after))
        self.statements(it.body)
        self.leave() if as_one else self.enter()
        step = self.converted(self.value(it.step), it.kind)
        self.put(counter, self.operated("+", self.got(counter), step).text)
        self.leave()
        self.masks = before
        self.jump(head)
        self.label(after)
        self.scopes.pop()

    # ------------------------------------------------------------ the whole

    def code(self) -> Code:
        """The text."""
        self.place_memories()
        scope: dict[str, Made] = {}
        for one in self.kernel.parameters:
            if not one.kind.space:
                scope[one.name] = Given(one.attribute, one.kind)
            elif one.kind.space == "constant":
                scope[one.name] = self.reference(one.name, one.kind.element)
            else:
                scope[one.name] = Pointer(one.name, one.kind.element, None, one.is_const)
        for name, (kind, _) in self.kernel.shared.items():
            scope[name] = Pointer(name, kind)
        self.scopes = [scope]
        self.label("group.body")
        for axis, text in (
            ("x", "urem i64 %group, %grid_x"),
            ("y.all", "udiv i64 %group, %grid_x"),
            ("y", "urem i64 %group.y.all, %grid_y"),
            ("z", "udiv i64 %group.y.all, %grid_y"),
        ):
            self.say(f"%group.{axis} = {text}")
        for name, shared in self.shared.items():
            self.fill(f"%base.{name}", UNTOUCHED, shared.size_bytes)
        self.next_epoch()
        if any(isinstance(one, syntax.Return) for one in _inner(self.kernel.body)):
            self.live = self.variable_of("live", BOOL)
            self.enter(())
            self.put(self.live, "true")
            self.leave()
            self.masks = (self.live,)
        self.statements(self.kernel.body)
        self.leave()
        self.jump("group.end")
        return self.finished()

    def place_memories(self) -> None:
        """Threadgroup memory, and beside it who touched what."""
        at = 0
        for name, (kind, size) in self.kernel.shared.items():
            sizes = _sizes(self.kernel.body, name) | {SIZES[kind.scalar]}
            unit, room = min(sizes), -(-size // SLOT_UNIT) * SLOT_UNIT
            entries = 4 * (room // unit)
            self.shared[name] = _Shared(at, size, unit, at + room, at + room + entries)
            at += room + 2 * entries
        self.fixed_bytes = at

    def reference(self, name: str, kind: Type) -> Value:
        """A number that all threads are passed."""
        one = "i8" if kind == BOOL else spelled(kind)
        self.passed.append(f"  %passed.{name} = load {one}, ptr %base.{name}, align 1")
        if kind == BOOL:
            self.passed.append(f"  %passed.{name}.holds = icmp ne i8 %passed.{name}, 0")
        return Value(f"%passed.{name}" + (".holds" if kind == BOOL else ""), kind)

    def finished(self) -> Code:
        """Where each variable is, is known now."""
        users: dict[Variable, int] = {}
        for piece in self.pieces.values():
            for one in piece.uses:
                users[one] = users.get(one, 0) + 1
        slots: dict[Variable, int] = {}
        at = 0
        for one in self.variables:
            if one in self.slotted or users.get(one, 0) > 1:
                slots[one] = at
                at += one.kind.size_bytes
        body: list[str] = []
        for line in self.outer:
            inside = self.pieces.get(line.strip())
            body += [line] if inside is None else self.around(inside, slots)
        lines = [
            *sorted(self.declared.values()),
            "define i32 @run(ptr %launch, ptr noalias %scratch) {",
            "entry:",
            *self.entry(slots),
            "  br label %group.head",
            "group.head:",
            "  %group = phi i64 [%first, %entry], [%group.next, %group.end]",
            "  %group.more = icmp ult i64 %group, %last",
            "  br i1 %group.more, label %group.body, label %finished",
            *body,
            "group.end:",
            "  %group.next = add i64 %group, 1",
            "  br label %group.head",
            "finished:",
            "  ret i32 0",
        ]
        for number, index in enumerate(self.failing):
            lines += [
                f"failed.{number}:",
                f"  store i64 {number}, ptr %fault.site",
                f"  store i64 {index}, ptr %fault.index",
                "  ret i32 1",
            ]
        return Code("\n".join([*lines, "}"]) + "\n", self.sites, self.fixed_bytes, at)

    def entry(self, slots: dict[Variable, int]) -> list[str]:
        """What is read and placed once."""
        lines = [*self.allocated, "  %epoch = alloca i32", "  store i32 0, ptr %epoch"]
        for piece in self.pieces.values():
            lines += [f"  %{one.text}.{piece.name} = alloca {spelled(one.kind)}" for one in piece.uses]
        for number, name in enumerate(ARGUMENTS):
            lines.append(f"  %{name}.at = getelementptr i64, ptr %launch, i64 {number}")
            lines.append(f"  %{name} = load i64, ptr %{name}.at")
        lines += [
            "  %layer = mul i64 %block_x, %block_y",
            f"  %fault.site = getelementptr i64, ptr %launch, i64 {FAULT}",
            f"  %fault.index = getelementptr i64, ptr %launch, i64 {FAULT + 1}",
        ]
        place = TABLE
        for one in self.kernel.parameters:
            if one.kind.space:
                lines += [
                    f"  %base.{one.name}.at = getelementptr i64, ptr %launch, i64 {place}",
                    f"  %base.{one.name} = load ptr, ptr %base.{one.name}.at",
                    f"  %bytes.{one.name}.at = getelementptr i64, ptr %launch, i64 {place + 1}",
                    f"  %bytes.{one.name} = load i64, ptr %bytes.{one.name}.at",
                ]
                place += 2
        for name, size in sorted(self.sizes):
            lines.append(f"  %count.{name}.{size} = udiv i64 %bytes.{name}, {size}")
        lines += self.passed
        for name, shared in self.shared.items():
            for stem, at in (
                ("base", shared.at),
                ("writers", shared.writers_at),
                ("readers", shared.readers_at),
            ):
                lines.append(f"  %{stem}.{name} = getelementptr i8, ptr %scratch, i64 {at}")
        for variable, prefix in slots.items():
            name = variable.text
            lines += [
                f"  %prefix.{name} = mul i64 %rows, {prefix}",
                f"  %offset.{name} = add i64 %prefix.{name}, {self.fixed_bytes}",
                f"  %slots.{name} = getelementptr i8, ptr %scratch, i64 %offset.{name}",
            ]
        return lines

    def around(self, piece: Piece, slots: dict[Variable, int]) -> list[str]:
        """A piece with its loop; what it has of other pieces is in registers meanwhile."""
        name = piece.name
        lines = [
            f"{name}.start:",
            f"  br label %{name}.head",
            f"{name}.head:",
            f"  %{name}.t = phi i64 [0, %{name}.start], [%{name}.next, %{name}.latch]",
        ]
        for number, mask in enumerate(piece.masks):
            lines += [
                f"  %{name}.at{number} = getelementptr i1, ptr %slots.{mask.text}, i64 %{name}.t",
                f"  %{name}.is{number} = load i1, ptr %{name}.at{number}",
                f"  br i1 %{name}.is{number}, label %{name}.mask{number}, label %{name}.latch",
                f"{name}.mask{number}:",
            ]
        lines += [f"  br label %{name}.begun", f"{name}.begun:"]
        end = []
        for one, is_written in piece.uses.items():
            if one not in slots:
                continue
            own, kind = f"%{one.text}.{name}", spelled(one.kind)
            lines += [
                f"  {own}.slot = getelementptr {kind}, ptr %slots.{one.text}, i64 %{name}.t",
                f"  {own}.old = load {kind}, ptr {own}.slot",
                f"  store {kind} {own}.old, ptr {own}",
            ]
            if is_written:
                end += [
                    f"  {own}.new = load {kind}, ptr {own}",
                    f"  store {kind} {own}.new, ptr {own}.slot",
                ]
        return [
            *lines,
            *piece.lines,
            f"{name}.end:",
            *end,
            f"  br label %{name}.latch",
            f"{name}.latch:",
            f"  %{name}.next = add i64 %{name}.t, 1",
            f"  %{name}.more = icmp ult i64 %{name}.next, %threads",
            f"  br i1 %{name}.more, label %{name}.head, label %{name}.done",
            f"{name}.done:",
        ]


def _threads_of(places: Any) -> int:
    """The bits of a thread's number in its SIMD group that say which row it has, or which columns."""
    return sum(1 << bit for bit in range(SIMD.bit_length() - 1) if places[1 << bit])


def _inner(body: list[Statement]) -> list[Statement]:
    """Statements, and those in them, but for the last one."""
    found: list[Statement] = []
    for number, one in enumerate(body):
        if number < len(body) - 1 or not isinstance(one, syntax.Return):
            found.append(one)
        if isinstance(one, syntax.If):
            found += [*_inner(one.then), *one.then[-1:], *_inner(one.otherwise), *one.otherwise[-1:]]
        elif isinstance(one, syntax.For):
            found += [*_inner(one.body), *one.body[-1:]]
    return found


def _sizes(body: object, name: str) -> set[int]:
    """The sizes under which a memory is cast."""
    match body:
        case list():
            return {size for one in body for size in _sizes(one, name)}
        case syntax.Cast() if body.kind.space and _mentions(body.value, name):
            return {SIZES[body.kind.scalar]} | _sizes(body.value, name)
    if not is_dataclass(body):
        return set()
    return {size for one in vars(body).values() for size in _sizes(one, name)}


def _mentions(it: object, name: str) -> bool:
    """Whether an expression has a name in it."""
    if isinstance(it, syntax.Name):
        return it.name == name
    if isinstance(it, list):
        return any(_mentions(one, name) for one in it)
    return is_dataclass(it) and any(_mentions(one, name) for one in vars(it).values())
