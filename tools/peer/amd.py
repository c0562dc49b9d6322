"""tinygrad's AMD driver on the emulated KFD, with our assembler.

In       a word of HCQ_EMULATE
Out      tinygrad's device AMD
Changes  tinygrad's modules in this process
Next     door.py (its files), ../../hcq/emu/amd/kfd.py (who answers)

It needs no ROCm: its kernels are rendered as LLVM IR, and assembled by the LLVM that llvmlite brings.
"""

from __future__ import annotations

import os
from typing import Any

from hcq.compiler.assemble.llvm_cpu import binding
from hcq.emu.port import EmulatedPort
from hcq.tools.peer import door

TRIPLE = "amdgcn-amd-amdhsa"


def install(port: EmulatedPort | None) -> None:
    """Make this port's GPUs tinygrad's device AMD; without one, those that the system shows. Before it is imported."""
    os.environ["DEV"] = "KFD+AMD:LLVM"
    if port is not None:
        door.install(port)
    import tinygrad.runtime.support.compiler_llvm as compilers
    from tinygrad.device import Compiler

    class Assembler(Compiler):  # type: ignore[misc]
        """LLVM IR to a code object. The passes that tinygrad runs find out what a kernel needs in registers."""

        def __init__(self, arch: str) -> None:
            self.arch = arch
            super().__init__(None)

        def compile(self, src: str) -> bytes:
            llvm = binding()
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            target = llvm.Target.from_triple(TRIPLE)
            machine = target.create_target_machine(cpu=self.arch, features="+cumode", opt=2)
            module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{src}', llvm.create_context())
            module.data_layout = str(machine.target_data)
            passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
            passes.getModulePassManager().run(module, passes)
            image: bytes = machine.emit_object(module)
            return image

        def __reduce__(self) -> Any:
            return Assembler, (self.arch,)

    compilers.AMDLLVMCompiler = Assembler
