"""The page of the model is what the model says, and what it says of measured ladders is in their order."""

from __future__ import annotations

import pytest

from hcq.performance import datasheets
from hcq.tools.bench.model import count, page
from hcq.tools.bench.model.ladders import CASES, HELD_OUT, Case
from tests.hcq.emu.nv.shader.running import needs_nvrtc

ROWS = page.rows()
FIRST_GOAL = 0.8


def test_every_case_was_counted_and_says_where_it_was_measured() -> None:
    assert len(ROWS) == len(CASES) >= 160
    assert all(case.source and case.chip in datasheets.CHIPS for case in CASES)


def test_a_third_of_the_kernels_was_held_out() -> None:
    held = [case for case in CASES if case.is_held_out]
    assert {case.ladder for case in held} == set(HELD_OUT)
    assert len(held) >= len(CASES) / 3


@pytest.mark.parametrize("is_held_out", [False, True])
def test_four_of_five_predictions_are_within_a_half(is_held_out: bool) -> None:
    some = [row for row in ROWS if row.case.is_held_out is is_held_out]
    assert sum(row.off <= page.NEAR for row in some) >= FIRST_GOAL * len(some)


def test_nothing_that_was_held_out_is_far_off() -> None:
    assert all(row.off <= page.FAR for row in ROWS if row.case.is_held_out)


def test_what_is_far_off_is_explained() -> None:
    off = [(row.case.ladder, row.case.row) for row in ROWS if row.off > page.NEAR]
    assert set(off) == set(page.WHY)
    ranked = {name: page.order(ladder) for name, ladder in page.ladders(ROWS).items()}
    assert {name for name, one in ranked.items() if one is not None and one < page.GOOD_ORDER} == set(
        page.WHY_ORDER
    )


@pytest.mark.parametrize(
    "name",
    ["sgemm-a6000", "sgemm-7900xtx", "copy-width-h100", "histogram-h100", "mma-4090", "attention-a100"],
)
def test_ladders_that_were_measured_are_predicted_in_their_order(name: str) -> None:
    ranked = page.order(page.ladders(ROWS)[name])
    assert ranked is not None and ranked >= page.GOOD_ORDER


def test_the_page_is_what_the_model_says() -> None:
    assert (page.DOCS / "model.md").read_text() == page.page(ROWS)


QUICK = [
    case for case in CASES if case.ladder in ("azure-a100", "reduce-3050m") and case.row in ("copy", "add", "shuffle")
]  # fmt: skip


@needs_nvrtc
@pytest.mark.own_devices
@pytest.mark.parametrize("case", QUICK, ids=lambda case: f"{case.ladder} {case.row}")
def test_what_was_counted_is_what_an_emulated_gpu_counts(case: Case) -> None:
    made = count.on_device(count.arch_of(case), [case])[count.key_of(case)]
    kept = count.load()[count.key_of(case)]
    for name in (
        "instructions",
        "load_sectors",
        "store_sectors",
        "l1_clocks",
        "barriers",
        "shared_passes",
        "ops",
    ):
        assert getattr(made, name) == getattr(kept, name), name


def test_orders_that_agree_correlate_wholly() -> None:
    assert page.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert page.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == -1
    assert abs(page.rank_correlation([1, 2, 3, 4], [2, 4, 1, 3])) < 1
