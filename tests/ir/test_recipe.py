"""CONTRIBUTING's recipe for an elementwise op, done in a copy of the tree: three files, and the op is everywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(
    r"^   ```python\n   # (?P<file>\S+), (?P<side>after|before): (?P<anchor>.+)\n(?P<text>(?:.*\n)*?)   ```$",
    re.M,
)

# a second op, of two numbers, which no language has words for
GAP = [
    ("ir/op.py", "before", "ADD = auto()", "    GAP = auto()  # |a - b|, rounded once\n"),
    (
        "ir/elementwise/operators.py",
        "after",
        "OPERATORS = (",
        """    Elementwise(
        op=Op.GAP,
        meaning=lambda dtype, source, a, b: abs(a - b),
        slopes=(
            lambda node, g: (node.src[0] < node.src[1]).where(Node(Op.NEG, g.dtype, (g,)), g),
            lambda node, g: (node.src[0] < node.src[1]).where(g, Node(Op.NEG, g.dtype, (g,))),
        ),
        takes=FLOATS,
        made_of=lambda a, b: Node(Op.MAGNITUDE, a.dtype, (a + Node(Op.NEG, b.dtype, (b,)),)),
        commutes=True,
    ),
""",
    ),
    (
        "frontend/ops/elementwise.py",
        "after",
        "# -- arithmetic --",
        """
    def gap(self, other: Any) -> Self:
        \"\"\"|self - other|; shapes broadcast, dtypes promote.\"\"\"
        return self._binary(Op.GAP, other)
""",
    ),
]

X, Y = np.array([-1.75, 0.5, 3.0, -0.25]), np.array([2.0, -0.5, 1.0, -4.0])
PROGRAM = """
import json
import sys
from hcq import Tensor, dtypes, tensor
from hcq.compiler.render.cuda_arithmetic import CUDA
from hcq.errors import UsageError
from hcq.ir.node import Node, Param
from hcq.ir.op import Op
from hcq.ir.verify import VerifyError, verify

x, y, machines = json.loads(sys.argv[1])
found = {}
for device, floats in machines:
    for dtype in floats:
        a, b = (Tensor(values, device=device).cast(dtypes.named(dtype)) for values in (x, y))
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        (a.magnitude() * b).sum().backward()
        first = a.grad.tolist()
        a.grad = b.grad = None
        (a.gap(b) * a).sum().backward()
        values = [a.magnitude().tolist(), a.gap(b).tolist()]
        found[f"{device} {dtype}"] = [*values, first, a.grad.tolist(), b.grad.tolist()]
refused = []
try:
    tensor([1, 2]).magnitude()
except UsageError as error:
    refused.append(str(error))
for op, count in ((Op.MAGNITUDE, 1), (Op.GAP, 2)):
    try:
        sources = [Node(Op.PARAM, dtypes.int32, (), Param(number, (4,))) for number in range(count)]
        verify(Node(op, dtypes.int32, tuple(sources)), "tensor")
    except VerifyError as error:
        refused.append(str(error))
cuda = CUDA.arithmetic(None, Op.MAGNITUDE, dtypes.float64, [("x", dtypes.float64)])
print(json.dumps([found, refused, cuda]))
"""


def steps() -> list[tuple[str, str, str, str]]:
    """(file, side, line, text) of each block of the recipe."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Add an elementwise op\n")[1].split("\n## ")[0]
    return [
        (step["file"], step["side"], step["anchor"], re.sub("^   ", "", step["text"], flags=re.M))
        for step in STEP.finditer(section)
    ]


def insert(tree: Path, file: str, side: str, anchor: str, text: str) -> None:
    """Put a text after or before the only line that begins so."""
    path = tree / file
    lines = path.read_text().splitlines(keepends=True)
    (place,) = [number for number, line in enumerate(lines) if line.strip().startswith(anchor)]
    lines.insert(place + (side == "after"), text)
    path.write_text("".join(lines))


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a program of the two new ops finds: numbers by device and dtype, refusals, an expression of CUDA C."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in ("hcq", "ir", "compiler", "frontend"):
        shutil.copytree(ROOT / folder, tree / folder)
    shutil.copy(ROOT / "setup.py", tree)
    for step in (*steps(), *GAP):
        insert(tree, *step)
    machines = [
        ("CPU", ["float64", "float32", "float16"]),
        ("AMD", ["float32"]),
        ("NV", ["float32"]),
        ("METAL", ["float32"]),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "HCQ_EMULATE": "amd:gfx1100,nv:sm_90,metal:m3",
        "HCQ_CACHE_DIR": str(tree / "cache"),
    }
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([X.tolist(), Y.tolist(), machines])],
        env=environment,
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


def slope(loss: Callable[[np.ndarray], np.ndarray], at: np.ndarray) -> np.ndarray:
    """By a central difference for each element: the loss of one depends on no other."""
    step = 2.0**-10
    return (loss(at + step) - loss(at - step)) / (2 * step)


def test_an_op_that_follows_the_recipe_touches_three_files() -> None:
    assert [file for file, *_ in steps()] == [
        "ir/op.py",
        "ir/elementwise/functions.py",
        "frontend/ops/elementwise.py",
    ]


def test_it_computes_on_the_cpu_and_on_a_gpu_of_each_vendor(answer: Any) -> None:
    found = answer[0]
    assert set(found) == {
        "CPU float64",
        "CPU float32",
        "CPU float16",
        "AMD float32",
        "NV float32",
        "METAL float32",
    }
    for machine, (magnitude, gap, *_) in found.items():
        assert magnitude == np.abs(X).tolist(), machine
        assert gap == np.abs(X - Y).tolist(), machine


def test_its_gradient_agrees_with_finite_differences(answer: Any) -> None:
    expected = (
        slope(lambda x: np.abs(x) * Y, X),
        slope(lambda x: np.abs(x - Y) * x, X),
        slope(lambda y: np.abs(X - y) * X, Y),
    )
    for machine, (_, _, *slopes) in answer[0].items():
        np.testing.assert_allclose(slopes, expected, rtol=1e-6, err_msg=machine)


def test_a_wrong_dtype_is_refused_by_the_method_and_by_the_verifier(answer: Any) -> None:
    method, *verifier = answer[1]
    assert method == "[magnitude] int64 is not floating point. Cast to float32 first."
    assert len(verifier) == 2
    assert all("computes with floats, not int32" in refusal for refusal in verifier)


def test_its_words_for_doubles_are_taken_where_it_has_them(answer: Any) -> None:
    assert answer[2] == "fabs(x)"
