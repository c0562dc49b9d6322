"""What importing costs: `import hcq` loads the standard library and nothing heavier, and touches nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.frontend import FORMER
from hcq.frontend.ops.table import GROUPS

ROOT = Path(__file__).parent.parent
HEAVY = ("numpy", "llvmlite", "capstone", "elftools", "torch")


def modules_after(statement: str) -> set[str]:
    """The modules a fresh Python has loaded after one statement."""
    program = f"{statement}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("statement", ["import hcq", "import hcq.ir.node", "import hcq.ir.dtype, hcq.ir.op"])
def test_importing_loads_nothing_heavy(statement: str) -> None:
    loaded = {name.partition(".")[0] for name in modules_after(statement)}
    assert loaded.isdisjoint(HEAVY)


def test_a_tensor_loads_what_every_program_uses_and_no_more() -> None:
    loaded = modules_after("import hcq; hcq.Tensor")
    later = {
        "inspect",
        "dataclasses",
        "ast",
        "hashlib",
        "fractions",
        "decimal",
        "zlib",
        "difflib",
        "subprocess",
    }
    assert loaded.isdisjoint(later)
    lazy = (
        "hcq.nn",
        "hcq.optim",
        "hcq.func",
        "hcq.distributed",
        "hcq.onnx",
        *(f"hcq.frontend.{name}" for name in FORMER),
    )  # entries with nothing loaded behind them
    ours = {name for name in loaded if name.startswith("hcq") and not name.startswith(lazy)}
    assert len(ours) <= 105, "what few programs need is imported when it is first used"
    groups = {place.partition(":")[0] for place in GROUPS}
    assert ours.isdisjoint(
        groups | {"hcq.frontend.devices.sharding.plan", "hcq.frontend.devices.collectives.perform"}
    )


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    import hcq

    with pytest.raises(AttributeError, match=r"\[no_such_name\] module 'hcq' has no"):
        hcq.no_such_name  # noqa: B018


def test_importing_does_not_read_the_switches() -> None:
    environment = {**os.environ, "HCQ_DEVICE": "no-such-device", "HCQ_NO_SUCH_SWITCH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "import hcq"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_result_whose_kernel_is_in_the_cache_needs_no_llvm() -> None:
    statement = "import hcq; assert (hcq.tensor([1, 2, 3]) + 1).tolist() == [2, 3, 4]"
    modules_after(statement)  # fills the cache
    loaded = {name.partition(".")[0] for name in modules_after(statement)}
    assert "llvmlite" not in loaded
    assert "numpy" not in loaded
