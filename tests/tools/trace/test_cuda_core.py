"""CUDA coredumps: what stopped, where all warps were, and files that are cut or damaged."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from hcq.tools.trace import readers
from hcq.tools.trace.color import Color
from hcq.tools.trace.cuda import core, core_file, tables
from tests.tools.trace.conftest import Done
from tests.tools.trace.cuda_cores import ENTRY, NUMBERS
from tests.tools.trace.cuda_cores import core as made


@pytest.mark.parametrize("is_old", [False, True])
def test_a_coredump_names_the_thread_that_stopped_and_what_that_means(is_old: bool) -> None:
    found = core.read(made(is_old=is_old))
    (stop,) = found.stops
    assert (stop.exception, stop.kernel, stop.warps, stop.sms) == (14, "saxpy", 1, [7])
    assert (stop.pc, stop.error_pc) == (ENTRY + 0x200, ENTRY + 0x130)
    assert stop.first["thread"] == (37, 0, 0) and stop.first["block"] == (1, 0, 0) and stop.first["lane"] == 5
    shown = "\n".join(core.lines(found, Color(False)))
    assert "CUDA_EXCEPTION_14, Warp Illegal Address: 1 warp of saxpy on SM 7" in shown
    assert "saxpy+0x130" in shown and "is not mapped" in shown
    assert found.notes == []


def test_the_machine_and_the_grids_are_named() -> None:
    found = core.read(made())
    assert found.devices[0]["devName"] == "NVIDIA H100" and found.devices[0]["smType"] == "sm_90"
    assert found.grids[0]["kernel"] == "saxpy" and found.grids[0]["blockDimX"] == 64
    assert found.meta["driver"] == "575.51" and found.meta["made"].startswith("2026-03-07")
    assert "clusterDimX" in found.grids[0] and "clusterDimX" not in core.read(made(is_old=True)).grids[0]


def test_warps_that_are_alike_are_one_group() -> None:
    found = core.read(made(exception=0, warps=6))
    (group,) = found.groups
    assert (group.warps, group.sms) == (12, [3, 7]) and found.stops == []
    assert "no exception is recorded" in next(
        line for line in core.lines(found, Color(False)) if "exception" in line
    )


def test_an_exception_that_only_the_sm_keeps_is_told() -> None:
    content = bytearray(made(exception=0))
    section = core_file.CoreFile(bytes(content)).of("SMs")[0]
    content[section.at + 8 : section.at + 12] = (10).to_bytes(4, "little")
    (stop,) = core.read(bytes(content)).stops
    assert (stop.exception, stop.warps, stop.sms) == (10, 0, [3])


def test_sections_that_are_not_known_are_listed_with_their_sizes() -> None:
    found = core.read(made(more=((".cudbg.future", 0x80000063, bytes(40)),)))
    shown = "\n".join(core.lines(found, Color(False)))
    assert "not known: section" in shown and "'.cudbg.future', type 0x80000063, 40 bytes" in shown
    assert "6 of registers (960 bytes)" in shown


@pytest.mark.parametrize("number", [1, 14, 19, 35, 77])
def test_every_exception_is_in_words_or_said_to_be_unknown(number: int) -> None:
    words = tables.exception(number)
    assert words.meaning or "does not know" in words.title
    assert tables.exception_titled(words.title) == (number if words.meaning else None)


def test_decode_reads_a_coredump_packed_or_not(trace: Callable[..., Done], tmp_path: Path) -> None:
    path = tmp_path / "core_1.nvcudmp"
    for content in (made(), gzip.compress(made())):
        path.write_bytes(content)
        assert "CUDA_EXCEPTION_14" in trace("decode", path).out
        data = json.loads(trace("decode", path, "--json").out)
        assert data["stops"][0]["exception_name"] == "Warp Illegal Address"
        assert {one["kind"] for one in data["sections"]} >= set(NUMBERS) - {"shared memory"}


def test_a_file_that_is_cut_says_what_is_missing() -> None:
    whole = made()
    for end in (16, 40, 64, len(whole) // 2, len(whole) - 65):
        found = core.read(whole[:end])
        assert found.notes
        assert list(core.lines(found, Color(False)))


@pytest.mark.parametrize("seed", range(150))
def test_a_damaged_coredump_is_told_within_bounds_and_never_raises(seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(made(is_old=bool(seed % 2), warps=2))
    sections = int.from_bytes(content[40:48], "little")
    for _ in range(rng.randrange(1, 40)):
        at = rng.choice(
            (rng.randrange(20, 64), rng.randrange(64, len(content)), rng.randrange(sections, len(content)))
        )
        content[at] = rng.choice((0, 0xFF, rng.randrange(256), content[at] ^ 1 << rng.randrange(8)))
    if seed % 5 == 0:
        del content[rng.randrange(64, len(content)) :]
    found = core.read(bytes(content))
    shown = list(core.lines(found, Color(False)))
    assert sum(map(len, shown)) < 200_000
    assert not any(ord(char) < 32 and char != "\t" for line in shown for char in line)
    json.loads(json.dumps(core.as_json(found)))


def test_counts_of_a_damaged_header_cost_no_memory() -> None:
    content = bytearray(made())
    content[60:62] = b"\0\0"  # the number of sections is in the first of them
    start = int.from_bytes(content[40:48], "little")
    content[start + 32 : start + 40] = b"\xff" * 8
    tracemalloc.start()
    found = core.read(bytes(content))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20 and any("are not in the file" in note for note in found.notes)


def test_other_elf_files_are_left_to_others() -> None:
    content = bytearray(made())
    content[18] = 224
    assert not core_file.is_core(bytes(content))
    assert readers.find(made(), readers.Wanted()) is not None
