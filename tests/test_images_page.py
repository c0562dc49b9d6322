"""The programs of the page on images run as printed, with each compiler that is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.page_programs import output, programs

PROGRAMS = programs("where-an-image-comes-from.md")


def test_every_compiler_has_a_program() -> None:
    assert [one.tool for one in PROGRAMS] == ["", "", "cc", "nvrtc", "nvcc", "comgr", "hipcc", "triton", ""]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_doubles_four_numbers(number: int, tmp_path: Path) -> None:
    assert output(PROGRAMS[number], tmp_path) == "[0.0, 2.0, 4.0, 6.0]"
