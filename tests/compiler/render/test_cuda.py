"""Two compilers for NVIDIA: the same kernels as CUDA C through nvrtc and as LLVM's PTX, both run on the emulated
shader core, and both with the answers of the CPU device."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import hcq
from hcq.compiler.code_object import CodeObject
from hcq.compiler.codegen import compile_with
from hcq.compiler.compile import compile_kernel
from hcq.compiler.render.cuda_arithmetic import CUDA
from hcq.compiler.target import NV_ARCHS, Target, Toolchain, amd_target, cpu_target, nv_target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op
from tests.compiler import building
from tests.compiler.building import (
    conv,
    expand,
    kernel,
    matmul,
    out,
    pad,
    param,
    parameters,
    reduce,
    reshape,
    window,
)
from tests.compiler.test_golden_kernels import PROGRAMS, scheduled
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, needs_nvrtc, run_ptx
from tests.interpreter.arrays import from_raw, numpy_dtype, to_raw
from tests.turns import seeds

pytestmark = needs_nvrtc
INTEGERS = (
    dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64,
)  # fmt: skip
FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def cuda(arch: str = "sm_90") -> Target:
    from hcq.nv.toolchain import images

    return compile_with(nv_target(arch), Toolchain("test", "cuda", images.ptx_of_cuda))


@cache
def cpu() -> Any:
    return hcq.open("CPU")


def run_emulated(code: CodeObject, sink: Node, arrays: list[Any]) -> list[Any]:
    """What a kernel of PTX leaves in its buffers."""
    nodes = parameters(sink)
    raws = [np.ascontiguousarray(to_raw(array, node.dtype)).copy() for array, node in zip(arrays, nodes)]
    run_ptx(code.image.decode(), code.entry, code.grid, code.block, *raws)
    return [from_raw(raw, node.dtype) for raw, node in zip(raws, nodes)]


def agree(
    sink: Node, arrays: list[Any] | None = None, schedule: str | None = None, exact: bool = False
) -> None:
    """CUDA C, LLVM's PTX and the CPU device give the same: floats as near as roundings allow, the rest exactly."""
    nodes = parameters(sink)
    if arrays is None:
        arrays = [building.values(n.arg.shape, n.dtype, 7 + i) for i, n in enumerate(nodes)]
    want, _ = building.run(cpu(), sink, arrays)
    for target in (cuda(), nv_target("sm_90")):
        code = compile_kernel(sink, target, schedule=schedule)
        for node, expected, found in zip(nodes, want, run_emulated(code, sink, arrays)):
            if not node.dtype.is_float or exact:
                np.testing.assert_array_equal(found, expected, err_msg=f"{target.key}: {node.dtype.name}")
                continue
            tolerance = {1: 0.13, 2: 0.01, 4: 2e-5, 8: 1e-12}[node.dtype.itemsize]
            np.testing.assert_allclose(
                found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=10 * tolerance,
                err_msg=target.key,
            )  # fmt: skip


