"""LLVM for GPUs: the text of a module becomes an AMDGPU code object, or PTX.

In       LLVM IR text with one kernel, the target
Out      amdgcn: an ELF object with machine code, kernel descriptor and metadata, no linker has run; nvptx64: PTX text
Next     ../render/gpu.py (the text), the device's loader (who reads the object or hands the PTX on)
"""

from __future__ import annotations

from typing import Any

from hcq.compiler.assemble.llvm_cpu import AssembleError, ToolchainError, binding
from hcq.compiler.target import Target

TRIPLES = {"amdgpu": "amdgcn-amd-amdhsa", "nvptx": "nvptx64-nvidia-cuda"}

_machines: dict[tuple[str, str], Any] = {}


def _machine(target: Target) -> Any:
    """LLVM's target machine; made once for each architecture."""
    key = (target.name, target.arch)
    machine = _machines.get(key)
    if machine is None:
        llvm = binding()
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        triple = TRIPLES[target.name]
        try:
            backend = llvm.Target.from_triple(triple)
        except RuntimeError as problem:
            raise ToolchainError(
                f"this llvmlite has no {triple} ({problem}): pip install --upgrade llvmlite"
            ) from problem
        machine = backend.create_target_machine(cpu=target.arch, features=target.features, opt=2)
        _machines[key] = machine
    return machine


def assemble(text: str, target: Target, name: str) -> bytes:
    """The code of a module. Raises AssembleError with LLVM's complaint."""
    llvm = binding()
    machine = _machine(target)
    try:
        module = llvm.parse_assembly(f'target triple = "{TRIPLES[target.name]}"\n{text}')
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
    if target.name == "nvptx":
        return str(machine.emit_assembly(module)).encode()
    image: bytes = machine.emit_object(module)
    return image
