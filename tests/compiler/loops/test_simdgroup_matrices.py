"""Matrices of SIMD groups: Metal's matrix unit, given products of halves, of bfloat16 and of float32."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq.compiler.codegen import codegen
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import HELD, UNITS, MatrixUnit, Parts
from hcq.compiler.pipeline import lower
from hcq.compiler.target import metal_target
from hcq.emu.metal.shader.machine import COLUMNS, ROWS, SIMD
from hcq.ir.dtype import DType, dtypes
from tests.compiler.building import check
from tests.compiler.emulated_gpus import machine_of
from tests.compiler.loops.test_nested import narrow_attention
from tests.compiler.loops.test_threads import narrow_product

machine = machine_of("metal:m3")
TARGET = metal_target("apple9")
FORMATS = {"half": dtypes.float16, "bfloat": dtypes.bfloat16, "float": dtypes.float32}


def place(parts: Parts, thread: int, held: int) -> int:
    """Where along a dimension a thread's element is."""
    found = 0
    for steps, digit in parts:
        found = found * steps + (held if digit == HELD else thread >> digit & 1)
    return found


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS.values() if "apple9" in unit.archs], ids=lambda u: u.name
)
def test_compiler_and_emulation_say_alike_who_holds_what(unit: MatrixUnit) -> None:
    """Each was written from the formula of Apple's own library for itself."""
    for thread in range(SIMD):
        for held in (0, 1):
            here = ROWS[thread], COLUMNS[thread] + held
            for rows, columns in ((unit.d_m, unit.d_n), (unit.a_m, unit.k), (unit.k_of_b, unit.b_n)):
                assert (place(rows, thread, held), place(columns, thread, held)) == here


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("turned", ["", "ab"])
def test_products_are_multiplied_by_simd_groups(machine: None, kind: str, turned: str) -> None:
    sink = narrow_product(41, 52, 37, FORMATS[kind], turned=turned)
    code = check(hcq.open("METAL"), sink, target=TARGET)
    assert "simdgroup." in code.choice
    assert f"simdgroup_{kind}8x8" in code.image.decode()
    assert "simdgroup_multiply_accumulate" in code.image.decode()


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda dtype: dtype.name)
def test_both_products_of_attention_are_multiplied_by_simd_groups(machine: None, dtype: DType) -> None:
    code = check(hcq.open("METAL"), narrow_attention(20, 18, 8, dtype, dtype), target=TARGET)
    assert "matrix" in code.choice and "chain" in code.choice


def test_sums_stay_matrices_from_one_step_to_the_next() -> None:
    """Within a step of the loop; where it ends, they are the numbers that each thread holds."""
    nest = LoopNest(lower(narrow_product(64, 64, 256, dtypes.float16), TARGET))
    chosen = codegen(TARGET).choose(nest, TARGET)
    text = codegen(TARGET).render(linearize(chosen, "k"), TARGET.arch)
    products = [
        line.split("(")[1].rstrip(");").split(", ") for line in text.splitlines() if "multiply_acc" in line
    ]
    made = {product[0] for product in products}
    assert len(products) > 2 * len([product for product in products if product[3] not in made]) > 0


def test_a_product_of_what_is_computed_ends_where_its_operands_do(machine: None) -> None:
    """Both factors are something else than zero beyond the end of k, which is no multiple of a step."""
    from hcq import Tensor

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((12, 21), (21, 20)))
    found = ((Tensor(a, device="METAL") + 1) @ (Tensor(b, device="METAL") * 2 + 3)).numpy()
    np.testing.assert_allclose(found, (a + 1) @ (b * 2 + 3), rtol=1e-5, atol=1e-4)


def test_float32_is_not_rounded_to_less(machine: None) -> None:
    """As tf32 would be: products of numbers with 24 bits are those of float32."""
    from hcq import Tensor

    a = np.full((16, 16), 1 + 2**-23, np.float32)
    found = (Tensor(a, device="METAL") @ Tensor(np.eye(16, dtype=np.float32), device="METAL")).numpy()
    np.testing.assert_array_equal(found, a)
