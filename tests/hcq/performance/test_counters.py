"""HCQ_PROFILE=counters: what kernels did on emulated GPUs is said and traced, and hcq-trace predicts from it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from hcq.config import Config
from hcq.cpu.device import CpuDevice
from hcq.errors import UsageError
from hcq.performance import counters, datasheets, roofline
from hcq.performance.counters import Counters
from hcq.tools import hcq_trace
from hcq.tools.trace import stats
from hcq.trace.file import Trace

N = 4096
PROGRAM = f"""
import sys
import numpy as np
from hcq import Tensor
x = np.arange({N}, dtype=np.float32)
for _ in range(2):
    assert ((Tensor(x) + 1).numpy() == x + 1).all()
"""
CHIP_OF = {"nv:sm_90": "h100", "amd:gfx1100": "rx7900xtx"}


class Run(NamedTuple):
    word: str
    path: Path
    said: str


@pytest.fixture(scope="module", params=["nv:sm_90", pytest.param("amd:gfx1100", marks=pytest.mark.thorough)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """x + 1 of N floats, twice, on an emulated GPU that counts."""
    folder = tmp_path_factory.mktemp("counted")
    word = request.param
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    environ |= {
        "HCQ_EMULATE": word,
        "HCQ_DEVICE": word.partition(":")[0].upper(),
        "HCQ_PROFILE": "counters,1",
        "HCQ_TRACE": str(folder / "run.hcqtrace"),
        "HCQ_CACHE_DIR": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    return Run(word, folder / "run.hcqtrace", done.stderr)


def test_launches_are_counted_under_the_names_of_their_programs(run: Run) -> None:
    made = [one for _, one in Trace.read(str(run.path)).counters]
    assert [one.kernel for one in made] == ["add_4096"] * 2
    for one in made:
        assert (one.bytes_needed, one.flops) == (8 * N, {"f32": N})
        assert one.store_sectors * one.sector_bytes >= 4 * N
        assert one.arch == run.word.partition(":")[2]
    table = run.said.partition("what kernels did\n")[2].splitlines()
    assert [line.split()[-1] for line in table[1:2]] == ["add_4096"]
    assert table[1].split()[0] == "2"
    assert "time on the device" in run.said  # HCQ_PROFILE=1, too


def test_only_some_blocks_run_when_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.hcqtrace"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    environ |= {
        "HCQ_EMULATE": "nv:sm_90",
        "HCQ_DEVICE": "NV",
        "HCQ_PROFILE": "counters:3",
        "HCQ_TRACE": str(path),
    }
    program = (
        PROGRAM.replace("assert ", "")
        + "\nfrom hcq.performance import counters\nprint('sample', counters.sample())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    assert "sample 3" in done.stdout
    for _, one in Trace.read(str(path)).counters:
        assert (one.blocks, one.whole().blocks) == (3, one.grid[0])
        assert 0 < one.bytes_needed < 8 * N
        assert abs(one.whole().bytes_needed - 8 * N) < one.grid[0]


PRODUCT = """
import json, sys
import numpy as np
from hcq import Tensor
from hcq.performance import counters
x = np.ones((512, 512), np.float16)
found = []
for blocks in (0, 2):
    with counters.count(blocks) as launches:
        (Tensor(x) @ Tensor(x)).numpy()
    found += [one.whole().as_fields() | {"ran": one.blocks} for one in launches]
