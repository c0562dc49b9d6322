"""Every name that a user's program reaches says what it is, in words, in types and in an example that holds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hcq.frontend.torch.modules import MODULES
from hcq.tools import surface
from tests.frontend.more.distributed.ranks import needs_mpi


def test_every_name_has_a_docstring_types_and_an_example() -> None:
    assert surface.lacking() == [], "write it into the docstring: CONTRIBUTING.md, How code reads here"


def test_the_surface_has_the_names_that_users_know() -> None:
    names = {name.name for name in surface.surface()}
    known = "Tensor.relu nn.Linear nn.functional.unfold optim.SGD func.grad torch.linalg.solve torch.fft.fft"
    assert {f"hcq.{name}" for name in known.split()} <= names
    assert len(names) > 800


def test_every_module_that_has_a_name_of_pytorch_is_a_place() -> None:
    missing = [
        name
        for name, real in MODULES.items()
        if real
        and "." not in name
        and not any(place in (f"hcq.{name}", f"hcq.torch.{name}") for place in surface.PLACES)
    ]
    assert missing == []


def test_what_an_example_says_instead_of_what_it_promises_is_told() -> None:
    assert surface.run("right", ">>> hcq.tensor([1, 2]).sum().item()\n3", "hcq.errors") == ""
    assert "Got:\n    3" in surface.run("wrong", ">>> hcq.tensor([1, 2]).sum().item()\n4", "hcq.errors")


def test_a_function_without_types_or_example_lacks_them() -> None:
    def bare(x, y: int = 0):  # type: ignore[no-untyped-def]
        """Nothing."""

    assert surface.Name("bare", bare, __name__).lacks == ["types", "example"]


@pytest.mark.thorough
def test_examples_of_ranks_hold_on_one() -> None:
    needs_mpi()
    ran = subprocess.run(
        [sys.executable, "-m", "hcq.tools.surface", "--run", "--only", "hcq.distributed"],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "left out" not in ran.stdout
