"""Copies to LDS by waves: right whatever lies where, side by side, without bank conflicts, and waited for."""

from __future__ import annotations

import random
import re
import struct
from contextlib import suppress
from math import isqrt
from typing import Any

import numpy as np
import pytest

import hcq
from hcq.compiler.codegen import codegen
from hcq.compiler.compile import compile_kernel
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.linear.program import Program
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import units_of
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.search.moves import Moves
from hcq.compiler.target import Target, amd_target
from hcq.emu.amd.shader.architectures import ISAS
from hcq.emu.amd.shader.errors import UnknownInstruction
from hcq.emu.amd.shader.loads_to_lds import is_load_to_lds
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.performance import counters
from hcq.performance.counters import Counters
from tests.compiler.building import check, kernel, matmul, out, param, parameters
from tests.compiler.emulated_gpus import machine_of
from tests.compiler.loops.test_threads import narrow_product
from tests.compiler.shared_memory import Access, bank_conflicts, race, walk, without
from tests.turns import seeds

GPUS = {"amd:gfx90a": ("AMD", amd_target("gfx90a")), "amd:gfx942": ("AMD:1", amd_target("gfx942"))}
WAVE = 64
WAITCNT, NO_LOADS = (
    0xBF8C_0000,
    0xC00F,
)  # s_waitcnt; the bits of vmcnt, all of which are set where it is not waited for
by_gpu = pytest.mark.parametrize("gpu", GPUS)


machine = machine_of(*GPUS)


def tiled(target: Target, dtype: DType, tiles: int, turned: str = "b", size: int = 512) -> str:
    """What the heuristic writes for a product of that size, with so many tiles of each operand."""
    nest = LoopNest(lower(narrow_product(size, size, size, dtype, turned=turned), target))
    text = codegen(target).choose(nest, target).choice
    return re.sub(r"pipeline (\S+)( \d)?", rf"pipeline \1 {tiles}", text)


def written(target: Target, sink: Node, text: str) -> Program:
    nest = LoopNest(lower(sink, target)).apply(text)
    return linearize(nest, "k", target.shared_bytes, target.wave_copy_bytes)


def copies(program: Program) -> int:
    return sum(it.op is Op.COPY_SHARED for it in program.instructions)


# -- what they compute ----------------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@by_gpu
@pytest.mark.parametrize("tiles", [3, 4])
@pytest.mark.parametrize(
    "dtype", [dtypes.float16, dtypes.bfloat16, dtypes.int8], ids=lambda dtype: dtype.name
)
def test_a_product_with_copies_ahead_is_the_product(
    machine: None, gpu: str, dtype: DType, tiles: int
) -> None:
    name, target = GPUS[gpu]
    text = tiled(target, dtype, tiles)
    sink = narrow_product(100, 72, 5 * 64, dtype, turned="b")  # the last blocks are not full
    code = check(hcq.open(name), sink, text, target=target)
    assert code.choice == text


@by_gpu
@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_a_product_of_fewer_steps_than_tiles_is_the_product(machine: None, gpu: str, steps: int) -> None:
    name, target = GPUS[gpu]
    text = tiled(target, dtypes.float16, 4)
    check(hcq.open(name), narrow_product(64, 64, 64 * steps, dtypes.float16, turned="b"), text, target=target)


@by_gpu
@pytest.mark.parametrize("turned", ["", "a", "ab"])
def test_what_is_turned_goes_through_registers_beside_what_is_copied(
    machine: None, gpu: str, turned: str
) -> None:
    name, target = GPUS[gpu]
    text = tiled(target, dtypes.float16, 3, turned)
    sink = narrow_product(64, 64, 320, dtypes.float16, turned=turned)
    program = written(target, sink, text)
    stored = {
        it.source(0).arg for it in program.instructions if it.op is Op.STORE and it.source(0).op is Op.SHARED
    }
    along_k = ("a" not in turned) + ("b" in turned)
    assert (copies(program) > 0) == (along_k > 0) and bool(stored)
    check(hcq.open(name), sink, text, target=target)