print(json.dumps(found))
"""


@pytest.mark.parametrize("word", ["nv:sm_80", pytest.param("amd:gfx942", marks=pytest.mark.thorough)])
def test_a_sample_of_a_product_says_what_all_of_it_does(word: str, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    environ |= {
        "HCQ_EMULATE": word,
        "HCQ_DEVICE": word.partition(":")[0].upper(),
        "HCQ_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", PRODUCT], env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    every, sample = json.loads(done.stdout)
    assert sample.pop("ran") < every.pop("ran")
    exact = (
        "instructions",
        "matrix_flops",
        "blocks",
        "bytes_needed",
        "shared_passes",
        "bank_conflicts",
        "barriers",
    )
    for name in exact:
        assert sample[name] == every[name], name
    # which blocks share a line depends on where they are, and how much all share is only looked at as they begin
    for name in ("load_sectors", "l2_bytes", "dram_read_bytes", "dram_write_bytes"):
        assert sample[name] == pytest.approx(every[name], rel=0.25), name


def test_a_listener_that_wants_all_blocks_gets_them() -> None:
    with counters.count(4):
        assert counters.sample() == 4
        with counters.count(7):
            assert counters.sample() == 7
            with counters.count():
                assert counters.sample() == 0
        assert counters.sample() == 4
    assert (counters.sample(), counters.is_wanted()) == (0, False)


def test_stats_has_columns_of_what_was_counted(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    trace = Trace.read(str(run.path))
    found = stats.collect(trace)
    row = next(one for one in found["work"] if one["name"] == "add_4096")
    total = Counters.from_fields(row["counters"])
    assert (total.launches, total.bytes_needed) == (2, 2 * 8 * N)
    assert hcq_trace.main(["stats", str(run.path)]) == 0
    said = capsys.readouterr().out
    assert "warp instr" in said
    assert f"{total.warp_instructions}" in said


def test_roofline_names_the_chip_that_was_emulated_and_shows_its_arithmetic(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hcq_trace.main(["roofline", str(run.path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["chip"] == CHIP_OF[run.word]
    assert found["bound_by"] == "DRAM"
    assert found["floor_seconds"] == max(one["seconds"] for one in found["bounds"])
    assert found["seconds"] >= found["floor_seconds"] + found["launch_seconds"] > found["floor_seconds"]
    for one in found["bounds"]:
        assert one["seconds"] == pytest.approx(one["work"] / one["rate"] / one["share"])
    assert hcq_trace.main(["roofline", str(run.path)]) == 0
    said = capsys.readouterr().out
    assert "<- bound" in said
    assert "A model" in said


def test_a_trace_without_counters_says_how_to_get_them(
    tmp_path: Path, llvm_object: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plain.hcqtrace"
    settings = dataclasses.replace(Config.read({"HCQ_THREADS": "1"}), trace=str(path))
    device = CpuDevice("CPU:plain", config=settings)
    device.queue().fill(device.alloc(16), 1).submit().wait()
    device.close()
    assert hcq_trace.main(["roofline", str(path)]) == 2
    assert "HCQ_PROFILE=counters" in capsys.readouterr().err


def test_a_device_that_counts_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    settings = dataclasses.replace(Config.read({"HCQ_THREADS": "1"}), counters=True)
    CpuDevice("CPU:counted", config=settings).close()
    assert "only emulated GPUs" in capsys.readouterr().err
    assert not counters.is_wanted()


def matmul(**changes: object) -> Counters:
    """A 4096 product of halves by tiles of 128 x 128 whose neighbours share what L1 has."""
    blocks, n = 32 * 32, 4096
    made = Counters(
        arch="sm_90", kernel="dot", grid=(blocks, 1, 1), block=(256, 1, 1), blocks=blocks, warps=8 * blocks,
        instructions={"matrix": 1 << 20, "integer": 1 << 20}, matrix_flops={"f16": 2 * n**3},
        load_sectors=2 * 32 * n * n * 2 // 32, bytes_needed=2 * 32 * n * n * 2, l2_bytes=16 * n * n * 2,
        dram_read_bytes=2 * n * n * 2, dram_write_bytes=2 * n * n, shared_passes=1 << 20,
    )  # fmt: skip
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_a_product_is_bound_by_matrix_units_and_takes_what_the_datasheet_says() -> None:
    found = roofline.predict(matmul(), datasheets.chip("h100"))
    assert found.bounds[0].what == "matrix f16"
    spread = 1024 / (132 * 8)
    assert found.floor_seconds == pytest.approx(2 * 4096**3 / 989.4e12 / spread)
    assert found.arithmetic == ("matrix f16", pytest.approx(spread))


@pytest.mark.parametrize(
    ("changes", "bound", "word"),
    [
        ({"shared_passes": 1 << 34, "bank_conflicts": 1 << 33}, "shared memory", "swizzle"),
        ({"matrix_flops": {}, "flops": {"f32": 1 << 37}}, "vector f32", "matrix units"),
        ({"instructions": {"integer": 1 << 40}}, "instruction issue", "32-bit indices"),
        ({"l2_bytes": 1 << 45, "load_sectors": 1 << 40}, "L2", "bytes for each one needed"),
        ({"dram_read_bytes": 1 << 45}, "DRAM", "fuse"),
        ({"blocks": 8}, "matrix f16", "of the units have work"),
        ({"occupancy": 0.125, "limited_by": "registers"}, "matrix f16", "for registers"),
        ({"branches": 100, "divergent_branches": 50}, "matrix f16", "part a warp"),
    ],
)
def test_what_bounds_a_kernel_decides_what_to_change(
    changes: dict[str, object], bound: str, word: str
) -> None:
    found = roofline.predict(matmul(**changes), datasheets.chip("h100"))
    assert found.bounds[0].what == bound
    assert any(word in note for note in found.notes), found.notes


def test_a_prediction_is_of_one_launch() -> None:
    one, many = matmul(), Counters(launches=0)
    for _ in range(5):
        many.add(one)
    chip = datasheets.chip("h100")
    assert roofline.predict(many, chip).seconds == pytest.approx(roofline.predict(one, chip).seconds)


@pytest.mark.parametrize("sample", [1, 64])
def test_a_sample_of_blocks_stands_for_the_whole_launch(sample: int) -> None:
    one = matmul(grid_blocks=1024)
    part = dataclasses.replace(
        Counters.from_fields({
            name: round(value * sample / 1024) if name in counters.SUMMED - {"launches", "grid_blocks"} else value
            for name, value in one.as_fields().items()
        }),
        instructions={name: count * sample // 1024 for name, count in one.instructions.items()},
        matrix_flops={name: count * sample // 1024 for name, count in one.matrix_flops.items()},
    )  # fmt: skip
    assert part.whole() == one
    found = roofline.predict(part, "h100")
    assert found.seconds == roofline.predict(one, "h100").seconds
    # fewer than the chip runs at once: what they would share is not known
    assert any(f"{sample} of 1024 blocks were counted" in note for note in found.notes)


def test_another_grid_does_in_each_block_what_was_counted() -> None:
    small = dataclasses.replace(matmul().whole((8, 8, 1)), grid_blocks=64)
    assert small.matrix_flops == {"f16": 2 * 4096**3 // 16}
    found = roofline.predict(small, "h100", grid=(32, 32, 1))
    assert found.counted.grid == (32, 32, 1)
    assert found.seconds == roofline.predict(matmul(), "h100").seconds


def test_a_prediction_shows_its_arithmetic() -> None:
    found = roofline.predict(matmul(shared_passes=1 << 24), "h100")
    text = found.summary()
    assert "137.4 GFLOP / 143.3 us = 959.4 TFLOP/s of 989.4 TFLOP/s = 97% of the peak of matrix f16" in text
    assert found.bounds[0].text() == "137.4 GFLOP / 989.4 TFLOP/s x 96.97% of the units = 143.3 us"
    assert "100.7 MB / 143.3 us = 702.7 GB/s of 3.35 TB/s = 21% of DRAM's rate" in text
    assert found.seconds_in_turn == pytest.approx(sum(one.seconds for one in found.bounds))
    assert found.share_in_turn == pytest.approx(2 * 4096**3 / 989.4e12 / found.seconds_in_turn)
    assert f"{found.share_in_turn:.0%} without overlap" in text
    assert "1024 blocks in all" in found.room()


@pytest.mark.parametrize("text", ["0", "4x", "1x2x3x4", "-1", "a"])
def test_a_grid_is_up_to_three_sizes(text: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert hcq_trace.main(["roofline", str(run.path), f"--grid={text}"]) == 2
    assert "32x32" in capsys.readouterr().err


def test_roofline_takes_a_grid(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    times = []
    for grid in ("10000", "100x200"):
        assert hcq_trace.main(["roofline", str(run.path), "--grid", grid, "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        times.append(found["floor_seconds"])
    assert times[1] == pytest.approx(2 * times[0], rel=1e-3)


def test_a_chip_of_another_vendor_or_none_is_refused() -> None:
    with pytest.raises(UsageError, match="counted on sm_90"):
        roofline.predict(matmul(), datasheets.chip("mi300x"))
    with pytest.raises(UsageError, match="rx7900xtx"):
        datasheets.chip("voodoo2")


def test_a_chip_without_a_matrix_unit_for_a_type_says_so() -> None:
    found = roofline.predict(matmul(matrix_flops={"f8": 1 << 40}), datasheets.chip("a100"))
    assert "no matrix unit for f8" in found.notes[0]


@pytest.mark.parametrize(
    ("chip", "registers", "shared", "threads", "share", "tight"),
    [
        ("a100", 32, 0, 256, 1.0, ""),
        ("a100", 64, 0, 256, 0.5, "registers"),
        ("a100", 255, 0, 256, 0.125, "registers"),
        ("a100", 32, 81 << 10, 256, 0.25, "shared memory"),
        ("a100", 32, 0, 32, 0.5, "blocks"),
        ("mi300x", 128, 0, 256, 0.5, "registers"),
        ("rx7900xtx", 96, 0, 128, 1.0, ""),
    ],
)
def test_occupancy_is_what_the_scarcest_resource_allows(
    chip: str, registers: int, shared: int, threads: int, share: float, tight: str
) -> None:
    sheet = datasheets.chip(chip)
    found = datasheets.occupancy(sheet, registers, shared, threads, sheet.warp_size)
    assert found[:2] == (share, tight)


PER_CLOCK = {
    "rx6900xt": {},  # has no matrix units
    "a100": {"f16": 2048, "tf32": 1024, "i8": 4096},
    "h100": {"f16": 4096, "tf32": 2048, "f8": 8192},
    "rtx4090": {"f16": 512, "tf32": 256, "f8": 1024, "i8": 2048},
    "mi300x": {"f16": 2048, "xf32": 1024, "f8": 4096, "f32": 256, "f64": 256},
    "mi355x": {"f16": 4096, "f8": 8192, "f4": 16384, "f32": 256, "f64": 128},
    "mi250": {"f16": 1024, "f32": 256, "f64": 256, "i8": 1024},
    "rx7900xtx": {"f16": 512, "i8": 512, "i4": 1024},
    "rx9070xt": {"f16": 1024, "f8": 2048, "i4": 4096},
    "b200": {"f16": 8192, "f8": 16384},
    "rtx3090": {"f16": 512, "i8": 2048},
    "rtx3050m": {"f16": 512, "i8": 2048},
    "a6000": {"f16": 1024, "i8": 2048},
    "a40": {"f16": 1024, "i8": 2048},
    "rtx5090": {"f16": 512, "f8": 1024, "i8": 2048},
    "m1": {"f16": 256},
    "m2": {"f16": 256},
    "m3": {"f16": 256},
    "m4": {"f16": 256},
}


@pytest.mark.parametrize("name", datasheets.CHIPS)
def test_peaks_are_what_a_unit_multiplies_in_a_clock_times_units_and_clock(name: str) -> None:
    sheet = datasheets.chip(name)
    first = datasheets.for_arch(sheet.arch)
    assert first is not None
    for kind, operations in (PER_CLOCK.get(name) or PER_CLOCK[first.name]).items():
        peak = operations * sheet.units * sheet.clock_hz
        assert sheet.matrix_flops[kind] == pytest.approx(peak, rel=0.005), kind


@pytest.mark.parametrize("name", datasheets.CHIPS)
def test_every_datasheet_says_where_its_figures_come_from(name: str) -> None:
    sheet = datasheets.chip(name)
    assert sheet.source
    first = datasheets.for_arch(sheet.arch)
    assert first is not None and first.arch == sheet.arch
    assert all(rate > 0 for rate in (*sheet.vector_flops.values(), *sheet.matrix_flops.values()))


def test_every_emulated_gpu_can_count() -> None:
    from hcq.emu.amd.spec import CHIPS as AMD
    from hcq.emu.nv.spec import CHIPS as NV

    assert all(datasheets.for_arch(arch) is not None for arch in (*AMD, *NV))
    own = {chip.arch for chip in datasheets.CHIPS.values()}
    assert {"gfx90a", "gfx942", "gfx1100", "gfx1201", "sm_80", "sm_89", "sm_90"} <= own
