"""The registry of backends: every entry says what is so, and what is not in it is refused with words."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import hcq
from hcq import backends
from hcq.errors import DriverError, UsageError


@pytest.mark.parametrize("name", backends.PLACES)
def test_everything_that_an_entry_names_is_there(name: str) -> None:
    backend = backends.of(name)
    assert backend.name == name
    for module in (*backend.layouts, *backend.ioctls):
        importlib.import_module(module)
    places = [value for value in vars(backend).values() if isinstance(value, str) and ":" in value]
    assert len(places) >= 6
    for place in places:
        assert backends.load(place) is not None


def test_a_device_is_found_by_its_name_with_any_number_in_any_case() -> None:
    assert backends.of("amd:7") is backends.of("AMD")
    assert backends.find("GPU") is None
    with pytest.raises(UsageError, match=r"'GPU': unknown kind of device\. Known: CPU, AMD, NV"):
        backends.of("GPU")


def test_what_an_entry_leaves_out_is_refused_with_words() -> None:
    with pytest.raises(UsageError, match="BARE: nobody declared its packets"):
        backends.Backend("BARE").decode([0])
    with pytest.raises(UsageError, match=r"gfx1: not a GPU whose packets are known\. Known: "):
        backends.of("AMD").decode([0], "gfx1")


def test_a_name_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "PLACES", dict(backends.PLACES))
    backends.register("mine", "hcq.cpu.backend:BACKEND")
    backends.register("MINE", "hcq.cpu.backend:BACKEND")
    assert backends.of("MINE:1") is backends.of("CPU")
    assert "MINE" in backends.names()
    with pytest.raises(UsageError, match=r"this is hcq\.cpu\.backend:BACKEND already"):
        backends.register("MINE", "another:PLACE")
    with pytest.raises(UsageError, match="one word"):
        backends.register("MINE:1", "another:PLACE")


def test_a_package_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    facts = tmp_path / "gone-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: gone\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[hcq.backends]\nGONE = gone.backend:BACKEND\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    backends._installed.cache_clear()
    try:
        with pytest.raises(DriverError, match=r"GONE: its backend gone.backend:BACKEND cannot be imported"):
            hcq.open("GONE")
    finally:
        backends._installed.cache_clear()
