"""Generated pages: the documentation says what the source says."""

from __future__ import annotations

from pathlib import Path

import pytest

from hcq import backends
from hcq.cpu import packets
from hcq.rules.examine import all_rules
from hcq.tools import packet_pages, pages, rule_pages, upward_page

WANTED, GONE = pages.survey()


@pytest.mark.parametrize("name", WANTED)
def test_every_page_is_what_the_source_says(name: str) -> None:
    assert pages.read(pages.DOCS / name) == WANTED[name], "the page is old: run make docs"


def test_every_layout_and_every_ioctl_of_every_kind_is_on_its_page() -> None:
    for backend in backends.every():
        text = packet_pages.backend_page(backend)
        for layout in backend.packets():
            assert not layout.fields or f"### {layout.__name__}\n" in text
        for call in backend.calls().values():
            assert f"| {call.name} |" in text


def test_no_page_is_left_over() -> None:
    assert not GONE


def test_check_names_old_pages_and_a_run_writes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pages.main(["--check"], tmp_path) == 1
    assert "docs/packets/cpu.md is not what the source says: run make docs" in capsys.readouterr().out
    (tmp_path / "packets").mkdir()
    (tmp_path / "packets" / "gone.md").write_text("old")
    assert pages.main([], tmp_path) == 0
    assert not (tmp_path / "packets" / "gone.md").exists()
    assert pages.main(["--check"], tmp_path) == 0
    assert packets.Dispatch.table() in (tmp_path / "packets" / "cpu.md").read_text()
    for part in pages.PARTS:  # those that share a page, too
        assert f"<!-- end of {part.mark} -->" in (tmp_path / part.page).read_text()


def test_a_rules_page_keeps_its_prose_and_a_rule_without_one_gets_a_page_to_fill_in(tmp_path: Path) -> None:
    rule = all_rules()["read-unwritten"]
    made = rule_pages.rule_page(rule, tmp_path)
    assert made.startswith(f"# read-unwritten\n\n{rule.title}\n\nLevel: warning.")
    assert made.count("\n## ") == 4
    (tmp_path / "read-unwritten.md").write_text("# an old title\n\n## What it means\n\nProse.\n")
    assert rule_pages.rule_page(rule, tmp_path).endswith("goes on.\n\n## What it means\n\nProse.\n")


def test_the_index_lists_every_rule_once() -> None:
    rows = [line for line in rule_pages.tables() if line.startswith("| [")]
    assert sorted(row[3 : row.index("]")] for row in rows) == sorted(all_rules())


def test_architecture_lists_what_the_laws_of_imports_let_hcq_name_above_it(tmp_path: Path) -> None:
    (tmp_path / "ir").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        "[tool.importlinter]\nnamed = [\n"
        '    "hcq -> hcq.frontend.tensor hcq.ir hcq.errors: names",\n'
        '    "hcq.lifetime.opening -> hcq.cpu: of its own floor",\n'
        '    "hcq.frontend.late -> hcq.frontend.ops.*: above",\n'
        '    "hcq.*.backend -> hcq.tools.shown.*: code is read",\n]\n'
    )
    assert upward_page.references(tmp_path).splitlines() == [
        "- `hcq/__init__.py` names `frontend/tensor.py`, `ir/`: names",
        "- `hcq/*/backend.py` names `tools/shown/`: code is read",
    ]


def test_a_part_of_a_page_is_renewed_between_its_comments_and_beside_other_parts() -> None:
    first, second = pages.Part("a.md", "rows", lambda: "- new"), pages.Part("a.md", "sums", lambda: "2")
    page = "# Before\n\n<!-- rows: written by make docs -->\n- old\n<!-- end of rows -->\n\nAfter.\n"
    once = second.renewed(first.renewed(page))
    assert once.startswith(
        "# Before\n\n<!-- rows: written by make docs -->\n\n- new\n\n<!-- end of rows -->\n\nAfter."
    )
    assert once.endswith("\n\n<!-- sums: written by make docs -->\n\n2\n\n<!-- end of sums -->\n")
    assert first.renewed(second.renewed(once)) == once
