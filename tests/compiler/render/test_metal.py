"""MSL: what a handful of programs become, as reviewed; and what there is no MSL for, refused.

That the text computes what it should is asked on an emulated GPU: make test-emulated EMULATE=metal:m3.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from hcq import Tensor
from hcq.compiler.codegen import codegen
from hcq.compiler.kernel import kernel_name
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import lower
from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.compiler.render.metal import MOST_PARAMETERS
from hcq.compiler.target import METAL_ARCHS, metal_target
from hcq.emu.metal.shader.parser import parse
from hcq.emu.metal.shader.program import Program
from hcq.frontend.core.structure import structure_of
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.dtype import dtypes
from tests.compiler.test_golden_kernels import PROGRAMS, memory

TARGET = metal_target("apple9")


def msl_of(*results: Tensor) -> list[str]:
    """Every kernel's source."""
    nodes = [result.node for result in results]
    structure = structure_of(nodes)
    made = schedule(nodes, structure.storages, TARGET.threads, (), TARGET.most_arguments)
    found = []
    for kernel in made.kernels:
        nest = codegen(TARGET).choose(LoopNest(lower(kernel.sink, TARGET)), TARGET)
        found.append(codegen(TARGET).render(linearize(nest, kernel_name(kernel.sink)), TARGET.arch))
    return found


@pytest.mark.own_devices
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_msl_is_what_was_reviewed(
    program: Callable[[], Tensor], golden: Callable[[str, str], None]
) -> None:
    golden(f"metal/{program.__name__}.metal.txt", "\n".join(msl_of(program())))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_msl_is_of_the_subset_that_is_emulated(program: Callable[[], Tensor]) -> None:
    for text in msl_of(program()):
        source = parse(text)
        (kernel,) = source.kernels.values()
        made = Program(source, kernel)
        assert made.shared_bytes <= TARGET.shared_bytes
        assert 0 < made.most_threads <= 1024


def test_no_statement_has_two_operations_on_floats_that_could_be_fused() -> None:
    lines = [line for program in PROGRAMS for text in msl_of(program()) for line in text.splitlines()]
    operations = {line: len(re.findall(r" [-+*/] ", re.sub(r"\[.*?\]", "", line))) for line in lines}
    made = [operations[line] for line in lines if line.lstrip().startswith(("const float ", "float "))]
    assigned = [operations[line] for line in lines if re.match(r" *a\d+ = ", line)]
    assert (max(made), max(assigned)) == (1, 0)


def test_float64_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        RenderError, match=r"float64: Metal's GPUs have no numbers of that size\. Cast to float32 first"
    ):
        msl_of(memory(8).cast(dtypes.float64) * 2)


def test_sines_of_any_angle_need_no_float64() -> None:
    assert all("double" not in text for text in msl_of(memory(64).sin() + memory(64).cos()))


def test_kernels_of_many_tensors_fit_the_argument_table() -> None:
    total = memory(4)
    for _ in range(100):
        total = total * memory(4)
    texts = msl_of(total)
    assert len(texts) > 1
    assert max(text.count("[[buffer(") for text in texts) <= MOST_PARAMETERS


def test_kernels_with_several_results_fit_it_too() -> None:
    """Eight stores is what the scheduler joins, and as many reads as the target names."""
    first = memory(64)
    texts = msl_of(*[first + memory(64) + memory(64) + memory(64) for _ in range(8)])
    tables = [text.count("[[buffer(") for text in texts]
    assert max(tables) <= MOST_PARAMETERS
    assert len(texts) < 8


def test_an_architecture_that_is_no_apple_family_is_refused() -> None:
    assert [metal_target(arch).arch for arch in METAL_ARCHS] == list(METAL_ARCHS)
    with pytest.raises(ValueError, match="known Apple families: apple7, apple8, apple9"):
        metal_target("apple6")


def test_numbers_are_written_so_that_they_are_read_back() -> None:
    from hcq.compiler.render.metal_arithmetic import METAL

    for number in (0.1, -0.0, 1e-45, 3.4028235e38, 16777216.0):
        assert np.float32(METAL.literal(number, dtypes.float32).rstrip("f")) == np.float32(number)
    assert METAL.literal(float("inf"), dtypes.float32) == "as_type<float>(0x7f800000u)"
    assert METAL.literal(-(2**31), dtypes.int32) == "(-2147483647 - 1)"
    assert METAL.literal(-(2**63), dtypes.int64) == "(-9223372036854775807L - 1)"
