"""Reductions inside reductions: attention in one kernel, its products by matrix units, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hcq.compiler.compile import compile_kernel
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.heuristic import choose
from hcq.compiler.loops.heuristic_gpu import choose as choose_for_gpu
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.target import amd_target, cpu_target, nv_target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.nv.toolchain import nvjitlink
from tests.compiler.building import check, expand, kernel, out, param, reduce, reshape
from tests.compiler.loops.test_loop_nest import attention, nest_of, slope_of_keys, weights
from tests.compiler.loops.test_matrix_counters import metadata
from tests.compiler.loops.test_threads import gpu, machine  # fixtures
from tests.hcq.emu.nv.shader.running import needs_nvjitlink

if TYPE_CHECKING:
    from hcq.device import Device

__all__ = ["gpu", "machine"]


def narrow_attention(
    n: int, m: int, d: int, dtype: DType = dtypes.float16, result: DType = dtypes.float16
) -> Node:
    """softmax(q @ k.T) @ v of narrow floats, added up in float32."""
    q, k, v = (
        Node(Op.CAST, dtypes.float32, (param(i, shape, dtype),))
        for i, shape in ((1, (n, d)), (2, (m, d)), (3, (m, d)))
    )
    made, total = weights(q, k, n, m, d)
    values = expand(reshape(v, 1, m, d), n, m, d)
    sums = reduce(Node(Op.MUL, made.dtype, (expand(made, n, m, d), values)), (1,))
    mean = Node(Op.DIV, made.dtype, (sums, expand(total, n, 1, d)))
    return kernel((out(0, (n, 1, d), result), mean.cast(result)))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(64, 64, 16), (37, 81, 24)], ids=str)
def test_both_products_of_attention_are_a_matrix_units(
    gpu: tuple[Any, Any], shape: tuple[int, int, int], dtype: DType
) -> None:
    device, target = gpu
    code = check(device, narrow_attention(*shape, dtype, dtype), target=target)
    assert "matrix" in code.choice and "chain" in code.choice


def test_weights_are_rounded_for_a_narrow_result_alone(gpu: tuple[Any, Any]) -> None:
    device, target = gpu
    code = check(device, narrow_attention(20, 18, 8, result=dtypes.float32), target=target)
    assert "chain" not in code.choice


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_attention_spills_nothing_on_amd(arch: str, width: int) -> None:
    said = metadata(compile_kernel(narrow_attention(1024, 1024, width), amd_target(arch)))
    assert said[".vgpr_spill_count"] == said[".sgpr_spill_count"] == said[".private_segment_fixed_size"] == 0


@needs_nvjitlink
def test_attention_spills_nothing_on_nvidia() -> None:
    code = compile_kernel(narrow_attention(1024, 1024, 64), nv_target("sm_80"))
    found = nvjitlink.assemble(code.image.decode(), "sm_80", ("-verbose",))
    assert "0 bytes spill stores, 0 bytes spill loads" in found.log


def test_scores_stay_in_registers(gpu: tuple[Any, Any]) -> None:
    target = gpu[1]
    nest = choose_for_gpu(LoopNest(lower(narrow_attention(128, 256, 32), target)), target)
    program = linearize(nest, "k")
    kept = {
        it.source(0).arg for it in program.instructions if it.op is Op.STORE and it.source(0).op is Op.SHARED
    }
    assert len(kept) <= 2  # keys and values; scores and weights never leave the threads
    multiplied = [it for it in program.instructions if it.op is Op.MATRIX]
    assert multiplied and nest.unit is not None
    tile = nest.unit.unit
    rows = tile.size("m" if tile.d_m == tile.a_m else "n")
    keys = next(loop.stride for loop in nest.order if loop.axis.is_reduce)
    work = tile.size("m") * tile.size("n") * tile.size("k")
    assert len(multiplied) * work == 2 * rows * keys * 32


@pytest.mark.parametrize("make", [attention, slope_of_keys], ids=lambda make: make.__name__)
def test_one_pass_over_what_is_summed(make: Any) -> None:
    nest = choose(nest_of(make()), cpu_target())
    outer = {loop.axis for loop in nest.order if loop.axis.is_reduce}
    inner = [node for node in nest.reduces if any(nest.masks[node] & axis.bit for axis in outer)]
    assert {axis.name for axis in outer} <= {
        nest.axis_of[place].name for n in nest.reduces for place in n.src[1:]
    }
    assert (
        len({nest.axis_of[place] for node in nest.reduces if node not in inner for place in node.src[1:]})
        == 1
    )


def test_lanes_along_both_ranges(device: Device) -> None:
    text = "split r1 2; vectorize r1.1; unroll r1; split r2 8; vectorize r2.1; unroll r0"
    assert check(device, attention(), text).choice == text


def test_lanes_that_an_inner_sum_needs_twice_are_refused() -> None:
    nest = nest_of(attention())
    nest.apply("split r2 8; vectorize r2.1; split r0 4")
    with pytest.raises(ScheduleError, match=r"r2\.1 is in lanes already"):
        nest.vectorize("r0.1")


def test_a_chain_says_what_it_lacks() -> None:
    target = nv_target("sm_80")

    def complaint(text: str, sink: Node) -> str:
        nest = LoopNest(lower(sink, target))
        with pytest.raises(ScheduleError) as problem:
            nest.apply(text)
        return str(problem.value)

    begun = "split r0 16; split r2 16; split r2.1 8; split r3 16; matrix r0.1 r2.2 r3.1 mma.f16"
    wide = narrow_attention(32, 32, 32)
    assert "no matrix unit holds" in complaint("split r1 8; chain r1.1", wide)
    assert "unbound loop of 8 steps" in complaint(f"split r1 16; {begun}; chain r1.1", wide)
    assert "lies otherwise" in complaint(
        "split r1 8; split r0 16; split r2 8; split r3 16; matrix r0.1 r2.1 r3.1 mma.f16; chain r1.1", wide
    )


def exponentials(result: DType, target: Any) -> set[Op]:
    """Which ops of exponentials are left in attention of halves with such a result."""
    lowered = lower(narrow_attention(64, 64, 16, result=result), target)
    return {node.op for node in lowered.toposort() if node.op in (Op.EXP, Op.EXP2)}


def test_a_gpus_own_exponential_makes_weights_of_narrow_results_alone() -> None:
    assert exponentials(dtypes.float16, nv_target("sm_80")) == {Op.EXP2}
    assert exponentials(dtypes.float16, amd_target("gfx942")) == {Op.EXP2}
    assert exponentials(dtypes.float32, nv_target("sm_80")) == set()
    assert exponentials(dtypes.float16, cpu_target()) == set()
