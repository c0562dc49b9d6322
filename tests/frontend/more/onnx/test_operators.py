"""Operators compute what ONNX's own tests of them say; a few here, and all of them when thorough."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

from hcq.frontend.more.onnx import lookup, table  # noqa: E402
from hcq.tools import conformance_onnx  # noqa: E402

# modules of onnx.backend.test.case.node; of each the first cases, in the order in which it makes them
FEW = (
    "abs add argmax globalaveragepool batch_normalization cast clip compress concat constantofshape conv convtranspose "
    "cumsum depthtospace dequantizelinear div dropout einsum equal expand flatten gather gathernd gemm hardmax "
    "layernormalization lstm matmul globalmaxpool mod nonzero onehot pad pow quantizelinear rangeop reducesum reshape "
    "scatternd slice softmax split squeeze topk transpose trilu unsqueeze where"
).split()


def few() -> list[Any]:
    """Some sixty cases."""
    node = importlib.import_module("onnx.backend.test.case.node")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in FEW:
            importlib.import_module(f"onnx.backend.test.case.node.{name}")
    wanted = {name.replace("_", "").replace("rangeop", "range") for name in FEW}
    found: list[Any] = []
    for case in node._NodeTestCases:
        op = case.model.graph.node[0].op_type.lower()
        if op in wanted and "_expanded" not in case.name:
            found.append(case)
            wanted.discard(op) if len(found) % 3 else None  # of every third operator one more
    return found


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


def test_every_form_since_version_7_that_onnx_declares_has_its_inputs_and_attributes_here() -> None:
    """What is not here is written down: the operators of strings and maps, of pictures as files, and a few old ones."""
    unknown, different = set(), set()
    for schema in onnx.defs.get_all_schemas_with_history():
        version = schema.since_version
        if schema.deprecated or schema.domain not in table.NEWEST or (not schema.domain and version < 7):
            continue
        form = lookup.find(schema.domain, schema.name, version)
        if form is None:
            unknown.add(schema.name)
            continue
        theirs = set(schema.attributes)
        fits = schema.min_input >= form.needed and (form.many or schema.max_input <= len(form.takes))
        missing = {name for name, is_needed in form.attributes.items() if is_needed} - theirs
        if not fits or missing or theirs - set(form.attributes):
            different.add(schema.name)
    assert unknown == {
        "CastMap", "CategoryMapper", "DictVectorizer", "Gradient", "ImageDecoder", "LabelEncoder", "RegexFullMatch",
        "SVMClassifier", "SVMRegressor", "StringConcat", "StringNormalizer", "StringSplit", "ZipMap",
    }  # fmt: skip
    assert different == {"Constant"}  # value_string and sparse_value


@pytest.mark.thorough
@pytest.mark.own_devices
@pytest.mark.parametrize("part", range(60))
def test_every_case_passes_or_has_a_line_that_says_why(part: int) -> None:
    page = conformance_onnx.PAGE.read_text("utf-8") if Path(conformance_onnx.PAGE).is_file() else ""
    cases = conformance_onnx.cases()
    unknown = {name: why for name, why in failing(cases[part::60]).items() if f"- `{name}` " not in page}
    assert unknown == {}