FLOATS = (  # rows of the left operand's tile end in a gap, so that its columns meet all banks
    "split r0 32; split r0.1 2; split r1 32; split r1.1 2; split r2 16; unroll r0.2; unroll r1.2; thread r0.1; "
    "thread r1.1; parallel r0; parallel r1; stage 0 r2; stage 1 r2; pipeline r2 3"
)


@by_gpu
def test_words_of_a_row_with_a_gap_are_copied_right(machine: None, gpu: str) -> None:
    name, target = GPUS[gpu]
    sink = kernel((out(0, (64, 1, 64)), matmul(param(1, (64, 16 * 5)), param(2, (16 * 5, 64)))))
    program = written(target, sink, FLOATS)
    assert copies(program) and race(program, WAVE) == ""
    check(hcq.open(name), sink, FLOATS, target=target)


@by_gpu
@pytest.mark.parametrize("k", [321, 322])
def test_rows_that_begin_between_words_are_not_copied_so(machine: None, gpu: str, k: int) -> None:
    """321 halves a row: every other one begins in the middle of a word. Padded steps are made of conditions, too."""
    name, target = GPUS[gpu]
    text = tiled(target, dtypes.float16, 3)
    sink = narrow_product(64, 64, k, dtypes.float16, turned="b")
    assert not copies(written(target, sink, text))
    check(hcq.open(name), sink, text, target=target)


# -- how they lie ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(4, of=12))
def test_a_wave_copies_to_words_side_by_side_and_no_bank_is_met_more_often_for_it(seed: int) -> None:
    rng = random.Random(seed)
    target = amd_target(rng.choice(["gfx90a", "gfx942", "gfx950"]))
    dtype = rng.choice([dtypes.float16, dtypes.bfloat16, dtypes.int8])
    unit = rng.choice(units_of(target.arch, dtype))
    text, sizes = "", []
    for name, dimension in (("r0", "m"), ("r1", "n")):
        own, waves, parts = unit.size(dimension), rng.choice([1, 2]), 1
        sizes.append(own * waves * parts * 2)
        text += f"split {name} {own * waves * parts}; split {name}.1 {own * parts}; split {name}.2 {own}; "
    depth = unit.size("k") * rng.choice([1, 2])
    text += f"split r2 {depth}; split r2.1 {unit.size('k')}; matrix r0.3 r1.3 r2.2 {unit.name}; unroll r2.1; "
    text += "unroll r0.2; thread r0.1; unroll r1.2; thread r1.1; parallel r0; parallel r1; stage 0 r2; stage 1 r2; "
    text, end = text + "pipeline r2 ", "; collect" * rng.randrange(2)
    sink = narrow_product(*sizes, 6 * depth, dtype, turned="b")
    by_registers, program = (
        written(target, sink, f"{text}{tiles}{end}") for tiles in (2, rng.choice([3, 4, 5]))
    )
    assert copies(program), text
    for step in walk(program, WAVE):
        if isinstance(step, Access) and step.kind == "copy":
            places = step.start.reshape(-1, WAVE) if len(step.start) % WAVE == 0 else step.start[None]
            active = places >= 0
            assert (active == (np.cumsum(~active, axis=1) == 0)).all(), "lanes that copy come first"
            assert ((places - places[:, :1])[active] == np.broadcast_to(
                step.size * np.arange(places.shape[1]), places.shape
            )[active]).all()  # fmt: skip
            assert step.size == (16 if target.arch == "gfx950" else 4)
    assert bank_conflicts(program, "amd", WAVE) <= bank_conflicts(by_registers, "amd", WAVE)
    assert race(program, WAVE) == "", text
    for it in program.instructions:
        if it.op is Op.WAIT:
            assert race(without(program, it), WAVE) != "", text


def counted(device: Any, target: Target, sink: Node, text: str) -> Counters:
    made: list[Counters] = []
    end = counters.listen(lambda _, one: made.append(one))
    try:
        check(device, sink, text, target=target)
    finally:
        end()
    (found,) = made
    return found


