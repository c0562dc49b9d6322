"""Saved programs: a file gives what the jitted function gives, in a process that has neither compiler nor NumPy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hcq
from hcq import Tensor, jit, nn
from hcq.artefact.file import Beside, ProgramFile
from hcq.errors import UsageError

SCRIPT = Path(__file__).with_name("saved_programs.py")
ROOT = SCRIPT.parent.parent.parent


def half(verb: str, folder: Path, devices: str, environment: dict[str, str]) -> str:
    run = subprocess.run(
        [sys.executable, SCRIPT, verb, str(folder), *devices.split()],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


@pytest.mark.sampled(1)
@pytest.mark.own_devices
@pytest.mark.deadline(200)
@pytest.mark.parametrize(
    ("emulate", "devices"),
    [("", "CPU"), ("amd:gfx1100", "CPU AMD"), ("nv:sm_90", "NV")],
    ids=["cpu", "amd", "nv"],
)
def test_a_saved_program_gives_the_bytes_of_jit_where_neither_numpy_nor_llvm_can_be_imported(
    tmp_path: Path, emulate: str, devices: str
) -> None:
    environment = {"HCQ_EMULATE": emulate} if emulate else {}
    half("save", tmp_path, devices, environment)
    empty = {**environment, "HCQ_CACHE_DIR": str(tmp_path / "empty cache")}
    found = json.loads(half("run", tmp_path, devices, empty))
    assert len(found) == 1 + 5 * len(devices.split())
    assert not {case: why for case, why in found.items() if why}


def called(function, *args):
    """A function that has a recording."""
    made = jit(function)
    for _ in range(3):
        made(*args)
    return made


def numbers(buffer, dtype=np.float32) -> list:
    return np.frombuffer(buffer.read(), dtype).tolist()


X = Tensor([[1.0, 2.0], [3.0, 4.0]])


def scaled():
    w = Tensor([[0.5, 0.25], [1.0, 2.0]]).realize()
    return called(lambda x: x @ w, X), w


def test_a_program_says_what_it_takes_and_gives(tmp_path):
    hidden = Tensor([1.0, 2.0]).realize()

    def step(x, options, *rest, scale):
        return {"sum": x + options["bias"] + rest[1], "scaled": (rest[0] * scale, x.sum(0) + hidden)}

    function = jit(step)
    for _ in range(3):
        a, b, c, d, e = [X.clone().realize() for _ in range(5)]
        function(a, {"bias": b}, c, d, scale=e)
    hcq.save_program(tmp_path / "p", function)
    program = hcq.load_program(tmp_path / "p")
    assert [str(spec) for spec in program.inputs] == [
        f"{name}: float32[2, 2]" for name in ("x", "options.bias", "rest.0", "rest.1", "scale")
    ]
    assert [str(spec) for spec in program.outputs] == [
        "sum: float32[2, 2]",
        "scaled.0: float32[2, 2]",
        "scaled.1: float32[2]",
    ]
    given = [np.full((2, 2), float(n), np.float32) for n in range(5)]
    a, b, c, d, e = map(Tensor, given)
    wanted = function(a, {"bias": b}, c, d, scale=e)
    assert [numbers(out) for out in program(*given)] == [
        t.numpy().ravel().tolist() for t in (wanted["sum"], *wanted["scaled"])
    ]


def test_buffers_go_in_as_they_are_and_what_comes_out_can_go_in_again(tmp_path):
    function, w = scaled()
    hcq.save_program(tmp_path / "p", function)
    program = hcq.load_program(tmp_path / "p")
    (once,) = program(X.numpy())
    (twice,) = program(once)
    assert numbers(twice) == (X @ w @ w).numpy().ravel().tolist()
    assert numbers(once) == (X @ w).numpy().ravel().tolist()  # each call gives new memory


def test_a_part_of_a_buffer_that_begins_anywhere_goes_in(tmp_path):
    function, w = scaled()
    hcq.save_program(tmp_path / "p", function)
    program = hcq.load_program(tmp_path / "p")
    whole = program.device.alloc(64)
    whole.write(bytes(4) + X.numpy().tobytes(), 0)
    (out,) = program(whole.view(4, 16))
    assert numbers(out) == (X @ w).numpy().ravel().tolist()


def test_saving_changes_nothing_of_the_function_and_programs_share_no_state(tmp_path):
    total = Tensor([0.0, 0.0]).realize()
    function = called(lambda x: total.assign(total + x.sum(0)).realize(), X)
    before = total.tolist()
    hcq.save_program(tmp_path / "p", function, names={"total": total})
    assert total.tolist() == before
    one, other = hcq.load_program(tmp_path / "p"), hcq.load_program(tmp_path / "p")
    assert [spec.name for spec in one.state] == ["total"]
    x = X.numpy()
    assert [numbers(one(x)[0]), numbers(one(x)[0])] == [
        (np.array(before) + n * x.sum(0)).tolist() for n in (1, 2)
    ]
    assert numbers(other(x)[0]) == (np.array(before) + x.sum(0)).tolist()
    one.write_state("total", np.array([1.0, -1.0], np.float32))
    one(x)
    assert np.frombuffer(one.read_state("total"), np.float32).tolist() == [5.0, 5.0]
    with pytest.raises(UsageError, match=r"no such state. It has total"):
        one.read_state("x")
    with pytest.raises(UsageError, match=r"has 8 bytes, got 4"):
        one.write_state("total", bytes(4))


# -- weights beside ----------------------------------------------------------------------------------------------------


def beside(tmp_path):
    w = Tensor.rand(64, 64).realize()
    x = Tensor.rand(1, 64).realize()
    function = called(lambda x: x @ w, x)
    nn.save_file({"layer.weight": w, "other": Tensor([1.0])}, tmp_path / "m.safetensors")
    hcq.save_program(tmp_path / "p", function, weights="m.safetensors")
    return function, x


def test_weights_in_a_file_beside_are_not_copied_and_are_named_as_there(tmp_path):
    function, x = beside(tmp_path)
    hcq.save_program(tmp_path / "whole", function)
    saved = (tmp_path / "whole").stat().st_size - (tmp_path / "p").stat().st_size
    assert saved > 64 * 64 * 4 - 512
    with ProgramFile(tmp_path / "p") as file:
        weights = [one for one in file.contents.variants[0].memory if one.kind == "weight"]
    assert [one.spec.name for one in weights] == ["layer.weight"]
    assert isinstance(weights[0].source, Beside)
    program = hcq.load_program(tmp_path / "p")
    assert program(x.numpy())[0].read() == function(x).numpy().tobytes()


def test_weights_that_are_missing_or_others_than_were_saved_are_refused(tmp_path):
    beside(tmp_path)
    path = tmp_path / "m.safetensors"
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"tensor 'layer.weight' of m.safetensors is not what was saved"):
        hcq.load_program(tmp_path / "p")
    nn.save_file({"layer.weight": Tensor([1.0])}, path)
    with pytest.raises(
        UsageError, match=r"m.safetensors beside it has no tensor 'layer.weight' of 16384 bytes"
    ):
        hcq.load_program(tmp_path / "p")
    path.unlink()
    with pytest.raises(UsageError, match=r"its weights are in m.safetensors beside it, which cannot be read"):
        hcq.load_program(tmp_path / "p")


@pytest.mark.parametrize("name", ["", "..", "a/b", 3])
def test_weights_are_in_the_folder_of_the_program(tmp_path, name):
    function, _ = scaled()
    with pytest.raises(UsageError, match=r"takes the name of a safetensors file"):
        hcq.save_program(tmp_path / "p", function, weights=name)


# -- several functions, and adding -------------------------------------------------------------------------------------


def test_adding_replaces_what_is_for_the_same_architecture(tmp_path):
    function, w = scaled()
    hcq.save_program(tmp_path / "p", function)
    size = (tmp_path / "p").stat().st_size
    other = called(lambda x: x @ w + 1, X)
    hcq.save_program(tmp_path / "p", other, add=True)
    assert abs((tmp_path / "p").stat().st_size - size) < size // 2
    assert numbers(hcq.load_program(tmp_path / "p")(X.numpy())[0]) == other(X).numpy().ravel().tolist()


def test_functions_that_take_or_give_something_else_are_no_one_program(tmp_path):
    function, _ = scaled()
    hcq.save_program(tmp_path / "p", function)
    gives = called(lambda x: x.sum(), X)
    with pytest.raises(UsageError, match=r"gives 2?.*A file has one program: save them in two"):
        hcq.save_program(tmp_path / "p", gives, add=True)
    with pytest.raises(UsageError, match=r"two functions on"):
        hcq.save_program(tmp_path / "q", [function, function])
    assert not (tmp_path / "q").exists()


# -- what a file cannot hold -------------------------------------------------------------------------------------------


def refusal(tmp_path, function) -> str:
    with pytest.raises(UsageError) as caught:
        hcq.save_program(tmp_path / "p", function)
    assert not (tmp_path / "p").exists()
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_a_function_without_a_recording_is_refused(tmp_path):
    function = jit(lambda x: x + 1)
    assert "it has no recording. Call it first" in refusal(tmp_path, function)
    function(X)
    assert "it has no recording. Call it first" in refusal(tmp_path, function)


def test_what_jit_did_not_make_is_refused(tmp_path):
    assert "takes functions that hcq.jit made" in refusal(tmp_path, lambda x: x)
    assert "no function" in refusal(tmp_path, [])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"path": 3}, "path=3; takes the path of a file"),
        ({"path": "a\0b"}, "takes the path of a file"),
        ({"names": 3}, "names=3; takes names and their tensors"),
        ({"names": {"w": 3}}, "'w': takes names and their tensors"),
        ({"names": {3: X}}, "3: takes names and their tensors"),
        ({"add": True}, "cannot be read (No such file or directory)"),
    ],
)
def test_arguments_that_cannot_be_are_one_sentence(tmp_path, words, why):
    function, _ = scaled()
    with pytest.raises(UsageError) as caught:
        hcq.save_program(**{"path": tmp_path / "p", "functions": function, **words})
    assert why in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("path", "device"), [(3, None), ("a\0b", None), (None, None), ("p", 3)])
def test_loading_from_what_is_no_path_or_on_what_is_no_device_is_one_sentence(
    tmp_path, monkeypatch, path, device
):
    function, _ = scaled()
    hcq.save_program(tmp_path / "p", function)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"path=|device="):
        hcq.load_program(path, device)


def test_a_function_that_keeps_a_tensor_is_refused(tmp_path):
    kept = {}

    def keep(x):
        kept["last"] = (x * 2).realize()
        return x + 1

    assert "it keeps a tensor" in refusal(tmp_path, called(keep, X))


def test_a_function_that_adds_to_gradients_of_the_call_before_is_refused(tmp_path):
    w = Tensor([1.0, 2.0]).realize().requires_grad_()

    def accumulate(x):
        loss = (x * w).sum()
        loss.backward()
        return loss.realize()

    function = jit(accumulate)
    for _ in range(5):
        function(X)
    assert "it reads the .grad that a call before left" in refusal(tmp_path, function)


@pytest.mark.parametrize(
    "reads", [lambda w, x: w.grad, lambda w, x: x + w.grad, lambda w, x: w.grad.assign(w.grad * 0.5) + x]
)
def test_a_function_that_reads_a_gradient_from_outside_is_refused(tmp_path, reads):
    w = Tensor([1.0, 2.0]).realize().requires_grad_()
    w.grad = Tensor([8.0, 4.0]).realize()
    function = jit(lambda x: reads(w, x))
    for _ in range(3):
        function(Tensor([1.0, 2.0]))
    assert "it reads the .grad that a call before left" in refusal(tmp_path, function)


def test_a_function_that_returns_a_number_is_refused(tmp_path):
    assert "n is a plain value" in refusal(tmp_path, called(lambda x: {"y": x + 1, "n": 3}, X))


def test_a_function_called_with_one_tensor_as_two_arguments_is_refused(tmp_path):
    assert "one tensor as two arguments" in refusal(tmp_path, called(lambda x, y: x + y, X, X))


def test_what_changed_since_the_last_call_is_refused_until_it_was_called_again(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    function = called(lambda x: model(x), X)
    model.eval()
    assert "has changed since its last call" in refusal(tmp_path, function)
    for _ in range(3):
        function(X)
    hcq.save_program(tmp_path / "p", function)
    assert hcq.load_program(tmp_path / "p")(X.numpy())[0].read() == function(X).numpy().tobytes()


def test_weights_written_after_the_last_call_are_saved_as_they_are(tmp_path):
    function, w = scaled()
    w.assign(Tensor([[1.0, 0.0], [0.0, 1.0]]))
    hcq.save_program(tmp_path / "p", function)
    assert numbers(hcq.load_program(tmp_path / "p")(X.numpy())[0]) == X.numpy().ravel().tolist()


def test_a_function_without_inputs_or_without_kernels_is_a_program(tmp_path):
    w = Tensor([1.0, 2.0]).realize()
    hcq.save_program(tmp_path / "p", called(lambda: w * 2))
    assert numbers(hcq.load_program(tmp_path / "p")()[0]) == [2.0, 4.0]
    hcq.save_program(tmp_path / "q", called(lambda x: None, X))
    assert hcq.load_program(tmp_path / "q")(X.numpy()) == ()
    empty = Tensor.zeros(0, 3).realize()
    hcq.save_program(tmp_path / "r", called(lambda x: x + 1, empty))
    assert hcq.load_program(tmp_path / "r")(b"")[0].read() == b""
