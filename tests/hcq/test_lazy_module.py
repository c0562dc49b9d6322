"""Late names: a package's files are imported when one of their names is asked for, once."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

INIT = """
from hcq.lazy_module import late_names
found = []
__getattr__, __dir__ = late_names(__name__, {"birds": "Owl Wren", "fish": "Carp"}, ("tools",), finish=found.append)
"""


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "zoo").mkdir()
    files = {
        "__init__": INIT,
        "birds": "class Owl: ...\nclass Wren: ...",
        "fish": "class Carp: ...",
        "tools": "",
    }
    for name, text in files.items():
        (tmp_path / "zoo" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("zoo")
    for name in [name for name in sys.modules if name.partition(".")[0] == "zoo"]:
        del sys.modules[name]


def test_a_file_is_imported_with_the_first_of_its_names(zoo: ModuleType) -> None:
    assert "zoo.birds" not in sys.modules
    assert zoo.Owl.__module__ == "zoo.birds" and "zoo.fish" not in sys.modules
    assert zoo.Wren is vars(zoo)["Wren"], "its other names are there, too"
    assert zoo.tools is sys.modules["zoo.tools"]


def test_what_is_found_is_finished_once(zoo: ModuleType) -> None:
    assert zoo.Owl is zoo.Owl and zoo.Wren
    assert zoo.found == [zoo.Owl, zoo.Wren]


def test_every_name_is_listed_and_no_other_is_found(zoo: ModuleType) -> None:
    assert {"Owl", "Wren", "Carp", "tools"} <= set(dir(zoo)) and "late_names" not in dir(zoo)
    with pytest.raises(AttributeError, match="module 'zoo' has no attribute 'Bear'"):
        zoo.Bear  # noqa: B018