@by_gpu
def test_counted_there_are_no_bank_conflicts_nor_bytes_too_many(machine: None, gpu: str) -> None:
    """Through registers the last step's tiles are loaded once more; by waves nothing is that nobody reads."""
    name, target = GPUS[gpu]
    m, n, k = 128, 128, 512
    sink = narrow_product(m, n, k, dtypes.float16, turned="b")
    by_registers, by_waves = (
        counted(hcq.open(name), target, sink, tiled(target, dtypes.float16, tiles, size=512))
        for tiles in (2, 3)
    )
    assert by_waves.bank_conflicts == by_registers.bank_conflicts == 0
    across = isqrt(by_waves.blocks)
    assert by_waves.load_sectors * by_waves.sector_bytes == 2 * (m + n) * k * across
    assert by_waves.load_sectors < by_registers.load_sectors
    assert by_waves.matrix_flops == by_registers.matrix_flops
    # a lane brings 4 bytes at a time, not 16
    assert by_waves.instructions["global load"] > 3 * by_registers.instructions["global load"]
    assert "shared store" not in by_waves.instructions or (
        by_waves.instructions["shared store"] < by_registers.instructions["shared store"]
    )
    assert not by_waves.uncounted


# -- waits ----------------------------------------------------------------------------------------------------------


def waits(image: bytes) -> list[tuple[int, int]]:
    """(where in an object, vmcnt) of each s_waitcnt that waits for loads."""
    found = []
    for at in range(0, len(image) - 3, 4):
        (word,) = struct.unpack_from("<I", image, at)
        if word & 0xFFFF_0000 == WAITCNT and word & NO_LOADS != NO_LOADS:
            found.append((at, word & 15 | (word & 0xFFFF) >> 14 << 4))
    return found


def product_of(device: Any, code: Any, image: bytes, sink: Node) -> Any:
    """What a kernel's image makes of halves that are whole numbers."""
    rng = np.random.default_rng(5)
    shapes = [node.arg.shape for node in parameters(sink)]
    arrays = [rng.integers(-4, 5, shape).astype(np.float16) for shape in shapes[1:]]
    result = device.alloc(4 * int(np.prod(shapes[0])))
    buffers = [result]
    for array in arrays:
        buffers.append(device.alloc(array.nbytes))
        buffers[-1].write(array.tobytes())
    program = device.load(image, code.entry, code.args, code.scratch_bytes)
    device.run(program, buffers, grid=code.grid, block=code.block)
    a, b = (array.astype(np.float32) for array in arrays)
    found = np.frombuffer(bytes(result.read())[: 4 * int(np.prod(shapes[0]))], np.float32)
    return (found.reshape(a.shape[0], b.shape[0]) == a @ b.T).all()


@by_gpu
def test_a_kernel_that_waits_for_too_few_copies_is_wrong_on_the_emulated_gpu(machine: None, gpu: str) -> None:
    """Each wait in turn: for one instruction less, and for none. The ones in the loop leave some copies under way."""
    name, target = GPUS[gpu]
    sink = narrow_product(64, 64, 64 * 8, dtypes.float16, turned="b")
    code = compile_kernel(sink, target, schedule=tiled(target, dtypes.float16, 3).replace("; collect", ""))
    device = hcq.open(name)
    assert product_of(device, code, code.image, sink)
    found = waits(code.image)
    assert any(left > 0 for _, left in found) and any(left == 0 for _, left in found)
    for at, left in found:
        for other in (left + 1, 63):
            (word,) = struct.unpack_from("<I", code.image, at)
            changed = word & ~NO_LOADS | other & 15 | other >> 4 << 14
            image = code.image[:at] + struct.pack("<I", changed) + code.image[at + 4 :]
            assert not product_of(device, code, image, sink), f"vmcnt({left}) may be vmcnt({other})"


