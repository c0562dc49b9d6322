"""The ceilings of a machine: loops whose products wait for nothing but the units that multiply."""

import pytest

from hcq.compiler.assemble.llvm_cpu import binding
from hcq.tools.bench import ceilings
from hcq.tools.golden_text import TARGETS

llvm = pytest.importorskip("llvmlite.binding")


def assembly(text: str, cpu: str) -> str:
    """What LLVM makes of a module for a processor of x86."""
    llvm = binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu=cpu, opt=2)
    code: str = target.emit_assembly(llvm.parse_assembly(text))
    return code


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_sums_of_products_stay_in_registers(level: str) -> None:
    target = TARGETS[level]()
    product = ceilings.PRODUCTS["fma"][0]
    code = assembly(ceilings._product_loop("fma", product, target.vector_bits), target.cpu)
    assert code.count("vfmadd") == ceilings.ACCUMULATORS
    assert "%rsp" not in code  # nothing is spilled


def test_a_loop_of_wider_vectors_than_the_registers_would_spill() -> None:
    code = assembly(ceilings._product_loop("fma", ceilings.PRODUCTS["fma"][0], 512), "x86-64-v3")
    assert "%rsp" in code
