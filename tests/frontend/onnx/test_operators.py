"""Operators compute what ONNX's own tests of them say; a few here, and all of them when thorough."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

from hcq.tools import conformance_onnx  # noqa: E402

# modules of onnx.backend.test.case.node; the first cases of each, in the order of their names
FEW = (
    "abs add argmax averagepool batchnorm cast clip compress concat constantofshape conv convtranspose cumsum "
    "depthtospace dequantizelinear div dropout einsum equal expand flatten gather gathernd gemm groupnormalization "
    "hardmax layernormalization lstm matmul maxpool mod nonzero onehot pad pow quantizelinear range reducesum reshape "
    "scatternd slice softmax split squeeze topk transpose trilu unsqueeze where"
).split()


def of_module(name: str) -> list[Any]:
    """The cases of one module of ONNX's, those of other dtypes left out."""
    node = importlib.import_module("onnx.backend.test.case.node")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = len(node._NodeTestCases)
        importlib.import_module(f"onnx.backend.test.case.node.{name}")
    return [case for case in node._NodeTestCases[before:] if "_expanded" not in case.name]


_few: list[Any] = []


def few() -> list[Any]:
    """Some sixty cases."""
    if not _few:
        for name in FEW:
            found = of_module(name)
            _few.extend(found[: 2 if len(_few) % 3 == 0 else 1])
    return _few


def failing(cases: list[Any]) -> dict[str, str]:
    """Which of them do not pass, and why."""
    found = {}
    for case in cases:
        status, why = conformance_onnx.run_case(case)
        if status in (conformance_onnx.WRONG, conformance_onnx.REFUSED):
            found[case.name] = why
    return found


def test_some_sixty_operators_compute_what_onnx_says() -> None:
    assert len(few()) >= 50
    assert failing(few()) == {}


@pytest.mark.thorough
@pytest.mark.own_devices
@pytest.mark.parametrize("part", range(60))
def test_every_case_passes_or_has_a_line_that_says_why(part: int) -> None:
    page = conformance_onnx.PAGE.read_text("utf-8") if Path(conformance_onnx.PAGE).is_file() else ""
    cases = conformance_onnx.cases()
    unknown = {
        name: why for name, why in failing(cases[part::60]).items() if f"- `{name}` " not in page
    }
    assert unknown == {}
