"""A function of PTX as one function of LLVM IR, which runs warps until something stops each of their threads.

In       a Decoded function, and what is the same in all of its launches
Out      Text: the IR, where threads can enter, and what each way out means
Next     symbolic_batch.py (what steps are traced on), native_memory.py (loads and stores), native_order.py (which block
         goes first), native_frame.py (the function around the nodes), native.py (runs it)

Each instruction's own step is traced: what the interpreter does with arrays is written down once as code for one warp.
What cannot be traced is left to the interpreter: threads leave before it.

Every thread has a number: that of the node (a block, or the rest of one) that it is at, or that of a way out. Of a
warp's threads those at the first node run, all others wait; where threads part, they get different numbers, and where
they come to one node, they run together again. Nodes are numbered so that what comes later has the higher number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hcq.emu.compiled.straight import StraightWriter
from hcq.emu.compiled.symbols import NotTraced
from hcq.emu.nv.shader import (
    native_atomics,
    native_copies,
    native_frame,
    native_memory,
    native_products,
    native_warpgroups,
    native_warps,
)
from hcq.emu.nv.shader.batch import WARP
from hcq.emu.nv.shader.decode import Code, Decoded, DecodedBlock
from hcq.emu.nv.shader.errors import KernelFault
from hcq.emu.nv.shader.flow import BasicBlock, is_warp_barrier, reads_and_writes
from hcq.emu.nv.shader.native_frame import Meet
from hcq.emu.nv.shader.native_memory import Access
from hcq.emu.nv.shader.native_order import EXIT, Point, lives, ordered
from hcq.emu.nv.shader.native_state import Facts
from hcq.emu.nv.shader.symbolic_batch import BOOL, Layout, Registers, SymbolicGroup
from hcq.emu.nv.shader.syntax import Immediate, Instruction
from hcq.emu.nv.shader.types import TYPES
from hcq.errors import UsageError

# instructions that are written here, in place of a trace of their step; some return the text of a function they call
MEMORY: dict[str, Callable[[Code, Access], str | None]] = {
    "ld": native_memory.load,
    "ldu": native_memory.load,
    "st": native_memory.store,
    "atom": native_atomics.atomic,
    "red": native_atomics.atomic,
    "mma": native_products.mma,
    "ldmatrix": native_products.ldmatrix,
    "redux": native_warps.redux,
    "cp": native_copies.copy,
}
CHANGES = ("st", "atom", "red", "cp")  # of these: what is done is not done again
SHORT_RUN = 3  # instructions between two that are not compiled, which are not worth going in and out again
FAILURES = (NotTraced, TypeError, ValueError, IndexError, KeyError, AttributeError, KernelFault, UsageError)


@dataclass
class Text:
    """What is there of a function. why_not: of instructions that are left to the interpreter."""

    layout: Layout
    ir: str = ""
    entries: dict[Point, int] = field(default_factory=dict)  # the number of a node
    exits: list[Point] = field(default_factory=list)  # by the number of a way out
    troubles: set[Point] = field(default_factory=set)  # of these: the interpreter must run something first
    sites: int = 0
    first_read: set[int] = field(
        default_factory=set
    )  # registers that are read before anything is written there
    why_not: dict[str, str] = field(default_factory=dict)
    spreads: bool = False  # nobody can see the order of its blocks
    helpers: dict[str, None] = field(default_factory=dict)  # functions that are called
    libraries: list[str] = field(default_factory=list)  # modules that it needs
    has_arrivals: bool = False  # at barriers, of threads that do not wait
    gathers: list[int] = field(
        default_factory=list
    )  # ways out behind which all threads of a path go on at once

    def facts(self) -> Facts:
        """What is kept besides the code."""
        layout = self.layout
        return Facts(
            self.entries,
            self.exits,
            self.troubles,
            self.sites,
            layout.offsets,
            layout.size_bytes,
            layout.numbers,
            layout.written,
            self.first_read,
            self.why_not,
            self.spreads,
            self.libraries,
            layout.has_copies,
            self.gathers,
        )


class Translator:
    """Writes the function."""

    def __init__(self, decoded: Decoded, is_aligned: bool, windows: tuple[int, int]) -> None:
        assert decoded.lowering is not None
        self.decoded, self.lowering, self.windows = decoded, decoded.lowering, windows
        self.sources: list[BasicBlock] = [
            block.source for block in decoded.blocks if block.source is not None
        ]
        self.text = Text(Layout(decoded, is_aligned))
        self.w = StraightWriter(WARP)
        self.live = lives(self.sources, decoded)
        self.rejoins = {block.rejoin for block in decoded.blocks}
        self.leaves: dict[int, str] = {}
        self.meets: dict[int, Meet] = {}
        self.here = self.safe = Point(0, 0)
        self.once = self._written_once()
        self.idle = self._idle()
        self.products: set[int] = set()  # blocks that begin with the product of a warpgroup

    def _idle(self) -> set[int]:
        """Blocks without steps behind waits for mbarriers: the interpreter runs, and counts, rounds without any."""
        blocks = self.decoded.blocks
        rest = [number for block in blocks if block.waits for number in block.next]
        found: set[int] = set()
        while rest:
            number = rest.pop()
            if number < len(blocks) and number not in found and not blocks[number].steps:
                found.add(number)
                rest += blocks[number].next
        return found

    def translate(self) -> Text:
        """The whole function."""
        text = self.text
        ends = [source.end for source in self.sources if source.end is not None]
        every = [one.opcode for source in self.sources for one in source.body] + [one.opcode for one in ends]
        text.spreads = not {"atom", "red", "call"}.intersection(every)
        text.has_arrivals = any(
            one.opcode in ("bar", "barrier") and "arrive" in one.modifiers for one in ends
        )
        if len(self.sources) != len(self.decoded.blocks):
            return text
        self.can = [self._traced(block) for block in self.decoded.blocks]
        points = [point for number in ordered(self.sources) for point in self._points(number)]
        text.entries = {point: number for number, point in enumerate(points)}
        text.sites, text.first_read = 0, self.live[Point(0, 0)]
        # trying has asked for all registers; nodes ask for those that they find, and leave
        text.layout = Layout(self.decoded, text.layout.is_aligned)
        self.leaves.clear()
        self.meets.clear()
        text.exits.clear()
        text.troubles.clear()
        text.gathers.clear()
        lines: list[str] = []
        # the first block says which registers are one number for all
        for point in sorted(points):
            lines += self._node(point)
        heads = [f"{'at' if self._is_rejoin(point) else 'n'}{number}" for number, point in enumerate(points)]
        body = [*lines, *self._edges(), *self._outs()]
        text.ir = native_frame.function(text, body, self.meets, heads)
        return text

    def traces(self, opcode: str) -> bool:
        """Whether instructions of a name are compiled, wherever they are in the function."""
        self.can = [self._traced(block) for block in self.decoded.blocks]
        found = True
        for block, source, can in zip(self.decoded.blocks, self.sources, self.can):
            made = [True, *can[1:]] if source.number in self.products else can
            found &= all(one or source.body[step].opcode != opcode for step, one in enumerate(made))
            if source.end is not None and source.end.opcode == opcode:
                found &= self._end_is_compiled(block) or opcode in ("ret", "exit")
        return found

    # -- which instructions, which nodes

    def _written_once(self) -> set[int]:
        """Registers that one instruction writes, and that is in the first block, which nothing goes back to."""
        slots = self.decoded.slots
        counts: dict[int, int] = {}
        for source in self.sources:
            for one in (*source.body, *((source.end,) if source.end is not None else ())):
                for name in set(reads_and_writes(one)[1]):
                    counts[slots[name]] = counts.get(slots[name], 0) + 1
        is_entry = self.decoded.function.is_entry and all(0 not in source.next for source in self.sources)
        if not is_entry or not self.sources:
            return set()
        first = [one for one in self.sources[0].body if one.guard is None and one.opcode != "activemask"]
        return {slots[name] for one in first for name in reads_and_writes(one)[1] if counts[slots[name]] == 1}

    def _traced(self, block: DecodedBlock) -> list[bool]:
        """Which steps of a block can be compiled: each is tried."""
        assert block.source is not None
        is_refused = block.retry is not None or block.waits
        if is_refused or (block.needs_warpgroup and not self._is_product(block)):
            for instruction in block.source.body:
                self.text.why_not.setdefault(_name(instruction), "loops that retry, warpgroups, waits")
            return [False] * len(block.steps)
        first = [False] if block.needs_warpgroup else []
        return first + [self._is_traced(block, number) for number in range(len(first), len(block.steps))]

    def _is_product(self, block: DecodedBlock) -> bool:
        """Whether the product of a warpgroup that a block begins with can be compiled, where four warps meet."""
        assert block.source is not None
        instruction = block.source.body[0]
        if not self.text.layout.is_aligned:
            return False
        try:
            native_warpgroups.product(Code(self.lowering, instruction), self.text.layout, "product")
        except FAILURES as problem:
            self.text.why_not[_name(instruction)] = str(problem)
            return False
        self.products.add(block.source.number)
        return True

    def _is_traced(self, block: DecodedBlock, number: int) -> bool:
        assert block.source is not None
        instruction = block.source.body[number]
        self._begin()
        try:
            self._trace(block, number)
        except FAILURES as problem:
            self.text.why_not[_name(instruction)] = str(problem)
            return False
        return True

    def _points(self, number: int) -> list[Point]:
        """Where threads can enter a block."""
        can, block = self.can[number], self.decoded.blocks[number]
        if number in self.idle:
            return []
        begin = int(number in self.products)
        found = [Point(number, 0), Point(number, 1)] if begin else []  # before a product, and behind it
        for step in range(begin, len(can) + 1):
            if step < len(can) and can[step]:
                continue
            is_end = step == len(can) and self._end_is_compiled(block)
            if step - begin > SHORT_RUN or (begin == 0 and step > 0) or (is_end and begin == 0):
                found.append(Point(number, begin))
            elif is_end and begin < step:
                found.append(Point(number, begin))
            begin = step + 1
        found += [Point(number, step) for step, one in enumerate(can) if one and self._gathers(number, step)]
        return sorted(set(found))

    def _gathers(self, number: int, step: int) -> bool:
        """Whether all threads of a path stop before a step, and go on together."""
        body = self.sources[number].body
        return step < len(body) and native_atomics.gathers(body[step])

    def _end_is_compiled(self, block: DecodedBlock) -> bool:
        source = block.source
        assert source is not None
        is_product = source.number in self.products
        if block.retry is not None or block.waits or (block.needs_warpgroup and not is_product):
            return False
        if block.end is None or source.skip_guard is not None:
            return True
        end = source.end
        return end is not None and (end.opcode == "bra" or is_warp_barrier(end) or self._meets_block(end))

    def _meets_block(self, end: Instruction) -> bool:
        """Whether it is a barrier of all threads of a block."""
        if end.opcode not in ("bar", "barrier") or self.text.has_arrivals or not self.text.layout.is_aligned:
            return False
        words = [word for word in end.modifiers if word not in ("cta", "sync", "aligned")]
        return not words and len(end.operands) == 1 and isinstance(end.operands[0], Immediate)

    # -- one node

    def _begin(self) -> None:
        w = self.w
        w.begin()
        mask = w.say("load i32, ptr %mask", False, "m")
        self.registers = Registers(w, self.text.layout, mask)
        self.group = SymbolicGroup(w, mask, self.windows)

    def _node(self, point: Point) -> list[str]:
        block, number = self.decoded.blocks[point.block], self.text.entries[point]
        assert block.source is not None
        self._begin()
        w, self.here, self.safe = self.w, point, point
        can = self.can[point.block]
        if not point.step:
            left = w.say("load i64, ptr %fuel", False)
            w.lines.append(f"store i64 {w.say(f'sub i64 {left}, {block.length}', False)}, ptr %fuel")
            if point.block in self.products:
                return [f"n{number}:", *w.lines, *self._product(point, block)]
            if block.warp_members is not None:
                self._company(block.warp_members(self.registers, self.group))  # type: ignore[arg-type]
        step = point.step
        while step < len(can) and can[step]:
            if step > point.step and Point(point.block, step) in self.text.entries:
                break
            self.here = Point(point.block, step)
            self._trace(block, step)
            if not point.block:
                self._note_uniform()
            step += 1
        self.here = here = Point(point.block, step)
        self.registers.flush(self.live[here])
        if step < len(can) and can[step] and self._gathers(point.block, step):
            w.lines.append(f"br label %{self._leave(here, gathers=True)}")
        elif step < len(can) or not self._end_is_compiled(block):
            w.lines.append(f"br label %{self._leave(here)}")
        else:
            self._end(block, number)
        return [f"n{number}:", *w.lines]

    def _product(self, point: Point, block: DecodedBlock) -> list[str]:
        """A way out before a product; behind it four warps go on that have come to it."""
        assert block.source is not None
        name = f"product{point.block}"
        made = native_warpgroups.product(Code(self.lowering, block.source.body[0]), self.text.layout, name)
        self.text.helpers[made.text] = None
        self.text.troubles.add(point)
        label = self._leave(point)
        self.meets[self._exit(point)] = Meet(self.text.entries[Point(point.block, 1)], -1, name)
        return [f"br label %{label}"]

    def _note_uniform(self) -> None:
        """Registers that hold one number for all threads of a warp from now on."""
        for slot in self.registers.dirty & self.once:
            value = self.registers.values[slot]
            if not value.is_vector and value.dtype != BOOL:
                self.text.layout.uniform.add(slot)

    def _company(self, named: Any) -> None:
        """Leave, unless all threads of the warp that an instruction names are here."""
        w = self.w
        members: Any = w.as_symbol(named, np.uint32)
        gone = w.say("call i32 @gone(ptr %pc, i64 %ended)", False)
        alive = w.say(f"and i32 %live, {w.say(f'xor i32 {gone}, -1', False)}", False)
        absent = w.symbol(f"and i32 {alive}, {self.registers.off}", np.uint32, False)
        missing = (members & absent) != np.uint32(0)
        bits = w.mask_bits(missing)
        some = w.say(f"icmp ne i32 {w.say(f'and i32 {bits}, {self.registers.mask}', False)}, 0", False)
        go = w.fresh("company")[1:]
        self.text.troubles.add(self.here)
        w.lines += [f"br i1 {some}, label %{self._leave(self.here)}, label %{go}", f"{go}:"]

    def _end(self, block: DecodedBlock, number: int) -> None:
        """Go where threads go next."""
        source, w = block.source, self.w
        assert source is not None
        if source.skip_guard is not None:
            guard, wanted = source.skip_guard, not source.skip_guard.negated
        elif block.end is None or source.end is None:
            w.lines.append(f"br label %{self._goto(block.next[0], number)}")
            return
        elif is_warp_barrier(source.end):
            self._warp_barrier(source.end, block, number)
            return
        elif source.end.opcode != "bra":
            self._block_barrier(block)
            return
        else:
            assert source.end.guard is not None
            guard, wanted = source.end.guard, not source.end.guard.negated
        taken, other = block.next
        slot = self.decoded.slots[guard.name]
        bits = w.mask_bits(w.as_symbol(self.registers[slot], BOOL))
        if not wanted:
            bits = w.say(f"xor i32 {bits}, -1", False)
        mask = self.registers.mask
        chosen = w.say(f"and i32 {bits}, {mask}", False)
        none, every = w.say(f"icmp eq i32 {chosen}, 0", False), w.say(f"icmp eq i32 {chosen}, {mask}", False)
        yes, no = self._goto(taken, number), self._goto(other, number)
        more, part = w.fresh("more")[1:], w.fresh("part")[1:]
        w.lines += [
            f"br i1 {every}, label %{yes}, label %{more}",
            f"{more}:",
            f"br i1 {none}, label %{no}, label %{part}",
            f"{part}:",
        ]
        rest = w.say(f"xor i32 {chosen}, {mask}", False)
        w.lines += [
            f"call void @park(ptr %pc, i32 {chosen}, i32 {self._code(taken)})",
            f"call void @park(ptr %pc, i32 {rest}, i32 {self._code(other)})",
            "br label %meet",
        ]

    def _warp_barrier(self, instruction: Instruction, block: DecodedBlock, number: int) -> None:
        """bar.warp.sync: passed when all are here."""
        assert block.source is not None
        code = Code(self.lowering, instruction)
        self._company(self.registers[code.source(0, TYPES["b32"])])
        self.w.lines.append(f"br label %{self._goto(block.next[0], number)}")

    def _block_barrier(self, block: DecodedBlock) -> None:
        """bar.sync: a way out, behind which all go on where the whole block has come."""
        point, after = self.here, block.next[0]
        self.text.troubles.add(point)
        self.w.lines.append(f"br label %{self._leave(point)}")
        node = self.text.entries.get(Point(after, 0))
        if node is not None:
            self.meets[self._exit(point)] = Meet(node, after if after in self.rejoins else -1)

    def _code(self, block: int) -> int:
        """The number of a block: where its threads are, or a way out."""
        point = Point(block, 0)
        number = self.text.entries.get(point)
        if number is not None and self._gathers(block, 0):
            return EXIT + self._exit(point, gathers=True)
        return EXIT + self._exit(point) if number is None else number

    def _goto(self, block: int, number: int) -> str:
        """A label that takes all threads that run to a block."""
        target = self.text.entries.get(Point(block, 0))
        if target is None or self._gathers(block, 0):
            return self._leave(Point(block, 0), gathers=target is not None)
        return f"back{target}" if target <= number else f"go{target}"

    def _exit(self, point: Point, gathers: bool = False) -> int:
        """The number of a way out; one behind which all go on together is another than one to the interpreter."""
        exits, gathering = self.text.exits, self.text.gathers
        for number, one in enumerate(exits):
            if one == point and (number in gathering) == gathers:
                return number
        exits.append(point)
        if gathers:
            gathering.append(len(exits) - 1)
        return len(exits) - 1

    def _leave(self, point: Point, gathers: bool = False) -> str:
        """A label where threads leave before a step."""
        number = self._exit(point, gathers)
        self.leaves[number] = f"out{number}"
        return self.leaves[number]

    # -- one instruction

    def _trace(self, block: DecodedBlock, number: int) -> None:
        """Write an instruction. Raises NotTraced and others of FAILURES."""
        assert block.source is not None
        instruction = block.source.body[number]
        if instruction.opcode in MEMORY:
            self._memory(instruction)
            return
        before, dirty = dict(self.registers.values), set(self.registers.dirty)
        try:
            with self.w.attempt():
                block.steps[number](self.registers, self.group)  # type: ignore[arg-type]
        except FAILURES:
            self.registers.values, self.registers.dirty = before, dirty
            raise

    def _memory(self, instruction: Instruction) -> None:
        """A load or a store. Threads that cannot make it leave at the last place where all registers were written."""
        changes, safe = instruction.opcode in CHANGES, self.safe
        if changes:
            self.registers.flush(self.live[self.here])
            safe = self.here
        self.text.troubles.add(safe)
        site = self.text.sites
        access = Access(self.w, self.registers, self.windows, site, changes, lambda: self._leave(safe))
        self.text.sites += 1
        helper = MEMORY[instruction.opcode](Code(self.lowering, instruction), access)
        if helper:
            self.text.helpers[helper] = None
        if changes:
            self.safe = Point(self.here.block, self.here.step + 1)
            self.registers.flush(self.live[self.safe])

    # -- the function around the nodes

    def _is_rejoin(self, point: Point) -> bool:
        """Whether threads that have parted may end their path before it."""
        return not point.step and point.block in self.rejoins

    def _edges(self) -> list[str]:
        """How a warp's threads come to a node: others may wait there, or before it."""
        lines = []
        for point, number in self.text.entries.items():
            if point.step:
                continue
            stays = f"n{number}"
            if self._is_rejoin(
                point
            ):  # threads may have waited before it for those that the path parts from there
                lines += [
                    f"at{number}:",
                    f"  %here{number} = icmp eq i64 %rejoin, {point.block}",
                    f"  br i1 %here{number}, label %{self._leave(point)}, label %{stays}",
                ]
            for stem in ("go", "back"):
                label = f"{stem}{number}"
                lines.append(f"{label}:")
                if self._is_rejoin(point):
                    out = self._leave(point)
                    lines += [
                        f"  %r{label} = icmp eq i64 %rejoin, {point.block}",
                        f"  br i1 %r{label}, label %{out}, label %{label}x",
                        f"{label}x:",
                    ]
                lines += [
                    f"  %l{label} = load i32, ptr %least",
                    f"  %w{label} = icmp ule i32 %l{label}, {number}",
                ]
                test = f"%w{label}"
                if stem == "back":
                    lines += [
                        f"  %f{label} = load i64, ptr %fuel",
                        f"  %s{label} = icmp slt i64 %f{label}, 0",
                        f"  %e{label} = or i1 %w{label}, %s{label}",
                    ]
                    test = f"%e{label}"
                lines += [
                    f"  br i1 {test}, label %{label}p, label %{stays}",
                    f"{label}p:",
                    f"  %m{label} = load i32, ptr %mask",
                    f"  call void @park(ptr %pc, i32 %m{label}, i32 {number})",
                    "  br label %meet",
                ]
        return lines

    def _outs(self) -> list[str]:
        lines = []
        for number, label in self.leaves.items():
            lines += [
                f"{label}:",
                f"  %m{label} = load i32, ptr %mask",
                f"  call void @park(ptr %pc, i32 %m{label}, i32 {EXIT + number})",
                "  br label %meet",
            ]
        return lines


def _name(instruction: Instruction) -> str:
    return ".".join((instruction.opcode, *instruction.modifiers))
