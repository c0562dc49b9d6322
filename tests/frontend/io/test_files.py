"""hcq.load and hcq.save: every format is told by its bytes, and a damaged file is one sentence and little memory."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError, dtypes, nn
from hcq.__main__ import main
from hcq.frontend.io.gguf_writer import Packed

ARRAYS = {
    "weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "ids": np.array([-1, 5], dtype=np.int64),
    "scalar": np.array(2.5),
    "none": np.zeros((0, 3), dtype=np.float16),
    "flags": np.array([True, False]),
}


def test_numpy_reads_what_we_write_and_we_what_numpy_writes(tmp_path: Path) -> None:
    hcq.save({name: Tensor(array) for name, array in ARRAYS.items()}, tmp_path / "ours.npz")
    np.savez_compressed(tmp_path / "packed.npz", **ARRAYS)
    np.savez(tmp_path / "theirs.npz", **ARRAYS)
    for name, array in np.load(tmp_path / "ours.npz").items():
        np.testing.assert_array_equal(array, ARRAYS[name])
    for path in ("ours.npz", "theirs.npz", "packed.npz"):
        found = hcq.load(tmp_path / path)
        assert list(found) == list(ARRAYS)
        for name, array in ARRAYS.items():
            assert found[name].shape == array.shape
            np.testing.assert_array_equal(found[name].numpy(), array)


@pytest.mark.parametrize(
    "array", [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(6, dtype=">i4"), np.float32(3)]
)
def test_arrays_in_another_order_come_back(tmp_path: Path, array: Any) -> None:
    np.save(tmp_path / "x.npy", array)
    np.testing.assert_array_equal(hcq.load(tmp_path / "x.npy")["array"].numpy(), array)


def test_arrays_of_objects_and_of_records_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="unpickling, which this does not do"):
        hcq.load(tmp_path / "o.npy")
    np.save(tmp_path / "r.npy", np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]))
    with pytest.raises(UsageError, match="has records"):
        hcq.load(tmp_path / "r.npy")


def test_a_member_that_says_it_unpacks_to_more_than_it_can_is_refused(tmp_path: Path) -> None:
    header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1073741824,), }"
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header + text.ljust(118) + bytes(100))
    with pytest.raises(UsageError, match="has 100 bytes"):
        hcq.load(tmp_path / "x.npz")


def sharded(folder: Path) -> Path:
    nn.save_file({"a": Tensor([1.0])}, folder / "m-00001-of-00002.safetensors")
    nn.save_file({"b": Tensor([2.0])}, folder / "m-00002-of-00002.safetensors")
    index = folder / "model.safetensors.index.json"
    places = {"a": "m-00001-of-00002.safetensors", "b": "m-00002-of-00002.safetensors"}
    index.write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": places}))
    return index


def test_the_files_of_an_index_are_read_as_one_by_the_index_and_by_the_folder(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    for path in (index, tmp_path):
        found = hcq.load(path)
        assert {name: tensor.tolist() for name, tensor in found.items()} == {"a": [1.0], "b": [2.0]}
        assert found.metadata == {"total_size": 8}


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ("{", "no JSON"),
        ("[]", "no weight_map"),
        ('{"weight_map": {"a": 3}}', "no weight_map of strings"),
        ('{"weight_map": {"a": "../x"}}', "not a file beside it"),
        ('{"weight_map": {"c": "m-00001-of-00002.safetensors"}}', "has no tensor 'c'"),
    ],
)
def test_a_damaged_index_says_what_is_wrong(tmp_path: Path, index: str, why: str) -> None:
    sharded(tmp_path).write_text(index)
    with pytest.raises(UsageError, match=why):
        hcq.load(tmp_path)


def test_a_name_that_is_not_there_is_a_key_error_that_names_some_that_are(tmp_path: Path) -> None:
    hcq.save({"w": Tensor([1.0])}, tmp_path / "x.safetensors")
    found = hcq.load(tmp_path / "x.safetensors")
    with pytest.raises(KeyError, match=r"has no tensor 'v'; it has 1: w"):
        found["v"]
    assert found.get("v") is None


def test_a_module_takes_its_state_from_a_file_of_any_format(tmp_path: Path) -> None:
    layer, other = nn.Linear(3, 2), nn.Linear(3, 2)
    for path in ("x.safetensors", "x.npz", "x.gguf"):
        hcq.save(layer.state_dict(), tmp_path / path)
        other.load_state_dict(hcq.load(tmp_path / path))
        assert other.weight.tolist() == layer.weight.tolist()


@pytest.mark.parametrize(
    ("path", "tensors", "why"),
    [
        ("x.weights", {"w": Tensor([1.0])}, "'.weights' is not written"),
        ("x.npy", {}, "holds one tensor"),
        ("x.npz", {"w": Tensor([1.0]).cast(dtypes.bfloat16)}, "bfloat16 has no place"),
        ("x.gguf", {"w": hcq.tensor([True])}, "bool .* has no place in GGUF"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(tmp_path: Path, path: str, tensors: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        hcq.save(tensors, tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_a_file_of_no_known_format_says_what_it_begins_with(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"hello")
    with pytest.raises(UsageError, match=r"begins with b'hello'"):
        hcq.load(tmp_path / "x")


def test_show_lists_names_shapes_formats_and_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = Packed("Q8_0", (2, 32), bytes(68))
    hcq.save({"w": packed, "b": Tensor([1.0])}, tmp_path / "x.gguf", {"general.name": "tiny"})
    assert main(["show", str(tmp_path / "x.gguf")]) == 0
    shown = capsys.readouterr().out
    assert "GGUF, 2 tensors, 72 bytes" in shown
    assert "general.name  tiny" in shown
    assert "w  Q8_0  2 x 32  68 bytes" in shown
    assert main(["show", "--json", str(tmp_path / "x.gguf")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tensors"][1] == {
        "name": "b",
        "format": "F32",
        "dtype": "float32",
        "shape": [1],
        "size_bytes": 4,
    }
    (tmp_path / "bad").write_bytes(b"GGUF")
    assert main(["show", str(tmp_path / "bad")]) == 2


def of_every_format(folder: Path) -> list[Path]:
    """A small valid file of each format."""
    state = {"w": Tensor([[1.0, 2.0]]), "n": Tensor([3], dtype=dtypes.int8)}
    paths = [folder / f"x{suffix}" for suffix in (".safetensors", ".gguf", ".npz")]
    hcq.save(state, paths[0], {"a": "b"})
    hcq.save(
        state | {"q": Packed("Q4_0", (1, 32), bytes(18))}, paths[1], {"k": [1, 2], "s": ["x", "y"], "n": 7}
    )
    hcq.save(state, paths[2])
    np.savez_compressed(folder / "packed.npz", **ARRAYS)
    np.save(folder / "x.npy", ARRAYS["weight"])
    paths += [folder / "packed.npz", folder / "x.npy"]
    try:
        import torch
    except ImportError:
        return paths
    for is_zip in (True, False):
        paths.append(folder / f"{is_zip}.pt")
        saved = {
            "w": torch.ones(2, 3).T,
            "b": torch.nn.Parameter(torch.ones(2)),
            "lr": 0.5,
            "l": [1, (2, "x")],
        }
        torch.save(saved, paths[-1], _use_new_zipfile_serialization=is_zip)
    return paths


def mutated(raw: bytes, draw: random.Random) -> bytes:
    """A file that differs from a valid one: cut, or with bytes, numbers or pieces that are others."""
    found = bytearray(raw)
    if draw.random() < 0.2:
        del found[draw.randrange(len(found)) :]
    for _ in range(draw.randint(1, 4)):
        if not found:
            break
        at = draw.randrange(len(found))
        kind = draw.randrange(4)
        if kind == 0:
            found[at] = draw.randrange(256)
        elif kind == 1:
            found[at : at + 8] = draw.choice([bytes(8), b"\xff" * 8, draw.randbytes(8)])
        elif kind == 2:
            found[at : at + draw.randint(1, 9)] = b""
        else:
            found[at:at] = found[at : at + draw.randint(1, 40)]
    return bytes(found)


def check_tensors(found: Any, size: int) -> None:
    """Each is there, or one sentence; and all are no larger than such a file's can be."""
    whole = 0
    for name in found:
        try:
            whole += found[name].realize().nbytes
        except UsageError as error:
            assert "\n" not in str(error)
    assert whole <= 64 * size + (1 << 20)


