"""The groups of Tensor's methods: they stand side by side."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import hcq.frontend
from hcq.frontend.core.base import Core
from hcq.frontend.ops import late, table
from hcq.frontend.ops.base import Methods
from hcq.frontend.ops.declared import Declared
from hcq.frontend.tensor import Tensor
from hcq.tools import method_stubs

FOLDER = Path(hcq.frontend.__path__[0]) / "ops"
GROUPS = late.groups(Tensor)
FILES = [FOLDER / f"{group.__module__.rpartition('.')[2]}.py" for group in GROUPS]


def test_no_group_is_a_kind_of_another():
    assert [group.__bases__ for group in GROUPS] == [(Methods,)] * len(GROUPS)
    assert Methods.__bases__ == (Declared,) and Declared.__bases__ == (Core,)


def test_no_group_imports_another():
    groups = {group.__module__ for group in GROUPS}
    for path in FILES:
        nodes = ast.walk(ast.parse(path.read_text()))
        imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not imported & groups, path.name


def test_every_class_of_methods_in_the_folder_is_a_group_of_tensor_and_the_only_one_of_its_file():
    found = [path for path in FOLDER.glob("*.py") if "(Methods):" in path.read_text()]
    assert sorted(found) == sorted(FILES)


def test_the_table_of_late_methods_is_what_the_groups_hold():
    for place, names in table.GROUPS.items():
        group = late.group(place)
        held = [name for name in vars(group) if name in names.split() or not name.startswith("__")]
        assert sorted(set(held) - {"_is_checked", "_are_functions"}) == sorted(names.split()), place
        assert all(name in vars(late.Late) for name in names.split()), place
    assert sum(len(names.split()) for names in table.GROUPS.values()) == len(table.METHODS)


def test_no_late_method_hides_behind_one_that_every_tensor_has():
    own = {name for kind in (Tensor, *Methods.__mro__) for name in vars(kind)}
    assert not own & set(table.METHODS)


def test_operators_of_late_groups_are_imported_when_they_are_first_used():
    program = """
import sys, hcq
x = hcq.tensor([4, 9])  # remainders of floats are refused on Metal
assert not {"hcq.frontend.ops.indexing", "hcq.frontend.ops.power"} & set(sys.modules)
assert (x[1].item(), (x**2).tolist(), (2**x).tolist(), divmod(x, 2)[1].tolist()) == (9, [16, 81], [16, 512], [0, 1])
x[0] = 1
assert abs(-x).tolist() == [1, 9] and (7 // x).tolist() == [7, 0]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_late_methods_are_found_by_many_threads_at_once():
    program = """
import threading, hcq
from hcq.frontend.ops import table
x, failed, start = hcq.Tensor([1.0]), [], threading.Barrier(8)
def ask(names):
    start.wait()
    for name in names:
        if not hasattr(hcq.Tensor, name):
            failed.append(name)
names = list(table.METHODS)
threads = [threading.Thread(target=ask, args=(names[k::2] if k % 2 else names[::-1],)) for k in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
assert hcq.Tensor.__bases__[-1].__bases__ == (hcq.frontend.ops.base.Methods,)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_forwarded_method_says_by_its_own_name_which_argument_is_missing():
    x = Tensor([1.0])
    with pytest.raises(TypeError, match=r"^add_\(\) missing 1 required positional argument: 'other'$"):
        x.add_()
    with pytest.raises(TypeError, match=r"^subtract\(\) .*unexpected.*'oter'"):
        x.subtract(oter=x)
    assert list(inspect.signature(Tensor.add_).parameters)[:2] == ["self", "other"]


def test_no_two_groups_define_one_name():
    owners: dict[str, str] = {}
    of_each = {"__module__", "__doc__", "__slots__", "_is_checked", "_are_functions"}
    for group in (Tensor, *GROUPS):
        for name in set(vars(group)) - of_each - set(dir(type)):
            assert owners.setdefault(name, group.__name__) == group.__name__, name


def test_what_groups_call_in_one_another_is_there():
    tree = ast.parse(method_stubs.stubs()["frontend/ops/declared.pyi"])
    (stub,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    declared = [node.name for node in stub.body if isinstance(node, ast.FunctionDef)]
    assert {"cast", "_reshape", "__add__"} <= set(declared)
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
from hcq.frontend.ops import table
def loaded(): return {place.partition(":")[0].rpartition(".")[2] for place in table.GROUPS} & {
    name.rpartition(".")[2] for name in sys.modules if name.startswith("hcq.frontend.ops.")}
x = hcq.Tensor([3.0, 1.0, 2.0])
assert loaded() == set()
assert x.sort().values.tolist() == [1.0, 2.0, 3.0]
assert "ordering" in loaded() and "angles" not in loaded()
assert hcq.Tensor.hypot(x, x * 0).tolist() == [3.0, 1.0, 2.0]
assert "angles" in loaded()
assert "cdist" in dir(x) and "cdist" in dir(hcq.Tensor) and "margins" not in loaded()
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
