"""A kernel in machine code: LLVM's of the text that groups.py writes, and its launch.

In       a kernel and its Code; then a grid, a block and what is bound
Out      memory as the kernel leaves it; KernelFault for what a thread did, NotCompiled where there is no LLVM
Changes  what is bound
Next     groups.py (the text), program.py (who decides whether a kernel is compiled)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hcq.emu.metal.shader.errors import KernelFault, NotCompiled
from hcq.emu.metal.shader.groups import ARGUMENTS, FAULT, TABLE, Code
from hcq.emu.metal.shader.machine import ACCESSES
from hcq.emu.metal.shader.pieces import SLOT_UNIT
from hcq.emu.metal.shader.syntax import Function
from hcq.system import native

Size = tuple[int, int, int]


class Compiled:
    """One kernel. is_best: LLVM takes its time, for code that is two to three times as fast."""

    def __init__(self, kernel: Function, code: Code, is_best: bool = True) -> None:
        self.is_best = is_best
        self.name = kernel.name
        self.memories = [one.name for one in kernel.parameters if one.kind.space]
        self.shared = {name: size for name, (_, size) in kernel.shared.items()}
        self._code = code
        self._engine, address = _assembled(code.text, is_best)
        self._run = native.function(address, "int(*)(void *, void *)")

    def run(self, grid: Size, block: Size, bound: Sequence[Any]) -> None:
        """All threadgroups of a grid. bound: what each memory is. Raises KernelFault."""
        threads = prod(block)
        rows = -(-threads // SLOT_UNIT) * SLOT_UNIT
        launch = np.zeros(TABLE + 2 * len(bound), np.int64)
        launch[: len(ARGUMENTS)] = (0, prod(grid), threads, rows, *grid, *block)
        for number, data in enumerate(bound):
            launch[TABLE + 2 * number : TABLE + 2 * number + 2] = native.address_of(data), len(data)
        scratch = np.zeros(self._code.fixed_bytes + rows * self._code.slot_bytes + SLOT_UNIT, np.uint8)
        start = native.address_of(scratch)
        aligned = native.pointer(-(-start // SLOT_UNIT) * SLOT_UNIT)
        if self._run(native.pointer(native.address_of(launch)), aligned):
            raise self._fault(int(launch[FAULT]), int(launch[FAULT + 1]), bound)

    def _fault(self, number: int, index: int, bound: Sequence[Any]) -> KernelFault:
        site = self._code.sites[number]
        count = 0
        if site.element_bytes:
            size = self.shared.get(site.memory)
            if size is None:
                size = len(bound[self.memories.index(site.memory)])
            count = size // site.element_bytes
        fault = KernelFault(f"{self.name}: {site.what.format(name=site.memory, index=index, count=count)}")
        fault.line = site.line
        fault.is_misaligned = site.what.endswith("multiple of its size.")
        if site.element_bytes and site.memory in self.shared:
            fault.shared_byte = max(0, index) * site.element_bytes
        elif site.element_bytes:
            memory = bound[self.memories.index(site.memory)]
            fault.access = ACCESSES.get(site.what.partition(" ")[0], "access")
            fault.size_bytes = site.element_bytes
            fault.address = native.address_of(memory) + index * site.element_bytes
        return fault


@functools.cache
def _tools() -> tuple[Any, Any, Any]:
    """LLVM, its passes, and what they are run with. Made once: llvmlite never frees passes."""
    try:
        import llvmlite.binding as llvm
    except ImportError as problem:
        raise NotCompiled(f"llvmlite cannot be imported: {problem}") from problem
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = _machine(llvm, True)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_new_gvn_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    return llvm, passes, builder


def _machine(llvm: Any, is_best: bool) -> Any:
    made = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return made.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2 * is_best, jit=True
    )


def _assembled(text: str, is_best: bool) -> tuple[Any, int]:
    """Machine code, and where it begins; it goes with the first of them."""
    llvm, passes, builder = _tools()
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    engine = llvm.create_mcjit_compiler(module, _machine(llvm, is_best))
    engine.finalize_object()
    return engine, int(engine.get_function_address("run"))
