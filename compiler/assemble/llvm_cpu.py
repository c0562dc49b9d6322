"""LLVM for the host CPU: the text of a module becomes a relocatable ELF object.

In       LLVM IR text, the target
Out      the bytes of an ELF object with one entry function, position independent, calling no library
Next     ../render/llvm.py (the text), hcq/code/elf.py (who loads the object)

The text is already vectorised, hoisted and in SSA form, so only a few cleaning passes run before code generation.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

from hcq.compiler.target import Target

_machines: dict[tuple[str, str, str], Machine] = {}


class Machine:
    """LLVM's target machine, and the passes that run before it. Made once: llvmlite never frees passes."""

    def __init__(self, target: Any) -> None:
        llvm = binding()
        self.target = target
        self._builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
        self._passes = llvm.create_new_function_pass_manager()
        self._passes.add_instruction_combine_pass()

    def parse(self, text: str, name: str) -> Any:
        """A module in a context of its own, which goes with it. Raises AssembleError with LLVM's complaint."""
        llvm = binding()
        try:
            module = llvm.parse_assembly(text, llvm.create_context())
        except RuntimeError as problem:
            raise AssembleError(f"{name}: LLVM does not accept the rendered text: {problem}") from problem
        module.data_layout = str(self.target.target_data)
        return module

    def clean(self, module: Any) -> None:
        """Run the cleaning passes over every function of a module, in place."""
        for function in module.functions:
            if not function.is_declaration:
                self._passes.run(function, self._builder)


class AssembleError(RuntimeError):
    """LLVM refused the text: a fault of ours, shown with the line it points at."""


class ToolchainError(AssembleError):
    """LLVM itself cannot be used here: an affair of whoever owns the machine."""


MISSING = "kernels are compiled by LLVM, which is not installed here: pip install 'hcq[tensor]'"


def binding() -> Any:
    """LLVM. Raises ToolchainError that says what is missing: the package, or something that it needs."""
    try:
        import llvmlite.binding as llvm
    except ModuleNotFoundError as problem:
        if problem.name not in ("llvmlite", "llvmlite.binding"):
            raise ToolchainError(
                f"llvmlite cannot be imported: {problem}. Install what it asks for."
            ) from problem
        raise ToolchainError(MISSING) from problem
    except (ImportError, OSError) as problem:  # a library that it needs, or memory for its own
        raise ToolchainError(f"llvmlite is installed, and cannot be imported: {problem}") from problem
    return llvm


def toolchain_version() -> str:
    """Which LLVM makes the objects, read without loading it: part of every cache key.

    Raises ToolchainError where llvmlite is not installed.
    """
    # by the names of installed distributions: importlib.metadata takes 20 ms to say the same
    for folder in sys.path:
        found = sorted(Path(folder or ".").glob("llvmlite-*.dist-info"))
        if found:
            return found[0].name.removesuffix(".dist-info")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"llvmlite-{version('llvmlite')}"
    except PackageNotFoundError as problem:
        raise ToolchainError(MISSING) from problem


def _machine(target: Target) -> Machine:
    """For a target; made once."""
    key = (target.arch, target.cpu, target.features)
    machine = _machines.get(key)
    if machine is None:
        llvm = binding()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        cpu, features = (target.cpu, target.features) if target.cpu else host_processor(target)
        if target.cpu and target.arch != platform.machine():  # a named processor of another architecture
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            machine_of = llvm.Target.from_triple(f"{target.arch}-unknown-linux-gnu")
        else:
            machine_of = llvm.Target.from_default_triple()
        made = machine_of.create_target_machine(
            cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small"
        )
        machine = _machines[key] = Machine(made)
    return machine


def host_processor(target: Target) -> tuple[str, str]:
    """LLVM's name of the host's processor and its features, less those that the target does without."""
    llvm = binding()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_host_cpu_name(), ",".join(filter(None, [features, target.features]))


def assemble(text: str, target: Target, name: str) -> bytes:
    """The object of a module. Raises AssembleError with LLVM's complaint."""
    machine = _machine(target)
    module = machine.parse(text, name)
    module.triple = machine.target.triple
    machine.clean(module)
    image: bytes = machine.target.emit_object(module)
    return image
