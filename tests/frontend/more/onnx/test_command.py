"""`python -m hcq onnx` shows a model, the kernels that it becomes, and with --run their times."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hcq.__main__ import main
from tests.frontend.onnx_files import graph, model, node, tensor, value


@pytest.fixture
def path(tmp_path: Path) -> str:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["r"]), node("Gather", ["r", "i"], ["y"])]
    inputs = [value("x", shape=["batch", 4]), value("i", "int64", [2])]
    constants = [tensor("w", np.ones((4, 8), np.float32))]
    file = tmp_path / "small.onnx"
    file.write_bytes(model(graph(nodes, inputs, [value("y", shape=[2, 8])], constants)))
    return str(file)


def test_it_shows_nodes_shapes_weights_and_kernels(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["onnx", path, "--size", "batch=3"]) == 0
    text = capsys.readouterr().out
    assert "3 nodes, 128 bytes of weights; operators of onnx 17" in text
    assert "x  float32[batch, 4]" in text
    assert "float32[3, 8]" in text and "float32[2, 8]" in text
    assert "kernel" in text and "operations" in text


def test_it_runs_a_model_and_times_its_kernels(
    path: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    np.save(tmp_path / "i.npy", np.array([1, 0]))
    words = [
        "onnx",
        path,
        "--run",
        "--times",
        "2",
        "--size",
        "batch=3",
        "--input",
        f"i={tmp_path / 'i.npy'}",
        "--json",
    ]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    kernels = [kernel["name"] for kernel in found["kernels"]]
    assert sorted(kernel["name"] for kernel in found["run"]["kernels"]) == sorted(set(kernels))
    assert found["run"]["why_not_recorded"] == "" and found["run"]["results"]["y"].startswith("float32[2, 8]")
    assert [node["weight_bytes"] for node in found["nodes"]] == [128, 0, 0]


def test_what_cannot_be_is_one_sentence(
    path: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "odd.onnx").write_bytes(model(graph([node("Odd", [], ["y"])], [], [value("y")])))
    for words in (
        [path, "--size", "rows=3"], [path, "--size", "batch"], [path, "--times", "0"], [path, "--input", "x=/nowhere"],
        [str(tmp_path / "odd.onnx")], [str(tmp_path / "none.onnx")],
    ):  # fmt: skip
        assert main(["onnx", *words]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
