"""The programs of the page on a race print what stands below them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.page_programs import ROOT, output, programs

PAGE = "race-found.md"
PROGRAMS = programs(PAGE)
PRINTED = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / PAGE).read_text(encoding="utf-8"), re.DOTALL)


def test_each_program_has_what_it_prints() -> None:
    assert len(PROGRAMS) == len(PRINTED) == 4


@pytest.mark.parametrize("number", range(3))
def test_a_program_of_the_page_prints_what_stands_below_it(number: int, tmp_path: Path) -> None:
    wanted = PRINTED[number].strip()
    made = output(PROGRAMS[number], tmp_path).replace(str(tmp_path), "FOLDER")
    # names of registers and lines of the PTX are nvrtc's, and differ from release to release
    plain = re.compile(r"'\w[^']*'|in line \d+")
    assert plain.sub("", made) == plain.sub("", wanted)


def test_the_race_that_hides_is_found_by_some_seeds_and_not_in_the_usual_order(tmp_path: Path) -> None:
    made, wanted = output(PROGRAMS[3], tmp_path).splitlines(), PRINTED[3].splitlines()
    assert [line.split()[0] for line in made] == [line.split()[0] for line in wanted]
    assert (
        made[0] == wanted[0] == "nv:sm_90 []"
    )  # which seeds find it is nvrtc's, too: blocks of instructions part
    assert {line.split()[1] for line in made[1:]} == {line.split()[1] for line in wanted[1:]}
