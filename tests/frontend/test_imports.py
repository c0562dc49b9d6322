"""PyTorch's imports with another first word, and the page for people who know PyTorch."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hcq
from hcq.aliases import MODULES

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
    exec(PROGRAM.replace("torch", "hcq"), names)
    assert names["found"] == [1.0, 1.0]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_two_names_and_is_one(name: str):
    real = importlib.import_module(MODULES[name])
    assert importlib.import_module(f"hcq.{name}") is real is getattr(hcq, name)
    assert real.__name__ == real.__spec__.name == MODULES[name]


def test_a_module_that_is_not_there_is_named_as_it_was_asked_for():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'hcq\.nn\.quantum'"):
        importlib.import_module("hcq.nn.quantum")


def test_what_the_page_calls_missing_is_missing():
    table = PAGE.read_text(encoding="utf-8").partition("## What is not here")[2]
    missing = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    names = [name for cell in missing for name in re.findall(r"`torch\.(\w+)", cell)]
    assert len(names) >= 3
    assert [name for name in names if hasattr(hcq, name)] == [], f"take it out of {PAGE.name}"


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
