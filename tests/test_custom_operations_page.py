"""The programs of the page on custom operations run as printed, and say what they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.page_programs import output, programs

PROGRAMS = programs("custom-operations.md")
SAXPY = "[11.5, 22.0, 32.5]"
SAYS = [*[SAXPY] * 8, "[8.0, 16.0, 24.0]", "[1.5]\n[3.5]\n[5.5]\n[7.5]", "CPU,CPU:1 [2.0, 4.0, 6.0, 8.0]"]


def test_every_program_of_the_page_is_run() -> None:
    assert len(PROGRAMS) == len(SAYS)


@pytest.mark.parametrize("number", range(len(SAYS)))
def test_a_program_of_the_page_says_what_it_should(number: int, tmp_path: Path) -> None:
    assert output(PROGRAMS[number], tmp_path) == SAYS[number]