def attack(paths: list[Path], folder: Path, count: int, seed: int) -> None:
    draw = random.Random(seed)
    valid = [path.read_bytes() for path in paths]
    tracemalloc.start()
    try:
        for _ in range(count):
            which = draw.randrange(len(paths))
            raw = mutated(valid[which], draw)
            path = folder / f"attacked{paths[which].suffix}"
            path.write_bytes(raw)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            found = None
            try:
                found = hcq.load(path)
            except UsageError as error:
                assert "\n" not in str(error)
            assert tracemalloc.get_traced_memory()[1] - before < 2 * len(raw) + (4 << 20)
            if found is not None:
                check_tensors(found, len(raw))
    finally:
        tracemalloc.stop()


def test_a_file_with_wrong_bytes_is_tensors_or_one_sentence(tmp_path: Path) -> None:
    attack(of_every_format(tmp_path), tmp_path, 100, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_files_with_wrong_bytes_are_tensors_or_one_sentence(tmp_path: Path, seed: int) -> None:
    attack(of_every_format(tmp_path), tmp_path, 1500, seed)


def many_lists(size: int) -> bytes:
    return size.to_bytes(8, "little") + b"[" + b"[]," * (size // 3 - 1) + b"[]]"


def many_strings(size: int) -> bytes:
    count = size // 9
    head = (
        b"GGUF"
        + struct.pack("<IQQ", 3, 0, 1)
        + struct.pack("<Q", 1)
        + b"k"
        + struct.pack("<IIQ", 9, 8, count)
    )
    return head + count * (struct.pack("<Q", 1) + b"a")


BOMBS: dict[str, Callable[[int], bytes]] = {"x.safetensors": many_lists, "x.gguf": many_strings}


@pytest.mark.thorough
@pytest.mark.parametrize("name", BOMBS)
def test_a_file_of_many_small_things_takes_little_memory(tmp_path: Path, name: str) -> None:
    raw = BOMBS[name](1 << 20)
    (tmp_path / name).write_bytes(raw)
    tracemalloc.start()
    try:
        hcq.load(tmp_path / name)
    except UsageError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2 * len(raw) + (24 << 20)
