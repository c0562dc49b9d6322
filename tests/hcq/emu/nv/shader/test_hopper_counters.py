"""Counts of Hopper's instructions: products of warpgroups, tiles, bulk copies and mbarriers, by closed formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq.emu.nv.shader.counters import class_of
from hcq.emu.nv.shader.parser import parse
from hcq.emu.shader.traffic import Tally
from hcq.nv.abi.tensor_map import ElementType, Swizzle
from hcq.nv.tensor_map import tiled
from hcq.performance.counters import Counters
from tests.hcq.emu.nv.shader import test_bulk_ops as bulk
from tests.hcq.emu.nv.shader import test_swizzled_products as swizzled
from tests.hcq.emu.nv.shader import test_tensor_map_ops as tiles
from tests.hcq.emu.nv.shader import test_warpgroup_ops as warpgroup
from tests.hcq.emu.nv.shader.running import Launch

LINE_BYTES, SECTOR_BYTES = 128, 32
DEPTH_BYTES = 32  # of each row, by a product of a warpgroup
INIT = "mbarrier.init.shared::cta.b64 [%m], 1;"


def count(text: str, threads: int, *args: Any, grid: int = 1, launch: Launch | None = None) -> Counters:
    launch = launch or Launch()
    tally = Tally("sm_90", 0, "k", (grid, 1, 1), (threads, 1, 1), 32, 32, 0, 0)
    launch.run(launch.load(text, "k", counts=True), grid, threads, *args, tally=tally)
    assert not tally.record.uncounted
    return tally.record


# ------------------------------------------------------------ products


def product(shape: str, types: str, a_registers: bool, grid: int = 1, warps: int = 4) -> Counters:
    """One wgmma of each warpgroup, B and perhaps A in shared memory, swizzled."""
    columns = int(shape.replace("k", "n").split("n")[1])
    kind = types.split(".")[1]
    a, b = warpgroup.Layout(64, kind, "k", "128B"), warpgroup.Layout(columns, kind, "k", "128B")
    flags = "%one, 1, 1, 0" if a_registers else "%one, 1, 1, 0, 0"
    if kind in ("e4m3", "tf32"):
        flags = "%one, 1, 1"
    text = warpgroup.kernel(
        shape, types, a.size_bytes, b.size_bytes, a.descriptor, b.descriptor, columns // 2, flags, a_registers
    )
    data = [np.zeros(max(one.size_bytes, 2048 * warps), np.uint8) for one in (a, b)]
    return count(text, 32 * warps, *data, np.zeros((32 * warps, columns // 2), np.float32), grid=grid)


@pytest.mark.parametrize(
    ("shape", "types", "name"),
    [
        ("m64n128k16", "f32.f16.f16", "f16"),
        ("m64n256k16", "f32.bf16.bf16", "bf16"),
        ("m64n8k8", "f32.tf32.tf32", "tf32"),
        ("m64n64k32", "f32.e4m3.e4m3", "f8"),
    ],
)
def test_a_product_of_a_warpgroup_is_two_operations_for_each_of_m_n_k(
    shape: str, types: str, name: str
) -> None:
    n, k = (int(part) for part in shape.replace("k", "n").split("n")[1:])
    found = product(shape, types, a_registers=False, grid=2)
    assert found.matrix_flops == {name: 2 * 2 * 64 * n * k}
    # an instruction for each warp of the group; fences and waits are none of the matrix units
    assert found.instructions["matrix"] == 2 * 4
    assert found.instructions["wait"] == 2 * 4 * 4


def test_two_warpgroups_count_twice() -> None:
    found = product("m64n128k16", "f32.f16.f16", a_registers=False, warps=8)
    assert found.matrix_flops == {"f16": 2 * 2 * 64 * 128 * 16}


@pytest.mark.parametrize("a_registers", [False, True])
@pytest.mark.parametrize("n", [8, 128])
def test_a_product_reads_the_matrices_in_shared_memory_once_for_a_warpgroup(
    n: int, a_registers: bool
) -> None:
    one, two = (product(f"m64n{n}k16", "f32.f16.f16", a_registers, grid=grid) for grid in (1, 2))
    rows = n + (0 if a_registers else 64)
    written = sum(
        layout.size_bytes
        for layout in (warpgroup.Layout(64, "f16", "k", "128B"), warpgroup.Layout(n, "f16", "k", "128B"))
    )
    written -= a_registers * warpgroup.Layout(64, "f16", "k", "128B").size_bytes
    assert one.shared_passes == (written + rows * DEPTH_BYTES) // LINE_BYTES
    assert two.shared_passes == 2 * one.shared_passes
    assert one.bank_conflicts == 0


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("swizzle", list(swizzled.SPANS))
def test_tiles_with_a_swizzle_come_and_are_read_without_conflicts(swizzle: Swizzle, turned: bool) -> None:
    launch, span = Launch(), swizzled.SPANS[swizzle]
    if turned:
        whole, box = np.zeros((16, 64), np.float16), (span // 2, 16)
        boxes = [(x, 0) for x in range(0, 64, span // 2)]
    else:
        whole, box, boxes = np.zeros((64, span // 2), np.float16), (span // 2, 64), [(0, 0)]
    box_bytes = 2 * box[0] * box[1]
    leading = box_bytes if turned else 16
    descriptor = leading >> 4 << 16 | 8 * span >> 4 << 32 | swizzled.NUMBERS[swizzle] << 62
    va = launch.buffer(whole)
    tensor_map = tiled(va, ElementType.F16, whole.shape[::-1], (2 * whole.shape[1],), box, swizzle=swizzle)
    text = swizzled.kernel(boxes, box_bytes, descriptor, turned)
    found = count(text, 128, tensor_map, np.zeros((128, 32), np.float32), launch=launch)
    assert found.matrix_flops == {"f16": 2 * 64 * 64 * 16}
    # the tile is written once; as A and as B it is read once each
    assert found.shared_passes == (whole.nbytes + 2 * 64 * DEPTH_BYTES) // LINE_BYTES
    assert found.bank_conflicts == 0
    assert found.load_sectors == whole.nbytes // SECTOR_BYTES
    assert found.dram_read_bytes == whole.nbytes
    assert found.instructions["global load"] == len(boxes)
    # bar.sync and one wait for the tile, of four warps
    assert found.barriers == 2 * 4


# ------------------------------------------------------------ copies


def test_a_tile_counts_what_of_it_is_inside_the_tensor() -> None:
    tensor = tiles.Tensor(ElementType.F32, (10, 24))
    box, place = (8, 16), (4, 16)  # 6 rows and 8 columns of it are inside
    size_bytes = 8 * 16 * 4
    text = tiles.kernel(tiles.loading(place[::-1], size_bytes), size_bytes)
    out = np.zeros(box, np.float32)
    found = count(text, 32, tensor.map(box), out, launch=tensor.launch)
    assert found.bytes_needed == 6 * 8 * 4 + out.nbytes
    starts = [row * tensor.whole.strides[0] + 16 * 4 for row in range(4, 10)]
    assert found.load_sectors == sum((at + 31) // SECTOR_BYTES - at // SECTOR_BYTES + 1 for at in starts)
    # filled before, brought as a whole, read again
    assert found.shared_passes == 3 * size_bytes // LINE_BYTES
    assert found.bank_conflicts == 0


def test_bulk_copies_count_sectors_lines_and_what_they_are() -> None:
    a, b = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    lines = f"{INIT} {bulk.TELL} {bulk.LOAD} {bulk.WAIT} {bulk.STORE} {bulk.DONE}"
    found = count(f"{bulk.HEAD} {lines} ret; }}", 1, a, b)
    assert (a == b).all()
    assert found.load_sectors == found.store_sectors == a.nbytes // SECTOR_BYTES
    assert found.bytes_needed == found.l2_bytes == found.dram_bytes == 2 * a.nbytes
    assert found.shared_passes == 2 * a.nbytes // LINE_BYTES
    assert found.barriers == 1  # one wait, however often it looked


def test_data_of_a_bulk_copy_pass_the_path_of_l1_once() -> None:
    """As they are stored to shared memory: those passes are what the unit works."""
    lines = f"{INIT} {bulk.TELL} {bulk.LOAD} {bulk.WAIT}"
    found = count(f"{bulk.HEAD} {lines} ret; }}", 1, np.zeros(64, np.uint32), np.zeros(64, np.uint32))
    assert found.shared_passes > 0
    assert found.l1_clocks == 0


def test_a_bulk_reduction_counts_as_atomics() -> None:
    a, b = np.arange(64, dtype=np.uint32), np.ones(64, np.uint32)
    add = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%b], [%t], 256;"
    found = count(
        f"{bulk.HEAD} {INIT} {bulk.TELL} {bulk.LOAD} {bulk.WAIT} {add} {bulk.DONE} ret; }}", 1, a, b
    )
    assert (found.load_sectors, found.store_sectors, found.atomic_sectors) == (8, 0, 8)


def test_bytes_that_stay_in_shared_memory_are_read_and_written_there() -> None:
    move = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%t], [%t+256], 256, [%m];"
    found = count(f"{bulk.HEAD} {INIT} {bulk.TELL} {move} {bulk.WAIT} ret; }}", 1, np.zeros(64), np.zeros(64))
    assert (found.sectors, found.shared_passes) == (0, 4)


def test_an_mbarrier_is_a_barrier_for_every_warp_that_passes_it() -> None:
    lines = f"""@%first mbarrier.init.shared::cta.b64 [%m], 96; bar.sync 0;
    mbarrier.arrive.shared::cta.b64 %v, [%m]; {bulk.WAIT}"""
    found = count(f"{bulk.HEAD} {lines} ret; }}", 96, np.zeros(64), np.zeros(64), grid=2)
    assert found.barriers == 2 * 3 * 2  # two blocks of three warps: bar.sync, and the wait


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r], [%m, {%r, %r}], [%r];",
         "global load"),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%m, {%r}], [%r];", "global store"),
        ("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group [%m, {%r}], [%r];", "global atomic"),
        ("cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%m, {%r}];", "wait"),
        ("cp.async.bulk.commit_group;", "wait"),
        ("cp.async.bulk.wait_group.read 1;", "wait"),
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r];", "barrier"),
        ("cp.async.cg.shared.global [%r], [%m], 16;", "global load"),
        ("mbarrier.try_wait.parity.shared::cta.b64 %p, [%r], 0;", "barrier"),
        ("wgmma.wait_group.sync.aligned 0;", "wait"),
        ("setmaxnreg.inc.sync.aligned.u32 240;", "wait"),
        ("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r], 1;", "shared store"),
    ],
)  # fmt: skip
def test_each_instruction_has_the_class_of_what_it_needs(text: str, expected: str) -> None:
    module = parse(
        f"{warpgroup.HEADER} .entry k() {{ .reg .b32 %r; .reg .b64 %m; .reg .pred %p; {text} ret; }}"
    )
    assert class_of(module.functions["k"].body[0]) == expected
