"""What the documents say is true: links lead somewhere, tables agree with the code, files named exist."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from hcq import config

ROOT = Path(__file__).parent.parent


def pages() -> Iterator[Path]:
    """Our pages: folders of packages, builds and tools are not walked, as they have a hundred times our files."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", "node_modules") and name[0] != "."]
        yield from (Path(folder, name) for name in files if name.endswith(".md") and name[0] != ".")


PAGES = sorted(pages())
ROOT_FOLDERS = ("hcq", "ir", "compiler", "frontend", "tools", "tests", "docs", "examples", "kernels_golden")
NAMED_FILE = re.compile(rf"`((?:{'|'.join(ROOT_FOLDERS)})/[\w./-]*\.(?:py|md|toml))`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_between_our_pages_leads_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_a_page_names_exists(page: Path) -> None:
    named = NAMED_FILE.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_the_page_of_switches_lists_exactly_the_switches() -> None:
    text = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(HCQ_\w+)` \|", text, re.MULTILINE) == [*config.SWITCHES]


def test_the_page_of_switches_lists_every_word_of_debug() -> None:
    text = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| `HCQ_DEBUG`")]
    assert [word for word in config.DEBUG_WORDS if f"`{word}`" not in line] == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reads pyproject.toml with tomllib")
def test_every_dependency_says_what_it_saves() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[<>=\[ ;]", requirement)[0] for requirement in declared} - {"hcq"}  # an extra of ours
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert sorted(package for package in names if f"`{package}`" not in text) == []


def test_every_page_is_found_by_its_reader() -> None:
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")} - {
        "README.md"
    }
    pages |= {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*/README.md")}
    assert sorted(page for page in pages if f"({page})" not in listed) == []


def test_every_decision_is_in_the_list() -> None:
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    notes = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("0*.md"))
    assert re.findall(r"\]\((0\d+-[\w-]+\.md)\)", listed) == notes


def test_every_room_is_on_the_map() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.parent.relative_to(ROOT) for path in (ROOT / "hcq").glob("*/*.py")}
    rooms |= {Path(name) for name in ("ir", "compiler", "frontend", "tools")}
    missing = [str(room) for room in sorted(rooms) if f"{room}/" not in text]
    assert missing == [], "say in docs/architecture.md what these folders are for"


def test_every_file_named_on_the_map_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:hcq|ir|compiler|frontend|tools|kernels_golden)/[\w./]*)`", text)
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_file_says_in_its_first_line_what_it_is() -> None:
    text = (ROOT / "docs" / "modules.md").read_text(encoding="utf-8")
    assert re.findall(r"^- `\S+` *$", text, re.MULTILINE) == []
