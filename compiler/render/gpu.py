"""GPU renderer: the same linear program as a kernel whose threads are the program's groups.

In       a Program, the dialect of a GPU family
Out      LLVM IR of one kernel: pointers to global memory in, one group of the program per thread
Next     llvm.py (every instruction is spelled there), amdgpu.py and nvptx.py (the dialects)

On the CPU a call gets a range of groups; here each thread finds its own: block number times the block's size plus
the thread's place in it. Threads beyond the last group return at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hcq.compiler.linear.program import Instruction, Program
from hcq.compiler.render.llvm import Text
from hcq.compiler.render.llvm_arithmetic import RenderError, register_type
from hcq.ir.dtype import DType
from hcq.ir.op import Op

BLOCK = 64  # threads in a block (a workgroup): one wave64, two warps


@dataclass(frozen=True)
class Dialect:
    """What LLVM calls things on one GPU family."""

    convention: str  # the calling convention of kernels
    block_id: str  # the intrinsic for a block's number along x
    thread_id: str  # the intrinsic for a thread's place in its block along x
    attributes: str
    registers: Mapping[str, str]  # the constraint of inline assembly for a number's register, by LLVM's type


def render(program: Program, dialect: Dialect) -> str:
    """The module's text. Raises RenderError for what these kernels have no spelling for."""
    return _KernelText(program, dialect).module()


def blocks(program: Program) -> int:
    """How many blocks a launch needs."""
    return -(-program.groups // BLOCK)


class _KernelText(Text):
    pointer = "ptr addrspace(1)"  # global memory
    space = "p1"

    def __init__(self, program: Program, dialect: Dialect):
        super().__init__(program)
        self.dialect = dialect
        self.block = "work"
        self.own_group: Instruction | None = None  # the loop over groups, which here is no loop

    def module(self) -> str:
        program, dialect = self.program, self.dialect
        for it in program.instructions:
            self.instruction(it)
        params = []
        for param, _ in program.params:
            facts = "noalias" if param.writable else "noalias readonly"
            params.append(f"{self.pointer} {facts} %p{param.index}")
        head = [f"; {program.name}: {program.groups} threads, {BLOCK} in a block"]
        head += [f"; p{p.index}: {d.name} {list(p.shape)}" for p, d in program.params]
        head.append(f"define {dialect.convention} void @{program.name}({', '.join(params)}) #0 {{")
        head.append("entry:")
        head += [
            f"  %block = call i32 @{dialect.block_id}()",
            f"  %thread = call i32 @{dialect.thread_id}()",
            f"  %block.start = mul nuw nsw i32 %block, {BLOCK}",
            "  %number = add nuw nsw i32 %block.start, %thread",
            f"  %is.mine = icmp ult i32 %number, {program.groups}",
            "  br i1 %is.mine, label %work, label %idle",
            "idle:",
            "  ret void",
            "work:",
            "  %group = zext i32 %number to i64",
        ]
        tail = ["  ret void", "}", "", *self.declarations]
        tail += [f"declare i32 @{dialect.block_id}()", f"declare i32 @{dialect.thread_id}()", ""]
        tail.append(f"attributes #0 = {{ {dialect.attributes} }}")
        return "\n".join(head + self.lines + tail) + "\n"

    def before_narrowing(self, dtype: DType, name: str) -> str:
        return self.opaque(dtype, name)

    def after_widening(self, dtype: DType, name: str) -> str:
        return self.opaque(dtype, name)

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
            self.names[it] = "%group"
        elif it.op is Op.LOOP and it.src[0] is not None and it.src[0].op is Op.SPECIAL:
            self.own_group = it
            self.names[it] = "%group"
        elif it.op is Op.ENDLOOP and it.src[0] is self.own_group is not None:
            self.own_group = None
        else:
            super().instruction(it)
