"""Packet pages: docs/packets says what the declarations say."""

from __future__ import annotations

from pathlib import Path

import pytest

from hcq import backends
from hcq.cpu import packets
from hcq.tools import packet_pages


@pytest.mark.parametrize("name", packet_pages.pages())
def test_every_page_is_what_the_declarations_say(name: str) -> None:
    assert packet_pages.read(name) == packet_pages.pages()[name], "the page is old: run make docs"


def test_every_layout_and_every_ioctl_of_every_kind_is_on_its_page() -> None:
    for backend in backends.every():
        text = packet_pages.backend_page(backend)
        for layout in backend.packets():
            assert not layout.fields or f"### {layout.__name__}\n" in text
        for call in backend.calls().values():
            assert f"| {call.name} |" in text


def test_no_page_is_left_over() -> None:
    assert {path.name for path in packet_pages.PAGES.glob("*.md")} == set(packet_pages.pages())


def test_check_names_old_pages_and_a_run_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packet_pages, "PAGES", tmp_path)
    assert packet_pages.main(["--check"]) == 1
    assert "docs/packets/cpu.md is not what the declarations say: run make docs" in capsys.readouterr().out
    (tmp_path / "gone.md").write_text("old")
    assert packet_pages.main([]) == 0
    assert not (tmp_path / "gone.md").exists()
    assert packet_pages.main(["--check"]) == 0
    assert packets.Dispatch.table() in (tmp_path / "cpu.md").read_text()
