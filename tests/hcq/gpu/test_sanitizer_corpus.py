"""Each kernel of the corpus with a planted fault gives its rule, and its right twin gives nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcq import backends
from hcq.config import Config
from hcq.emu.machine import kernels_for
from hcq.emu.port import EmulatedPort
from hcq.errors import DeviceFault
from hcq.observe.sanitizer import Sanitizer
from tests.hcq.gpu.sanitizer_corpus import ROWS
from tests.hcq.gpu.sanitizer_corpus.languages import LANGUAGES, Language
from tests.hcq.gpu.sanitizer_corpus.row import Row

pytestmark = pytest.mark.own_devices
CASES = [(row, word) for row in ROWS for word in row.only or LANGUAGES[row.language].machines]
ORDERED = [case for case in CASES if "metal" not in case[1]]
Open = Callable[[str, str], Any]
HIDDEN = {
    "a histogram is counted before it is zeroed": "hip",  # some orders of AMD's waves have an atomic between
    "a named barrier that counts half of its warps": "whole cuda",  # in some those meet that read from each other
}
KIN = {
    "shared-race": ["lane-race", "async-copy-not-waited"],
    "global-race": ["lane-race"],
}  # what it may break, too


@pytest.fixture(scope="module")
def open_for() -> Iterator[Open]:
    """open_for("nv:sm_90", "race"): an emulated GPU that looks for this alone, one for all rows."""
    opened: dict[tuple[str, str], Any] = {}

    def one(machine: str, word: str) -> Any:
        if (machine, word) not in opened or opened[machine, word].dead:
            kind = machine.partition(":")[0].upper()
            settings = Config.read(
                {**os.environ, "HCQ_SANITIZE": word, "HCQ_VALIDATE": "0", "HCQ_REPORT": "off"}
            )
            port = (
                backends.emulated_port([machine]) if kind == "METAL" else EmulatedPort(kernels_for([machine]))
            )
            opened[machine, word] = backends.load(backends.of(kind).device)(kind, port, settings)
        return opened[machine, word]

    yield one
    for device in opened.values():
        device.close()


def rules(gpu: Any, language: Language, row: Row, text: str) -> set[str]:
    """The rules that a kernel breaks."""
    before = len(Sanitizer.findings)
    image = language.image(text, gpu.arch)
    kinds = ("buffer",) * len(row.buffers) + ("int",) * len(row.numbers)
    kernel = gpu.load(image, language.entry, args=kinds)
    buffers = []
    for number, size in enumerate(row.buffers):
        buffers.append(gpu.alloc(size, "buffer"))
        if number not in row.fresh:
            buffers[-1].write(bytes(size))
    try:
        gpu.run(kernel, [*buffers, *row.numbers], grid=(row.grid, 1, 1), block=(row.block, 1, 1))
    except DeviceFault:  # the rule says why, too
        if len(Sanitizer.findings) == before:
            raise
    return {finding.rule for finding in Sanitizer.findings[before:]}


def _called(one: Row | str) -> str:
    return f"{one.word}, {one.language}, {one.name}" if isinstance(one, Row) else one


@pytest.mark.parametrize(("row", "machine"), CASES, ids=_called)
@pytest.mark.sampled(60)
def test_a_planted_fault_gives_its_rule_and_the_right_twin_gives_nothing(
    row: Row, machine: str, open_for: Open
) -> None:
    gpu, language = open_for(machine, row.word), LANGUAGES[row.language]
    assert rules(gpu, language, row, row.right) == set()
    assert row.rule in (found := rules(gpu, language, row, row.wrong)) and found <= {
        row.rule,
        *KIN.get(row.rule, ()),
    }


@pytest.mark.parametrize(("row", "machine"), ORDERED, ids=_called)
@pytest.mark.sampled(12)
def test_so_it_is_in_another_order(row: Row, machine: str, open_for: Open) -> None:
    gpu, language = open_for(f"{machine}:seed=5", row.word), LANGUAGES[row.language]
    assert rules(gpu, language, row, row.right) == set()
    if HIDDEN.get(row.name) == row.language:
        return
    assert row.rule in (found := rules(gpu, language, row, row.wrong)) and found <= {
        row.rule,
        *KIN.get(row.rule, ()),
    }


@pytest.mark.parametrize("row", [row for row in ROWS if HIDDEN.get(row.name) == row.language], ids=_called)
def test_a_race_that_some_orders_hide_is_found_among_twenty(row: Row, open_for: Open) -> None:
    found = set()
    for seed in range(1, 21):
        language = LANGUAGES[row.language]
        gpu = open_for(f"{language.machines[0]}:seed={seed}", row.word)
        found |= rules(gpu, language, row, row.wrong)
        if found:
            break
    assert found == {row.rule}


def test_every_row_has_a_name_of_its_own_and_two_kernels() -> None:
    assert all(row.wrong != row.right for row in ROWS)
    assert max(Counter((row.name, row.language, row.word) for row in ROWS).values()) == 1
    assert len(ROWS) >= 120


def test_the_warps_of_a_warpgroup_find_each_other_in_any_order(open_for: Open) -> None:
    row = next(row for row in ROWS if "wgmma" in row.text)
    for seed in range(8, 13):  # some of these keep three and more paths apart that come to one product
        found = rules(open_for(f"nv:sm_90:seed={seed}", row.word), LANGUAGES[row.language], row, row.wrong)
        assert row.rule in found
