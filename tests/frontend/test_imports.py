"""PyTorch's imports from hcq.torch, and the page for people who know PyTorch."""

from __future__ import annotations

import doctest
import importlib
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import hcq
import hcq.torch
from hcq import Tensor, UsageError
from hcq.frontend import FORMER
from hcq.frontend.torch.modules import MODULES, names_of
from hcq.frontend.torch.rows import ROWS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-pytorch.md"

PROGRAM = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.func import vmap
from torch.nn import Linear, init
from torch.nn.utils import clip_grad_norm_

torch.manual_seed(0)
net = nn.Sequential(Linear(2, 4), nn.ReLU())
init.zeros_(net[0].bias)
optimizer = optim.SGD(net.parameters(), lr=0.1)
loss = F.mse_loss(net(torch.ones(3, 2)), torch.zeros(3, 4))
loss.backward()
clip_grad_norm_(net.parameters(), 1.0)
optimizer.step()
found = vmap(torch.sum)(torch.linalg.inv(torch.eye(2))).tolist()
"""


def test_a_program_runs_when_its_imports_are_changed():
    names: dict[str, object] = {}
    exec(
        re.sub(r"^(import|from) torch", r"\1 hcq.torch", PROGRAM, flags=re.MULTILINE).replace(
            "import hcq.torch\n", "import hcq.torch as torch\n"
        ),
        names,
    )
    assert names["found"] == [1.0, 1.0]


def test_importing_leaves_pythons_import_system_alone():
    program = (
        "import sys; before = list(sys.meta_path); import hcq, hcq.torch.nn; assert sys.meta_path == before"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_of_the_table_is_imported_by_its_name_and_has_names(name: str):
    module = importlib.import_module(f"hcq.torch.{name}")
    found: object = hcq.torch
    for word in name.split("."):
        found = getattr(found, word)
    assert found is module
    missing = [other for other in names_of(name) if not other.startswith("__") and not hasattr(module, other)]
    assert missing == []


@pytest.mark.parametrize("name", ["nn", "nn.functional", "optim", "func", "distributed", "onnx"])
def test_hcqs_own_modules_are_those_of_the_tensor_layer(name: str):
    found: object = hcq
    for word in name.split("."):
        found = getattr(found, word)
    assert found.__name__ == {
        "optim": "hcq.frontend.optim", "func": "hcq.frontend.more.transforms",
        "distributed": "hcq.frontend.more.distributed", "onnx": "hcq.frontend.more.onnx",
    }.get(name, f"hcq.frontend.{name}")  # fmt: skip
    kinds = {key: value for key, value in vars(found).items() if isinstance(value, type)}
    shown = importlib.import_module(f"hcq.{name}")
    assert all(getattr(shown, key) is value for key, value in kinds.items())


def test_a_module_that_is_not_there_is_named_as_it_was_asked_for():
    for name in ("hcq.torch.nn.quantum", "hcq.nn.quantum", "hcq.torch.quantum"):
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
            importlib.import_module(name)


def test_a_module_of_pytorchs_only_is_not_hcqs_and_says_where_it_is():
    with pytest.raises(AttributeError, match=r"hcq has no 'cuda': write hcq\.torch\.cuda"):
        hcq.cuda  # noqa: B018
    assert not hasattr(hcq.signal, "windows") and not hasattr(hcq.backends, "cudnn")
    assert (
        "cuda" not in dir(hcq)
        and "relu" not in dir(hcq)
        and {"nn", "Tensor", "Queue", "torch"} <= {*dir(hcq)}
    )


@pytest.mark.parametrize("module", ROWS)
def test_every_row_of_the_table_says_why_and_does_what_it_says(module: str):
    place = importlib.import_module(f"hcq.torch.{module}".rstrip("."))
    for name, row in ROWS[module].items():
        value = getattr(place, name)
        assert row.why.endswith((".", "docs/distributed.md."))
        if row.kind == "refused":
            with pytest.raises(UsageError, match=rf"^\[{module}\.{name}\]"):
                value(None)
        if row.kind == "same":
            assert len in (value(len), value(int, len), value(option=1)(len))


def test_what_a_program_sets_stays_set_and_is_seen_by_no_other_module():
    cudnn = hcq.torch.backends.cudnn
    before = cudnn.allow_tf32
    cudnn.allow_tf32 = True
    assert importlib.import_module("hcq.torch.backends.cudnn").allow_tf32
    assert not hcq.torch.backends.cuda.matmul.allow_tf32
    cudnn.allow_tf32 = before


INSTALLED = """
import sys
sys.path[:] = [path for path in sys.path if "-packages" not in path]
import hcq.torch
hcq.torch.install()
hcq.torch.install()
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
assert torch is hcq.torch and F is hcq.torch.nn.functional
assert isinstance(torch.ones(2), torch.Tensor) and type(torch.ones(2)).__module__.startswith("hcq.")
try:
    import torch.quantum
