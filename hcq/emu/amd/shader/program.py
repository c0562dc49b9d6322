"""Programs: code decoded once, compiled into blocks of steps, and kept while its bytes stay the same.

In       an entry address, the address space, and what is constant for a launch (wave size, accumulation offset)
Out      Program.block(pc, mode): the steps up to the next branch or meeting point, and the Ending
Changes  its own caches
Next     machine.py (runs blocks), isa.py (decode), vector_ops.py and its siblings (compile)

A block ends where waves may part (branches) and where they may meet again (branch targets), so that batches that arrive
at the same place become one. It also ends after MAX_AHEAD instructions: what is beyond is read when a wave is there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hcq.emu.amd.shader import disassembly
from hcq.emu.amd.shader.block_access_ops import compile_block_access
from hcq.emu.amd.shader.control import (
    Ending,
    branch_target,
    compile_control,
    compile_ending,
    direct_targets,
    goes_to,
)
from hcq.emu.amd.shader.errors import PageFault, UnknownInstruction
from hcq.emu.amd.shader.isa import Instruction, Isa
from hcq.emu.amd.shader.lane_ops import relative_moves
from hcq.emu.amd.shader.lds_ops import compile_lds
from hcq.emu.amd.shader.loads_to_lds import all_arrive, compile_load_to_lds, counted, is_load_to_lds
from hcq.emu.amd.shader.memory import Memory
from hcq.emu.amd.shader.memory_ops import compile_memory
from hcq.emu.amd.shader.operands import Context, Mode, Step
from hcq.emu.amd.shader.packed_ops import compile_packed
from hcq.emu.amd.shader.retry import is_retry_loop
from hcq.emu.amd.shader.scalar_memory_ops import compile_scalar_memory
from hcq.emu.amd.shader.scalar_ops import compile_scalar
from hcq.emu.amd.shader.scaled_matrix_ops import compile_matrix
from hcq.emu.amd.shader.typed_buffers import compile_typed
from hcq.emu.amd.shader.vector_ops import compile_vector
from hcq.emu.shader.pointers import Origin

MAX_INSTRUCTION_BYTES = 16
MAX_AHEAD = 2048  # instructions in a row that are followed before the first of them runs

COMPILERS: dict[str, Callable[[Context], Step]] = {
    **dict.fromkeys(("SOP1", "SOP2", "SOPC", "SOPK"), compile_scalar),
    **dict.fromkeys(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOPD"), compile_vector),
    **dict.fromkeys(("FLAT", "GLOBAL", "SCRATCH", "MUBUF"), compile_memory),
    "VOP3P": compile_packed,
    **dict.fromkeys(("MAI", "SCALED"), compile_matrix),
    "DS": compile_lds,
    "SMEM": compile_scalar_memory,
}


class Addition(Protocol):
    """What puts steps of its own around those of a program: it looks on, and changes no register and no memory."""

    def around(self, ctx: Context, step: Step) -> Step:
        """The step of an instruction, with what is added."""

    def head(self, instructions: list[Context]) -> Step | None:
        """A step before the first of a block; None: nothing is added there."""


@dataclass
class BasicBlock:
    """Steps that every wave of a batch runs in a row, then an ending."""

    pc: int
    steps: list[Step]
    pcs: list[int]  # of each step
    ending: Ending
    length: int  # instructions, the ending included
    retries: bool = False  # it is a loop by itself, around a compare-and-swap


class Program:
    """The code reachable from one entry, for one wave size and accumulation offset, with what is added to its steps."""

    loads_to_lds = False  # whether it has such loads: then steps count what is under way, and waits wait

    def __init__(
        self,
        isa: Isa,
        memory: Memory,
        entry: int,
        wave_size: int,
        acc_offset: int,
        additions: Sequence[Addition] = (),
    ) -> None:
        self.isa, self.memory, self.entry = isa, memory, entry
        self.additions = additions
        self.wave_size, self.acc_offset = wave_size, acc_offset
        self.instructions: dict[int, Instruction] = {}
        self.leaders: set[int] = set()
        self.frontier: set[int] = set()  # leaders beyond which nothing is known yet
        # which arguments addresses were made from, by what the arguments are (pointers.py)
        self.origins: dict[tuple[Any, ...], dict[int, Origin]] = {}
        self.blocks: dict[tuple[int, int], BasicBlock] = {}
        self.copies: list[tuple[int, bytes]] = []
        self.spent_ns = 0.0  # what it has taken, by estimate, to interpret it
        self.noted_ns = 0.0  # when it has taken so much, that is noted on disk
        self.native: dict[tuple[int, int], Any] = {}  # by MODE and registers: its machine code
        self.looked: set[tuple[int, int]] = set()  # for which of these it was looked on disk
        self.shapes: dict[
            Any, Any
        ] = {}  # how its workgroups begin as machine code, by what launches have in common
        self.left = 0  # workgroups that came to what only the interpreter does
        self.copied = 0  # how many instructions `copies` covers
        self.explore(entry)

    def unchanged(self) -> bool:
        """Whether memory still holds the code that was decoded."""
        if self.copied != len(self.instructions):
            self.copies, self.copied = self.spans(), len(self.instructions)
        try:
            return all(self.memory.read(start, len(code)) == code for start, code in self.copies)
        except PageFault:
            return False

    def spans(self) -> list[tuple[int, bytes]]:
        """The decoded code as contiguous pieces: (address, bytes)."""
        out: list[tuple[int, bytearray]] = []
        for pc in sorted(self.instructions):
            words = self.instructions[pc].words
            code = struct.pack(f"<{len(words)}I", *words)
            if out and out[-1][0] + len(out[-1][1]) == pc:
                out[-1][1].extend(code)
            else:
                out.append((pc, bytearray(code)))
        return [(start, bytes(code)) for start, code in out]

    def fetch(self, pc: int) -> Instruction:
        """The instruction at `pc`, decoded once."""
        known = self.instructions.get(pc)
        if known is not None:
            return known
        words: tuple[int, ...] = ()
        for size in (
            MAX_INSTRUCTION_BYTES,
            12,
            8,
            4,
        ):  # the last instructions of a mapping have less after them
            try:
                words = struct.unpack(f"<{size // 4}I", self.memory.read(pc, size))
                break
            except PageFault as fault:
                if size == 4:
                    raise fault.at(pc, "instruction fetch") from None
        inst = self.isa.decode(words, pc)
        self.instructions[pc] = inst
        self.loads_to_lds = self.loads_to_lds or is_load_to_lds(inst)
        return inst

    def explore(self, entry: int) -> None:
        """Follow all direct branches from `entry`, so that every meeting point is known before blocks are made.

        A wave that ran off its code is in megabytes of zeros, say, which are instructions, too: those ahead are
        followed when it gets there, so that destroying its queue finds an end of a block soon.
        """
        self.leaders.add(entry)
        pending = [entry]
        while pending:
            pc = pending.pop()
            ahead, is_indexing = 0, False
            while pc not in self.instructions:
                if ahead >= MAX_AHEAD and not is_indexing:
                    self.leaders.add(pc)
                    self.frontier.add(pc)
                    break
                try:
                    inst = self.fetch(pc)
                except (UnknownInstruction, PageFault):
                    break  # reported when a wave gets there, if one ever does
                ahead += 1
                if inst.name.startswith("s_set_gpr_idx"):  # a block holds all of what is between _on and _off
                    is_indexing = inst.name != "s_set_gpr_idx_off"
                targets = direct_targets(inst)
                if targets == [inst.next_pc]:
                    pc = inst.next_pc
                    continue
                for target in targets:
                    self.leaders.add(target)
                    pending.append(target)
                break

    def block(self, pc: int, mode: int) -> BasicBlock:
        """The block at an address under this MODE, compiled when first asked for."""
        known = self.blocks.get((pc, mode))
        if known is None:
            if pc not in self.leaders or pc in self.frontier:  # where an indirect jump led, or a long way
                self.frontier.discard(pc)
                self.explore(pc)
                self.blocks.clear()
            known = self.compile(pc, Mode(mode))
            self.blocks[pc, mode] = known
        return known

    def compile(self, start: int, mode: Mode) -> BasicBlock:
        """The block that begins at an address. Raises UnknownInstruction."""
        steps: list[Step] = []
        pcs: list[int] = []
        own: list[Context] = []
        pc, length = start, 0
        relative = 0  # gfx9's VGPR indexing, between s_set_gpr_idx_on and _off
        while True:
            if pc in self.leaders and pc != start:
                block = BasicBlock(start, steps, pcs, Ending("go", goes_to(pc)), length)
                return self.with_heads(block, own)
            inst = self.fetch(pc)
            ctx = Context(self.isa, inst, mode, self.wave_size, self.acc_offset)
            length += 1
            own.append(ctx)
            ending = compile_ending(ctx)
            if ending is not None:
                for one in self.additions:
                    last = getattr(one, "before_end", lambda ctx: None)(ctx)
                    if last is not None:
                        steps.append(last)
                        pcs.append(pc)
                if ending.kind == "end" and self.loads_to_lds:
                    steps.append(all_arrive)
                    pcs.append(pc)
                body = [self.instructions[one] for one in pcs]
                is_loop = inst.name == "s_cbranch_execnz" and is_retry_loop(body, start, branch_target(inst))
                return self.with_heads(BasicBlock(start, steps, pcs, ending, length, is_loop), own)
            index = relative_moves(ctx, relative)
            if index is not None:
                relative, step = index
            else:
                step = self.compile_step(ctx)
                for one in self.additions:
                    step = one.around(ctx, step)
            steps.append(step)
            pcs.append(pc)
            pc = inst.next_pc

    def with_heads(self, block: BasicBlock, own: list[Context]) -> BasicBlock:
        """The block of these instructions, with the steps that are added before its first."""
        for one in self.additions:
            head = one.head(own)
            if head is not None:
                block.steps.insert(0, head)
                block.pcs.insert(0, block.pc)
        return block

    def compile_step(self, ctx: Context) -> Step:
        """The step of one instruction. Raises IllegalOperation for what is not emulated."""
        step = compile_control(ctx)
        if step is None:
            compiler = COMPILERS.get(ctx.inst.format)
            if compiler is None:
                raise ctx.refuse()
            step = compile_typed(ctx) or compile_block_access(ctx)
            if step is None:
                step = (compile_load_to_lds if is_load_to_lds(ctx.inst) else compiler)(ctx)
        return counted(ctx, step) if self.loads_to_lds else step

    def text(self, pc: int) -> str:
        """One instruction in words, for reports."""
        return disassembly.text(self.isa, self.fetch(pc))
