"""AMD GPU renderer: the same linear program as a kernel whose work-items are the program's groups.

In       a Program
Out      LLVM IR of one amdgpu_kernel: pointers to global memory in, one group of the program per work-item
Next     llvm.py (every instruction is spelled there), ../assemble/llvm_amdgpu.py (who makes the object)
Source   LLVM, "User Guide for AMDGPU Backend": kernel calling convention, address spaces, workgroup and workitem ids

On the CPU a call is handed a range of groups; here each work-item finds its own: workgroup id times the workgroup's
size plus the work-item's id. Those beyond the last group get an empty range and do nothing.
"""

from __future__ import annotations

from hcq.compiler.program import Instruction, Program
from hcq.compiler.render.llvm import Text
from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.ir.op import Op

WORKGROUP = 64  # work-items in a workgroup: one wave64, two wave32


def render(program: Program) -> str:
    """The module's text. Raises RenderError for what these kernels have no spelling for."""
    return _KernelText(program).module()


def workgroups(program: Program) -> int:
    """How many workgroups a launch needs."""
    return -(-program.groups // WORKGROUP)


class _KernelText(Text):
    def module(self) -> str:
        program = self.program
        for it in program.instructions:
            self.instruction(it)
        params = []
        for param, _ in program.params:
            facts = "noalias" if param.writable else "noalias readonly"
            params.append(f"ptr addrspace(1) {facts} %g{param.index}")
        head = [f"; {program.name}: {program.groups} work-items, {WORKGROUP} in a workgroup"]
        head += [f"; p{p.index}: {d.name} {list(p.shape)}" for p, d in program.params]
        head.append(f"define amdgpu_kernel void @{program.name}({', '.join(params)}) #0 {{")
        head.append("entry:")
        for param, _ in program.params:
            head.append(f"  %p{param.index} = addrspacecast ptr addrspace(1) %g{param.index} to ptr")
        if not any(it.op is Op.SPECIAL for it in program.instructions):
            head += self._only_the_first()
        tail = ["  ret void", "}", "", *self.declarations]
        tail += ["declare i32 @llvm.amdgcn.workgroup.id.x()", "declare i32 @llvm.amdgcn.workitem.id.x()", ""]
        tail.append(
            f'attributes #0 = {{ nounwind "amdgpu-flat-work-group-size"="{WORKGROUP},{WORKGROUP}" '
            '"uniform-work-group-size"="true" }'
        )
        return "\n".join(head + self.lines + tail) + "\n"

    def instruction(self, it: Instruction) -> None:
        if it.op is Op.SCRATCH:
            raise RenderError("a kernel for an AMD GPU was given packed operands: stage and box are for CPUs")
        if it.op is not Op.SPECIAL:
            super().instruction(it)
        elif it.arg == "first":
            group = self.let("call i32 @llvm.amdgcn.workgroup.id.x()")
            item = self.let("call i32 @llvm.amdgcn.workitem.id.x()")
            start = self.let(f"mul nuw nsw i32 {group}, {WORKGROUP}")
            number = self.let(f"add nuw nsw i32 {start}, {item}")
            self.first = self.names[it] = self.let(f"zext i32 {number} to i64")
        else:
            after = self.let(f"add nuw nsw i64 {self.first}, 1")
            some = self.let(f"icmp slt i64 {self.first}, {self.program.groups}")
            self.names[it] = self.let(f"select i1 {some}, i64 {after}, i64 {self.first}")

    def _only_the_first(self) -> list[str]:
        """A program that was not divided is done by one work-item; the label keeps the loops' entry block its own."""
        self.lines = [line.replace("%entry ]", "%alone ]") for line in self.lines]
        return [
            "  %item = call i32 @llvm.amdgcn.workitem.id.x()",
            "  %is.first = icmp eq i32 %item, 0",
            "  br i1 %is.first, label %alone, label %idle",
            "idle:",
            "  ret void",
            "alone:",
        ]