except ModuleNotFoundError as error:
    assert error.name == "torch.quantum"
"""


@pytest.mark.own_devices  # without the packages that an emulated GPU needs
def test_the_names_can_be_installed_as_torch_where_pytorch_is_not():
    subprocess.run([sys.executable, "-c", INSTALLED], check=True, cwd=PAGE.parents[1])


def test_the_names_are_not_installed_as_torch_where_pytorch_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", importlib.import_module("json"))
    with pytest.raises(UsageError, match="PyTorch itself is installed here"):
        hcq.torch.install()


def test_what_the_page_calls_missing_is_missing():
    table = PAGE.read_text(encoding="utf-8").partition("## What is not here")[2]
    missing = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    names = [name for cell in missing for name in re.findall(r"`torch\.(\w+)", cell)]
    assert len(names) >= 3
    assert [name for name in names if hasattr(hcq.torch, name)] == [], f"take it out of {PAGE.name}"


def test_every_example_of_the_page_for_people_who_know_pytorch_prints_what_it_says():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 20
    assert failed == 0


@pytest.mark.thorough
@pytest.mark.deadline(300)
def test_a_strict_type_checker_has_nothing_to_say_about_a_users_program(tmp_path: Path):
    pytest.importorskip("mypy")
    checkout = Path(__file__).resolve().parents[2]
    shutil.copy(Path(__file__).with_name("user_program.py"), tmp_path / "program.py")
    places = tmp_path / "packages" / "hcq"  # laid out as it is installed
    for folder in ("hcq", "ir", "compiler", "frontend", "tools"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(checkout / folder, places if folder == "hcq" else places / folder, ignore=ignored)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-incremental", "program.py"],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(tmp_path / "packages")}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    said = [
        line for line in done.stdout.splitlines() if line.startswith("program.py")
    ]  # not of the package's own code
    assert "source file" in done.stdout + done.stderr
    assert said == []


@pytest.mark.parametrize("name", FORMER)
def test_a_path_of_version_0_1_leads_to_where_its_module_is_now(name: str):
    module = importlib.import_module(f"hcq.frontend.{name}")
    now = importlib.import_module(FORMER[name])
    public = [
        key
        for key, value in vars(now).items()
        if not key.startswith("_") and not isinstance(value, ModuleType)
    ]
    assert all(getattr(module, key) is getattr(now, key) for key in public)


@pytest.mark.parametrize(
    "statement",
    [
        "import hcq.frontend.nn.optim as found; found.SGD",
        "from hcq.frontend.nn.optim.adam import Adam",
        "import hcq.frontend.utils.data; hcq.frontend.utils.data.DataLoader",
        "from hcq.frontend.functions_linalg import vector_norm",
    ],
)
def test_a_former_path_is_there_before_anything_else_is_imported(statement: str):
    subprocess.run([sys.executable, "-c", statement], check=True)


def test_a_tensor_that_version_0_1_pickled_is_read():
    x = Tensor([1.0, 2.0])
    now = pickle.dumps(x, protocol=0)
    assert b"hcq.frontend.io.pickled" in now
    before = now.replace(b"hcq.frontend.io.pickled", b"hcq.frontend.pickled")
    assert pickle.loads(before).tolist() == [1.0, 2.0]