def edges(dtype: DType, count: int, seed: int) -> Any:
    """Numbers at which operations differ: ends of ranges, zeros, NaN, infinities, denormals, counts of shifts."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(bool)
    kind = numpy_dtype(dtype)
    if dtype.is_float:
        special = np.array(
            [
                0.0,
                -0.0,
                np.nan,
                np.inf,
                -np.inf,
                1.5,
                -2.5,
                3e9,
                -3e9,
                1e19,
                -1e19,
                127.5,
                255.9,
                1e-40,
                7e4,
                -1e-8,
                65519.0,
            ]
        )
        with np.errstate(over="ignore"):
            picked = np.where(
                rng.random(count) < 0.6, rng.choice(special, count), rng.standard_normal(count) * 100
            )
            return from_raw(to_raw(picked.astype(np.float32).astype(kind), dtype), dtype)
    info = np.iinfo(kind)
    special = np.array([info.min, info.max, 0, 1, 2, 7, 8, 15, 31, 32, 63, 64, 100, info.max - 1], dtype=kind)
    if not dtype.is_unsigned:
        special = np.concatenate([special, np.array([-1, -2, -7, info.min + 1], dtype=kind)])
    return rng.choice(special, count)


# -- the meaning of every operation -----------------------------------------------------------------------------------

BINARY = (
    Op.ADD, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR,
    Op.CMPLT, Op.CMPLE, Op.CMPEQ, Op.CMPNE,
)  # fmt: skip
ON_FLOATS = (Op.ADD, Op.MUL, Op.DIV, Op.MAX, Op.MIN, Op.CMPLT, Op.CMPLE, Op.CMPEQ, Op.CMPNE)
COMPARE = (Op.CMPLT, Op.CMPLE, Op.CMPEQ, Op.CMPNE)
COUNT = 400


def elementwise(cases: list[tuple[Op, DType, DType, int]]) -> tuple[Node, list[Any]]:
    """One kernel of one operation: op, dtype of its sources, dtype of its result, how many sources."""
    ((op, of, to, count),) = cases
    sources = [param(1 + i, (COUNT,), of) for i in range(count)]
    value = Node(op, to, tuple(sources))
    arrays = [building.values((COUNT,), to, 0), *(edges(of, COUNT, 3 + i) for i in range(count))]
    return kernel((out(0, (COUNT,), to), value)), arrays


@pytest.mark.sampled(40)
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_integer_operations_mean_the_same_at_the_ends_of_their_ranges(op: Op, dtype: DType) -> None:
    agree(*elementwise([(op, dtype, dtypes.bool if op in COMPARE else dtype, 2)]), exact=True)


@pytest.mark.parametrize(
    "dtype",
    [dtype if dtype.itemsize == 4 else pytest.param(dtype, marks=pytest.mark.thorough) for dtype in INTEGERS],
    ids=lambda dtype: dtype.name,
)
def test_shifts_and_divisions_by_numbers_known_in_advance_mean_the_same(dtype: DType) -> None:
    x, values = param(1, (COUNT,), dtype), edges(dtype, COUNT, 3)
    for number in (0, 1, 7, dtype.bits - 1, dtype.bits, 100, *(() if dtype.is_unsigned else (-1, -7))):
        for op in (Op.SHL, Op.SHR, Op.FLOORDIV, Op.MOD):
            by = expand(reshape(const(number, dtype), 1), COUNT)
            sink = kernel((out(0, (COUNT,), dtype), Node(op, dtype, (x, by))))
            agree(sink, [building.values((COUNT,), dtype, 0), values], exact=True)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", ON_FLOATS, ids=lambda op: op.name)
def test_float_operations_mean_the_same_for_nan_infinities_and_zeros(op: Op, dtype: DType) -> None:
    agree(*elementwise([(op, dtype, dtypes.bool if op in COMPARE else dtype, 2)]), exact=True)


@pytest.mark.parametrize("dtype", (dtypes.bool, *INTEGERS, *FLOATS), ids=lambda dtype: dtype.name)
def test_operations_on_one_number_mean_the_same(dtype: DType) -> None:
    ops = (Op.SQRT, Op.TRUNC, Op.NEG) if dtype.is_float else (Op.NOT,) if dtype.is_bool else (Op.NEG, Op.NOT)
    for op in ops:
        agree(*elementwise([(op, dtype, dtype, 1)]), exact=True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("of", (dtypes.bool, *INTEGERS, *FLOATS), ids=lambda dtype: dtype.name)
def test_conversions_saturate_and_round_alike(of: DType) -> None:
    for to in (dtypes.bool, *INTEGERS, *FLOATS):
        if of is not to:
            agree(*elementwise([(Op.CAST, of, to, 1)]), exact=True)


def test_bits_keep_their_value_under_another_dtype() -> None:
    pairs = [
        (dtypes.float32, dtypes.int32), (dtypes.uint32, dtypes.float32), (dtypes.float64, dtypes.uint64),
        (dtypes.int64, dtypes.float64), (dtypes.float16, dtypes.int16), (dtypes.uint16, dtypes.bfloat16),
        (dtypes.int8, dtypes.uint8),
    ]  # fmt: skip
    for of, to in pairs:
        agree(*elementwise([(Op.BITCAST, of, to, 1)]), exact=True)


def test_numbers_are_written_exactly() -> None:
    assert CUDA.literal(-(2**31), dtypes.int32) == "(-2147483647 - 1)"
    assert CUDA.literal(float("inf"), dtypes.float32) == "__uint_as_float(0x7f800000u)"
    assert CUDA.literal(-0.0, dtypes.float32) == "-0.0f"
    assert np.float32(CUDA.literal(0.1, dtypes.float32).rstrip("f")) == np.float32(0.1)


# -- kernels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_reviewed_kernels_give_the_same_from_both_compilers(program: Callable[[], Any]) -> None:
    for step in scheduled(program()).kernels:
        llvm = compile_kernel(step.sink, nv_target("sm_90"))
        other = compile_kernel(step.sink, cuda())
        assert (llvm.grid, llvm.block, llvm.entry) == (other.grid, other.block, other.entry)
        assert f".visible .entry {other.entry}(" in other.image.decode()
        agree(step.sink)


SMALL: dict[str, Callable[[], Node]] = {
    "matmul": lambda: kernel((out(0, (9, 1, 11)), matmul(param(1, (9, 13)), param(2, (13, 11))))),
    "convolution": lambda: kernel(
        (out(0, (2, 5, 5, 3, 1, 1, 1)), conv(param(1, (2, 2, 5, 5)), param(2, (3, 2, 3, 3))))
    ),
    "half matmul": lambda: kernel(
        (
            out(0, (5, 1, 6), dtypes.float16),
            matmul(param(1, (5, 7), dtypes.float16), param(2, (7, 6), dtypes.float16)),
        )
    ),
    "window maximum": lambda: kernel(
        (
            out(0, (3, 7, 1)),
            reduce(window(pad(param(1, (3, 13)), (0, 0), (1, 1)), 1, 3, 2), (2,), Op.MAX),
        )
    ),
    "row sum of bytes": lambda: kernel(
        (out(0, (8, 1), dtypes.int8), reduce(param(1, (8, 40), dtypes.int8), (1,)))
    ),
    "two stores": lambda: kernel(
        (out(0, (6, 10)), param(2, (6, 10)) * param(3, (6, 10))), (out(1, (6, 10)), param(2, (6, 10)) + 1.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_both_compilers_and_the_cpu_agree_on(name: str) -> None:
    agree(SMALL[name]())


def random_kernel(seed: int) -> Node:
    """A chain of operations over a few arrays, some broadcast, one reduced, of one to three dtypes."""
    pick = random.Random(seed)
    shape = (pick.randint(1, 6), pick.randint(1, 40))
    dtype = pick.choice(
        [dtypes.float32, dtypes.int32, dtypes.uint8, dtypes.int64, dtypes.float64, dtypes.float16]
    )
    values = [param(1, shape, dtype), expand(param(2, (1, shape[1]), dtype), *shape), param(3, shape, dtype)]
    whole = not dtype.is_float
    for _ in range(pick.randint(3, 10)):
        a, b = pick.choice(values), pick.choice(values)
        op = pick.choice(
            (
                Op.ADD,
                Op.MUL,
                Op.MAX,
                Op.MIN,
                *((Op.FLOORDIV, Op.MOD, Op.XOR, Op.SHR, Op.SHL) if whole else ()),
            )
        )
        if pick.random() < 0.2:
            values.append((a < b).where(a, Node(op, dtype, (a, b))))
        elif pick.random() < 0.15 and not whole:
            values.append(Node(Op.TRUNC, dtype, (a,)))
        else:
            values.append(Node(op, dtype, (a, b)))
    last = values[-1]
    if pick.random() < 0.4:
        return kernel(
            (out(0, (shape[0], 1), dtype), reduce(last, (1,), pick.choice((Op.ADD, Op.MAX, Op.MIN))))
        )
    if pick.random() < 0.3:
        return kernel((out(0, (shape[0] * shape[1],), dtype), reshape(last, shape[0] * shape[1])))
    return kernel((out(0, shape, dtype), last))


@pytest.mark.parametrize("seed", seeds(6, of=24))
def test_a_random_kernel_computes_what_the_cpu_computes(seed: int) -> None:
    sink = random_kernel(seed)
    nodes = parameters(sink)
    arrays = [building.values(n.arg.shape, n.dtype, seed * 10 + i) for i, n in enumerate(nodes)]
    # small numbers, so that products of many stay where one rounding more or less does not show
    arrays = [array / 4 if n.dtype.is_float else array for array, n in zip(arrays, nodes)]
    arrays = [
        from_raw(to_raw(a.astype(numpy_dtype(n.dtype)), n.dtype), n.dtype) for a, n in zip(arrays, nodes)
    ]
    agree(sink, arrays)


def mixed_kernel(seed: int) -> Node:
    """A chain of operations and conversions among all dtypes."""
    pick = random.Random(seed)
    shape = (pick.randint(1, 4), pick.randint(1, 30))
    dtypes_ = (dtypes.bool, *INTEGERS, *FLOATS)
    found = [param(1 + i, shape, pick.choice(dtypes_)) for i in range(4)]
    for _ in range(pick.randint(4, 12)):
        a, b = pick.choice(found), pick.choice(found)
        if pick.random() < 0.35:
            found.append(Node(Op.CAST, pick.choice(dtypes_), (a,)))
            continue
        if b.dtype is not a.dtype:
            b = Node(Op.CAST, a.dtype, (b,))
        if a.dtype.is_bool:
            ops = [Op.AND, Op.OR, Op.XOR, Op.MAX, Op.MIN]
        else:
            ops = [op for op in (ON_FLOATS if a.dtype.is_float else BINARY) if op not in COMPARE]
        found.append((a < b).where(a, b) if pick.random() < 0.15 else Node(pick.choice(ops), a.dtype, (a, b)))
    return kernel((out(0, shape, found[-1].dtype), found[-1]))


@pytest.mark.parametrize("seed", seeds(6, of=24))
def test_a_random_chain_of_conversions_computes_what_the_cpu_computes(seed: int) -> None:
    sink = mixed_kernel(seed)
    arrays = []
    for i, n in enumerate(parameters(sink)):
        count = n.arg.shape[0] * n.arg.shape[1]
        arrays.append(np.asarray(edges(n.dtype, count, 10 * seed + i)).reshape(n.arg.shape))
    agree(sink, arrays)


@pytest.mark.parametrize(
    "schedule",
    [
        "split r1 4; vectorize r1.1; parallel r0",
        "split r1 5; unroll r1.1; parallel r0",
        "parallel r0",
        "split r0 2; vectorize r0.1; parallel r0",
    ],
)
def test_lanes_and_copies_of_a_loop_are_variables_of_their_own(schedule: str) -> None:
    x, y = param(1, (6, 33)), param(2, (6, 33))
    agree(kernel((out(0, (6, 33)), (x < y).where(x * y + 3.0, y))), schedule=schedule)
    agree(kernel((out(0, (6, 1)), reduce(x * y, (1,)))), schedule=schedule)


GOLDEN = ("elementwise_chain", "row_sum", "softmax", "padded_window_maximum", "matmul")


@pytest.mark.parametrize("name", GOLDEN)
def test_the_source_is_the_one_that_was_reviewed(name: str, golden: Callable[[str, str], None]) -> None:
    program = next(one for one in PROGRAMS if one.__name__ == name)
    sources: list[str] = []
    for step in scheduled(program()).kernels:
        compile_kernel(
            step.sink, cuda(), show=lambda kind, text: sources.append(text) if kind == "code" else None
        )
    golden(f"nv/{name}.cu.txt", "\n\n".join(source.partition("\n\n")[2].strip() for source in sources) + "\n")


# -- choosing it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", NV_ARCHS)
def test_nvrtc_takes_the_source_for_every_architecture(arch: str) -> None:
    from hcq.nv.bundle import Bundle
    from hcq.nv.cubin import Cubin
    from hcq.nv.toolchain import images

    target = compile_with(nv_target(arch), Toolchain(images.cuda_name(), "cuda", images.of_cuda))
    code = compile_kernel(SMALL["two stores"](), target)
    both = Bundle.of(code.image)
    assert list(Cubin(both.cubin).kernels) == [code.entry]
    assert f".visible .entry {code.entry}(" in both.ptx.decode()


def test_kernels_of_the_two_roads_do_not_mix_in_the_caches() -> None:
    sink = SMALL["two stores"]()
    keys = {
        nv_target("sm_90").key,
        cuda().key,
        compile_with(nv_target("sm_90"), Toolchain("test", "ptx", _of_ptx)).key,
    }
    assert len(keys) == 3
    assert compile_kernel(sink, cuda()).image != compile_kernel(sink, nv_target("sm_90")).image


def _of_ptx(text: str, arch: str, name: str) -> bytes:
    from hcq.nv.toolchain import images

    return images.of_ptx(text, arch, name)


@needs_nvjitlink
def test_the_ptx_of_llvm_becomes_machine_code_with_the_ptx_beside_it() -> None:
    from hcq.nv.bundle import Bundle
    from hcq.nv.cubin import Cubin

    target = compile_with(nv_target("sm_90"), Toolchain("test", "ptx", _of_ptx))
    code = compile_kernel(SMALL["matmul"](), target)
    both = Bundle.of(code.image)
    assert both.ptx == compile_kernel(SMALL["matmul"](), nv_target("sm_90")).image.rstrip(b"\0\n ") + b"\n"
    assert Cubin(both.cubin).kernels[code.entry].registers > 0


def test_only_nvidia_targets_take_its_compilers() -> None:
    with pytest.raises(ValueError, match="takes an NVIDIA target"):
        compile_with(amd_target("gfx1100"), Toolchain("test", "cuda", _of_ptx))
    with pytest.raises(ValueError, match="takes an NVIDIA target"):
        compile_with(cpu_target(), Toolchain("test", "cuda", _of_ptx))
    with pytest.raises(ValueError, match="'hip'"):
        compile_with(nv_target("sm_90"), Toolchain("test", "hip", _of_ptx))


def test_the_source_is_the_same_twice_and_includes_nothing() -> None:
    seen: list[tuple[str, str]] = []
    for _ in range(2):
        compile_kernel(SMALL["half matmul"](), cuda(), show=lambda kind, text: seen.append((kind, text)))
    sources = [text for kind, text in seen if kind == "code"]
    assert len(sources) == 2
    assert sources[0] == sources[1]
    assert "#include" not in sources[0]
    assert 'extern "C" __global__ void __launch_bounds__(' in sources[0]
