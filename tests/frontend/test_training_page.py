"""docs/training.md: what its examples print is what they print here."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "training.md"


def test_every_example_of_the_training_page_prints_what_the_page_says():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 30
    assert failed == 0
