"""The groups of Tensor's methods: they stand side by side."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hcq.frontend
from hcq.frontend.core.base import Core
from hcq.frontend.ops import base, late
from hcq.frontend.ops.base import Methods
from hcq.frontend.tensor import Tensor

FOLDER = Path(hcq.frontend.__path__[0]) / "ops"
GROUPS = late.groups(Tensor)
FILES = [FOLDER / f"{group.__module__.rpartition('.')[2]}.py" for group in GROUPS]


def test_no_group_is_a_kind_of_another():
    assert [group.__bases__ for group in GROUPS] == [(Methods,)] * len(GROUPS)
    assert (Core,) == Methods.__bases__


def test_no_group_imports_another():
    groups = {group.__module__ for group in GROUPS}
    for path in FILES:
        nodes = ast.walk(ast.parse(path.read_text()))
        imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not imported & groups, path.name


def test_every_class_of_methods_in_the_folder_is_a_group_of_tensor_and_the_only_one_of_its_file():
    found = [path for path in FOLDER.glob("*.py") if "(Methods):" in path.read_text()]
    assert sorted(found) == sorted(FILES)


def test_no_two_groups_define_one_name():
    owners: dict[str, str] = {}
    for group in (Tensor, *GROUPS):
        for name in set(vars(group)) - {"__module__", "__doc__", "__slots__", "_is_checked"} - set(dir(type)):
            assert owners.setdefault(name, group.__name__) == group.__name__, name


def test_what_groups_call_in_one_another_is_there():
    tree = ast.parse(Path(base.__file__).read_text())
    methods = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Methods")
    (block,) = (node for node in methods.body if isinstance(node, ast.If))
    declared = [node.name for node in block.body if isinstance(node, ast.FunctionDef)]
    assert "cast" in declared
    missing = [name for name in declared if not any(name in vars(owner) for owner in (Tensor, *GROUPS))]
    assert not missing


def test_tensors_join_as_a_method():
    a, b, c = hcq.tensor([[1, 2]]), hcq.tensor([[3, 4]]), Tensor([[5.5, 6.5]])
    assert a.cat(b).tolist() == Tensor.cat([a, b]).tolist() == [[1, 2], [3, 4]]
    assert (
        a.cat(b, c, dim=1).tolist() == Tensor.cat((a, b, c), 1).tolist() == [[1.0, 2.0, 3.0, 4.0, 5.5, 6.5]]
    )
    assert a.cat([b, c]).shape == (3, 2)
    assert a.stack(b, dim=-1).tolist() == Tensor.stack([a, b], dim=-1).tolist() == [[[1, 3], [2, 4]]]
    assert Tensor.cat(tensors=[a, b], dim=1).shape == (1, 4)


def test_a_late_group_is_imported_when_one_of_its_methods_is_asked_for():
    program = """
import sys, hcq
def loaded(): return [file for file in late.LATE if f"hcq.frontend.ops.{file}" in sys.modules]
from hcq.frontend.ops import late
x = hcq.Tensor([3.0, 1.0, 2.0])
assert loaded() == []
assert x.sort().values.tolist() == [1.0, 2.0, 3.0]
assert loaded() == ["ordering"]
assert hcq.Tensor.hypot(x, x * 0).tolist() == [3.0, 1.0, 2.0]
assert loaded()[-1] == "angles" and "margins" not in loaded()
assert "cdist" in dir(x) and loaded() == list(late.LATE)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_an_attribute_error_that_says_what_is_named_alike():
    x = Tensor([1.0])
    assert not hasattr(x, "no_such_method") and not hasattr(Tensor, "__no_such__")
    with pytest.raises(AttributeError, match=r"\[soft_max\] a Tensor has no .* Named alike: softmax"):
        x.soft_max  # noqa: B018
    with pytest.raises(AttributeError, match=r"of this name\.$"):
        Tensor.quux  # noqa: B018
