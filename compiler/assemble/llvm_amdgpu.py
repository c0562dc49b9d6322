"""LLVM for AMD GPUs: the text of a module becomes a code object for one gfx architecture.

In       LLVM IR text with an amdgpu_kernel, the target
Out      the bytes of an AMDGPU ELF object: machine code, kernel descriptor, metadata; no linker has run
Next     ../render/amdgpu.py (the text), hcq/amd/link.py (who loads the object and applies its relocations)
"""

from __future__ import annotations

from typing import Any

from hcq.compiler.assemble.llvm_cpu import AssembleError, binding
from hcq.compiler.target import Target

TRIPLE = "amdgcn-amd-amdhsa"

_machines: dict[str, Any] = {}


def _machine(arch: str) -> Any:
    """LLVM's target machine for an architecture; made once."""
    machine = _machines.get(arch)
    if machine is None:
        llvm = binding()
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        try:
            target = llvm.Target.from_triple(TRIPLE)
        except RuntimeError as problem:
            raise AssembleError(
                f"this llvmlite cannot make AMD code ({problem}): pip install llvmlite"
            ) from problem
        machine = _machines[arch] = target.create_target_machine(cpu=arch, opt=2)
    return machine


def assemble(text: str, target: Target, name: str) -> bytes:
    """The code object of a module. Raises AssembleError with LLVM's complaint."""
    llvm = binding()
    machine = _machine(target.arch)
    try:
        module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{text}')
    except RuntimeError as problem:
        raise AssembleError(f"{name}: LLVM does not accept the rendered text: {problem}") from problem
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_function_pass_manager()
    passes.add_instruction_combine_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    image: bytes = machine.emit_object(module)
    return image
