"""Saved tensors come back bit for bit, the format's own library agrees, and a damaged file is one clear error."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hcq import Tensor, UsageError, dtypes, nn
from hcq.frontend.io.safetensors import FORMATS, read_metadata
from hcq.frontend.run.realize import storage_of

theirs = pytest.importorskip("safetensors.numpy")


def raw(tensor: Tensor) -> bytes:
    buffer = storage_of(tensor).buffer
    return b"" if buffer is None else buffer.read(0, tensor.nbytes)


def of_every_dtype() -> dict[str, Tensor]:
    values = Tensor(np.arange(-3, 9, dtype=np.float32).reshape(3, 4))
    return {f"in {word}": values.cast(dtype).realize() for word, dtype in FORMATS.items()}


def test_every_dtype_comes_back_bit_for_bit(tmp_path: Path) -> None:
    saved = of_every_dtype()
    nn.save_file(saved, tmp_path / "all")
    loaded = nn.load_file(tmp_path / "all")
    assert set(loaded) == set(saved)
    for name, tensor in saved.items():
        assert (loaded[name].dtype, loaded[name].shape) == (tensor.dtype, (3, 4))
        assert raw(loaded[name]) == raw(tensor)


def test_the_formats_own_library_reads_what_we_write(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "weight": rng.standard_normal((5, 7)).astype(np.float32),
        "count": np.array(3, dtype=np.int64),
        "none": np.zeros((0, 4), dtype=np.float16),
        "flags": np.array([True, False, True]),
    }
    nn.save_file({name: Tensor(array) for name, array in arrays.items()}, tmp_path / "ours", {"epoch": "7"})
    found = theirs.load_file(tmp_path / "ours")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert read_metadata(tmp_path / "ours") == {"epoch": "7"}


def test_we_read_what_the_formats_own_library_writes(tmp_path: Path) -> None:
    arrays = {"b": np.arange(6, dtype=np.uint16).reshape(2, 3), "a": np.float64([1.5, -0.0])}
    theirs.save_file(arrays, tmp_path / "theirs", metadata={"by": "them"})
    for name, tensor in nn.load_file(tmp_path / "theirs").items():
        np.testing.assert_array_equal(tensor.numpy(), arrays[name])
    assert read_metadata(tmp_path / "theirs") == {"by": "them"}


def test_a_view_and_a_lazy_tensor_are_saved_as_their_values(tmp_path: Path) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    nn.save_file({"turned": x.T, "part": x[1], "sum": x + 1}, tmp_path / "views")
    loaded = nn.load_file(tmp_path / "views")
    assert loaded["turned"].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert loaded["part"].tolist() == [3.0, 4.0]
    assert loaded["sum"].tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_training_goes_on_from_a_file_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    x, y = Tensor.rand(16, 3), Tensor.rand(16, 1)

    def made() -> tuple[Any, Any]:
        model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
        return model, nn.optim.Adam(model.parameters(), lr=0.01)

    def steps(model: Any, optimizer: Any) -> list[float]:
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    model, optimizer = made()
    steps(model, optimizer)
    nn.save_file(model.state_dict(), tmp_path / "model")
    nn.save_file(optimizer.flat_state(), tmp_path / "optimizer")
    expected = steps(model, optimizer)
    again, its_optimizer = made()
    again.load_state_dict(nn.load_file(tmp_path / "model"))
    its_optimizer.load_state_dict(nn.load_file(tmp_path / "optimizer"))
    assert steps(again, its_optimizer) == expected


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    nn.save_file({"x": Tensor([1.0])}, path)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        nn.save_file({"x": Tensor([2.0])}, path)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]
    assert nn.load_file(path)["x"].tolist() == [1.0]


def test_what_the_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    for tensors, metadata in (
        ({"__metadata__": Tensor([1.0])}, None),
        ({"x": [1.0]}, None),
        ({1: Tensor([1.0])}, None),
        ({"x": Tensor([1.0])}, {"epoch": 7}),
    ):
        with pytest.raises(UsageError, match=r"\[save_file\]"):
            nn.save_file(tensors, tmp_path / "no", metadata)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def file_of(path: Path, header: Any, data: bytes = b"") -> Path:
    words = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(words).to_bytes(8, "little") + words + data)
    return path


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"not JSON", "the header is no JSON"),
        (b"[1]", "a JSON list"),
        (b"[" * 100_000, "no JSON"),
        ({"x": 3}, "does not say dtype"),
        ({"x": entry(dtype="F31")}, "of dtype 'F31'; known: BOOL"),
        ({"x": entry(shape=[-2])}, "has shape"),
        ({"x": entry(shape=[2.0])}, "has shape"),
        ({"x": entry(shape=[2**62, 2**62])}, "has 8 bytes"),
        ({"x": entry(offsets=[0])}, "offsets"),
        ({"x": entry(offsets=[8, 0])}, "bytes"),
        ({"x": entry(shape=[3], offsets=[0, 12])}, "the tensors take 12"),
        ({"x": entry(shape=[1], offsets=[4, 8])}, "begins at byte 4"),
        ({"x": entry(), "y": entry()}, "begins at byte 0 of the data, the one before it ends at 8"),
        ({"__metadata__": {"n": 1}, "x": entry()}, "something else than strings"),
        (b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":1}', "twice"),
    ],
)
def test_a_damaged_header_says_what_is_wrong(tmp_path: Path, header: Any, why: str) -> None:
    path = file_of(tmp_path / "bad", header, bytes(8))
    with pytest.raises(UsageError, match=why) as caught:
        nn.load_file(path)
    assert str(path) in str(caught.value)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_one_error_or_tensors_of_its_size(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "state"
    nn.save_file({"x": Tensor([1.0, 2.0]), "y": Tensor([3], dtype=dtypes.int8)}, path)
    blob = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del blob[data.draw(st.integers(0, len(blob) - 1)) :]
    for _ in range(data.draw(st.integers(0, 3))):
        if blob:
            blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(blob)
    try:
        loaded = nn.load_file(path)
    except UsageError as error:
        assert "damaged, or not a safetensors file" in str(error)
    else:
        assert sum(tensor.nbytes for tensor in loaded.values()) <= len(blob)
