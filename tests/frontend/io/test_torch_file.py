"""PyTorch's files: every tensor comes back, and a pickle that would run something is refused by name."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def saved(tmp_path: Path, value: Any, **options: Any) -> Path:
    torch = pytest.importorskip("torch")
    torch.save(value, tmp_path / "x.pt", **options)
    return tmp_path / "x.pt"


@pytest.fixture
def state() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    base = torch.randn(6, 8)
    return OrderedDict(
        whole=base,
        turned=base.T,
        part=base[1:5, 2:7],
        steps=base[::2, 1::3],
        bf16=torch.randn(3, 5).bfloat16(),
        half=torch.randn(4).half(),
        bytes=torch.arange(7, dtype=torch.uint8),
        long=torch.tensor(-3),
        flags=torch.tensor([True, False]),
        none=torch.zeros(0, 3),
        parameter=torch.nn.Parameter(torch.randn(2, 2)),
        spread=torch.randn(3, 1).expand(3, 4),
    )


@pytest.mark.parametrize("is_zip", [True, False])
def test_every_tensor_of_a_state_dict_comes_back(tmp_path: Path, state: Any, is_zip: bool) -> None:
    found = hcq.load(saved(tmp_path, state, _use_new_zipfile_serialization=is_zip))
    assert list(found) == list(state)
    for name, tensor in state.items():
        assert found.entry(name).shape == tuple(tensor.shape)
        np.testing.assert_array_equal(found[name].float().numpy(), tensor.detach().float().numpy(), name)


def test_dtypes_without_a_storage_class_of_their_own_come_back(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    values = {
        "fp8": torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn),
        "u16": torch.tensor([65535], dtype=torch.uint16),
    }
    found = hcq.load(saved(tmp_path, values))
    assert found["fp8"].float().tolist() == [1.5, -2.0]
    assert found["u16"].tolist() == [65535]


def test_tensors_in_a_checkpoint_are_named_by_their_path_and_the_rest_is_metadata(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    one = torch.ones(2)
    found = hcq.load(
        saved(tmp_path, {"model": {"w": one}, "list": [one, {"x": one}], "epoch": 3, "type": torch.float16})
    )
    assert list(found) == ["model.w", "list.0", "list.1.x"]
    assert dict(found.metadata) == {"epoch": 3, "type": "torch.float16"}


def test_the_state_of_an_optimizer_loads(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    w = torch.nn.Parameter(torch.ones(3))
    adam = torch.optim.Adam([w])
    w.sum().backward()
    adam.step()
    found = hcq.load(saved(tmp_path, adam.state_dict()))
    np.testing.assert_array_equal(
        found["state.0.exp_avg"].numpy(), adam.state_dict()["state"][0]["exp_avg"].numpy()
    )
    assert found.metadata["param_groups.0.lr"] == 0.001


def test_a_list_of_plain_values_is_one_of_the_metadata(tmp_path: Path) -> None:
    value = {"losses": [3.0, 2.0], "betas": [(0.9, 0.99), "x"]}
    found = hcq.load(zip_with(tmp_path, pickle.dumps(value)))
    assert dict(found.metadata) == {"losses": [3.0, 2.0], "betas.0": (0.9, 0.99), "betas.1": "x"}


def test_few_bytes_that_stand_for_very_many_paths_are_refused(tmp_path: Path) -> None:
    doubled: Any = [{"leaf": 1}]
    for _ in range(40):
        doubled = [doubled, doubled]
    wide = [[{"k" * 2000: 0}] * 10_000] * 10_000
    itself: list[Any] = []
    itself.append(itself)
    for value in (doubled, wide, itself):
        with pytest.raises(
            UsageError,
            match=r"several times as much memory as the file is large|holds itself, or is too deep",
        ):
            hcq.load(zip_with(tmp_path, pickle.dumps(value, 2)))


class Runs:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


def zip_with(tmp_path: Path, pickled: bytes, **more: bytes) -> Path:
    path = tmp_path / "hand.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickled)
        for name, raw in more.items():
            archive.writestr(f"a/data/{name}", raw)
    return path


@pytest.mark.parametrize("value", [Runs(), {"w": Runs()}, [OrderedDict(a=Runs())]])
def test_a_pickle_that_calls_something_is_refused_by_name(tmp_path: Path, value: Any) -> None:
    for protocol in (0, 2, 4):
        with pytest.raises(UsageError, match=r"names '(posix|os)\.system', which is not run"):
            hcq.load(zip_with(tmp_path, pickle.dumps(value, protocol)))


def test_a_whole_model_is_refused_with_the_class_it_needs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(UsageError, match=r"torch.nn.modules.linear.Linear.*state_dict"):
        hcq.load(saved(tmp_path, torch.nn.Linear(2, 2)))


def of_view(
    offset: int = 0, shape: Any = (2,), strides: Any = (1,), count: Any = 2, kind: str = "FloatStorage"
) -> bytes:
    """A pickle of one tensor, as torch.save writes it, of numbers that may be wrong."""
    out = io.BytesIO()
    plain = pickle._Pickler(out, 2)  # type: ignore[attr-defined]
    plain.write(pickle.PROTO + b"\x02" + b"ctorch._utils\n_rebuild_tensor_v2\n(")
    plain.write(b"(")
    plain.save("storage")
    plain.write(f"ctorch\n{kind}\n".encode())
    for item in ("0", "cpu", count):
        plain.save(item)
    plain.write(b"tQ")
    for item in (offset, shape, strides, False, ()):
        plain.save(item)
    plain.write(b"tR.")
    return out.getvalue()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"offset": 1}, "ends behind its storage"),
        ({"offset": -1}, "offset -1"),
        ({"shape": (3,)}, "ends behind its storage"),
        ({"shape": (2**40, 2**40), "strides": (0, 0)}, "repeats a storage"),
        ({"strides": (5,)}, "ends behind its storage"),
        ({"shape": (2, 1)}, "strides"),
        ({"shape": ("a",)}, "shape"),
        ({"count": 3}, "has 8 bytes"),
        ({"count": -1}, "storages are of"),
        ({"kind": "ComplexFloatStorage"}, "ComplexFloatStorage"),
    ],
)
def test_a_tensor_that_its_storage_does_not_hold_is_refused(tmp_path: Path, wrong: Any, why: str) -> None:
    assert hcq.load(zip_with(tmp_path, of_view(), **{"0": bytes(8)}))[""].tolist() == [0.0, 0.0]
    with pytest.raises(UsageError, match=why):
        list(hcq.load(zip_with(tmp_path, of_view(**wrong), **{"0": bytes(8)})).values())


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "bytes are missing"),
        (b"\x80\x02.", "stops making sense"),
        (b"\x80\x02]q\x00h\x00a.", "holds itself"),
        (b"\x80\x02" + b"(" * 99, "bytes are missing|stops"),
        (b"\x80\x02ccodecs\n" + b"x" * 5000 + b"\n.", "which is not run"),
        (b"\x80\x02}K\x01K\x02K\x03u.", "stops making sense"),
        (b"\x80\x02P1\n.", "opcode 'P'"),
    ],
)
def test_a_damaged_pickle_is_one_sentence(tmp_path: Path, raw: bytes, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        hcq.load(zip_with(tmp_path, raw))


@pytest.mark.thorough
def test_a_pickle_that_is_large_beside_its_tensors_is_refused_before_it_fills_memory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="several times as much memory as the file is large"):
        hcq.load(zip_with(tmp_path, b"\x80\x02" + b"]" * (2 << 20) + b"."))