@by_gpu
def test_a_loop_waits_for_what_it_reads_and_leaves_the_rest_under_way(gpu: str) -> None:
    """No wait of LLVM's own is for all: neither before the barrier of a step nor before what is read there."""
    _, target = GPUS[gpu]
    sink = narrow_product(64, 64, 64 * 8, dtypes.float16, turned="b")
    text = tiled(target, dtypes.float16, 3).replace("; collect", "")
    code = compile_kernel(sink, target, schedule=text)
    program = written(target, sink, text)
    batch = next(it.arg for it in program.instructions if it.op is Op.COMMIT)
    assert sorted(left for _, left in waits(code.image)) == [0, batch]


@by_gpu
def test_no_copy_has_an_offset_of_its_own(gpu: str) -> None:
    """It would be one in LDS as well. LLVM makes some of addresses that lie near each other, where it knows them."""
    _, target = GPUS[gpu]
    isa = ISAS[target.arch]
    text = (
        "split r0 64; split r0.1 32; split r0.2 16; split r1 64; split r1.1 32; split r1.2 16; split r2 64; "
        "split r2.1 32; matrix r0.3 r1.3 r2.2 mfma16.f16; unroll r0.2; thread r0.1; unroll r1.2; thread r1.1; "
        "unroll r2.1; parallel r0; parallel r1; stage 0 r2; stage 1 r2; pipeline r2 3"
    )
    sink = narrow_product(64, 64, 256, dtypes.float16, turned="b")
    code = compile_kernel(sink, target, schedule=text)
    image, found = code.image[: len(code.image) // 4 * 4], []
    words = struct.unpack(f"<{len(image) // 4}I", image)
    for at in range(len(words) - 3):
        with suppress(UnknownInstruction):
            inst = isa.decode(words[at : at + 4])
            if inst.format == "GLOBAL" and is_load_to_lds(inst):
                found.append(inst.fields["offset"])
    assert len(found) == 3 * 2 * 8 and not any(found)


# -- who has them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["gfx1030", "gfx1100", "gfx1201"])
def test_other_gpus_refuse_three_tiles_and_take_two(arch: str) -> None:
    target = amd_target(arch)
    sink = kernel((out(0, (64, 1, 64)), matmul(param(1, (64, 80)), param(2, (80, 64)))))
    why = f"pipeline r2 3: {arch} copies to shared memory through registers, 1 or 2 tiles"
    with pytest.raises(ScheduleError, match=why):
        compile_kernel(sink, target, schedule=FLOATS)
    assert compile_kernel(sink, target, schedule=FLOATS.replace("r2 3", "r2")).image


def test_lanes_of_gfx950_bring_sixteen_bytes() -> None:
    target = amd_target("gfx950")
    sink = narrow_product(64, 64, 640, dtypes.float16, turned="b")
    text = tiled(target, dtypes.float16, 3)
    narrow = written(amd_target("gfx942"), sink, tiled(amd_target("gfx942"), dtypes.float16, 3))
    assert 4 * copies(written(target, sink, text)) == copies(narrow)
    assert compile_kernel(sink, target, schedule=text).image


@by_gpu
def test_a_search_may_try_them_and_the_heuristic_does_not_choose_them(gpu: str) -> None:
    _, target = GPUS[gpu]
    sink = narrow_product(512, 512, 512, dtypes.float16, turned="b")
    lowered = lower(sink, target)
    chosen = codegen(target).choose(LoopNest(lowered), target).choice
    assert not re.search(r"pipeline \S+ [3-9]", chosen)
    moves = list(Moves(lowered, target).neighbours(chosen, random.Random(1)))
    deeper = [text for text in moves if re.search(r"pipeline \S+ [34](;|$)", text)]
    assert deeper
    assert all(compile_kernel(sink, target, schedule=text).choice == text for text in deeper)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_a_search_does_not_try_what_a_gpu_has_not(arch: str) -> None:
    target = amd_target(arch)
    lowered = lower(narrow_product(512, 512, 512, dtypes.float16), target)
    chosen = codegen(target).choose(LoopNest(lowered), target).choice
    moves = list(Moves(lowered, target).neighbours(chosen, random.Random(1)))
    assert any("pipeline" in text for text in moves)
    assert not any(re.search(r"pipeline \S+ [3-9]", text) for text in moves)
