"""docs/emulated-kernel.md agrees with the code: rules have tests, calls name the kernel function that checks them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/emulated-kernel.md").read_text(encoding="utf-8")
# heading -> where its tables look for what they name, and the file of tests that no other file is named for
HOMES = {"AMD": ("amd", "tests/hcq/amd/test_hardware_rules.py"), "NVIDIA": ("nv", "")}
RULE_CELLS = 4
FUNCTION = re.compile(r"\b(?:[a-z]\w*_\w+|[a-z]+[A-Z]\w+|[A-Z][a-z]\w*[A-Z]\w*)\b")


def rules(heading: str) -> Iterator[list[str]]:
    """The rows of rule, evidence, place and test below a heading of the second level."""
    text = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and not line.startswith("| ---") and len(cells) == RULE_CELLS:
            if cells[0] != "rule":
                yield cells


def found(name: str, home: str) -> Path:
    """A file that a row names: below the repository, or below the folder of the vendor's emulation or its tests."""
    places = [
        ROOT / name,
        *(ROOT / top / sub / name for top in ("hcq", "tests/hcq") for sub in (f"emu/{home}",)),
    ]
    return next((place for place in places if place.is_file()), ROOT / name)


ROWS = [(heading, row) for heading in HOMES for row in rules(heading)]


@pytest.mark.parametrize(("heading", "row"), ROWS, ids=[row[0][:60] for _, row in ROWS])
def test_a_rule_names_its_evidence_the_code_that_holds_it_and_tests_that_there_are(
    heading: str, row: list[str]
) -> None:
    home, usual = HOMES[heading]
    _, evidence, code, tests = row
    assert evidence
    named = re.findall(r"`([^`]+)`", code)
    assert named and [one for one in named if not found(one, home).is_file()] == []
    file, is_tested = usual, False
    for one in re.findall(r"`([^`]+)`", tests):
        if one.endswith(".py"):
            file = one
            assert found(file, home).is_file(), file
        else:
            text = found(file, home).read_text(encoding="utf-8")
            assert re.search(rf"def test_\w*{re.escape(one)}", text), f"{one} is no test of {file}"
        is_tested = True
    assert is_tested


def test_the_page_has_rules_of_both_vendors() -> None:
    assert {heading for heading, _ in ROWS} == set(HOMES)
    assert all(sum(heading == one for one, _ in ROWS) > 10 for heading in HOMES)


def declarations(path: Path, begins: str) -> Iterator[tuple[str, str]]:
    """Each line that begins so, and the comment above it."""
    comment = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("#"):
            comment += line
            continue
        if match := re.match(begins, line):
            yield match[1], comment
        comment = ""


CALLS = [
    ("hcq/amd/abi/kfd.py", r"([A-Z_]+) = Ioctl\("),
    ("hcq/amd/abi/drm.py", r"([A-Z_]+_REQUEST) = "),
    ("hcq/nv/abi/ioctls.py", r"([A-Z_]+) = (?:_escape|Ioctl)\("),
    ("hcq/nv/abi/ioctls.py", r"    ControlId\.(\w+): \""),
    ("hcq/nv/abi/ioctls.py", r"    ClassId\.(\w+): \""),
]


@pytest.mark.parametrize(("path", "begins"), CALLS)
def test_every_call_control_and_class_says_which_kernel_function_checks_it(path: str, begins: str) -> None:
    made = list(declarations(ROOT / path, begins))
    assert made
    assert [name for name, comment in made if not FUNCTION.search(comment)] == []
