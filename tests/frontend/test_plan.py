"""Plans in memory and on disk: whatever the cache holds, the numbers are right; what nobody needs is given back."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcq import config
from hcq.compiler import compile as compiling
from hcq.compiler import pipeline
from hcq.frontend.core import device as devices
from hcq.frontend.core.structure import Structure
from hcq.frontend.jit import jit
from hcq.frontend.run import kernel_sources
from hcq.frontend.run import plan as plans
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Node
from hcq.system.cache import DiskCache

A = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache folder of this test's own."""
    Tensor([1.0]).realize()  # the device opens with everybody's cache
    config.use(config.Config.read({**os.environ, "HCQ_CACHE_DIR": str(tmp_path / "cache")}))
    forget()
    yield tmp_path / "cache"
    config.use(None)
    forget()


def forget() -> None:
    """As in a new process."""
    compiling.forget()
    plans._plans.clear()
    plans._programs.clear()
    kernel_sources._known.clear()


def compute() -> list[np.ndarray]:
    forget()
    return [(Tensor(A) + 1).numpy(), (Tensor(A) * 2).numpy(), Tensor(A).sum(dim=1).numpy()]


def check(found: list[np.ndarray]) -> None:
    for got, want in zip(found, [A + 1, A * 2, A.sum(axis=1)], strict=True):
        np.testing.assert_array_equal(got, want)


def files(folder: Path, kind: str) -> list[Path]:
    return sorted(path for path in (folder / kind).rglob("*") if path.is_file())


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is really compiled."""
    seen: list[object] = []
    before = pipeline.build

    def count(sink: object, *rest: object) -> object:
        seen.append(sink)
        return before(sink, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "build", count)
    return seen


def test_a_second_process_compiles_nothing(folder: Path, compiled: list[object]) -> None:
    check(compute())
    first = len(compiled)
    assert first >= 3
    check(compute())
    assert len(compiled) == first


@pytest.mark.parametrize("kinds", list(itertools.product(("plan", "kernel"), repeat=2)))
def test_files_that_were_exchanged_change_no_result(folder: Path, kinds: tuple[str, str]) -> None:
    check(compute())
    ones, others = files(folder, kinds[0]), files(folder, kinds[1])
    contents = [path.read_bytes() for path in others]
    for path, data in zip(ones, contents[1:] + contents[:1]):
        path.write_bytes(data)
    check(compute())
    check(compute())


def damaged_plans(data: bytes) -> Iterator[bytes]:
    """What an earlier or a later version of ours might have meant by a plan, under the right key."""
    size = int.from_bytes(data[:8], "little")
    header, images = json.loads(data[8 : 8 + size]), data[8 + size :]

    def packed(changed: object) -> bytes:
        text = json.dumps(changed).encode()
        return len(text).to_bytes(8, "little") + text + images

    yield from (b"", b"hello", b"\xff" * 100, data[:-1], data + b"1", data[: size // 2])
    for value in (None, {}, "x", 1.5, -1, [None], [-1], [[]], [{}], [1.5], [[None] * 5]):
        yield packed(value)
        for name in header:
            yield packed({**header, name: value})
        for name in header["launches"][0]:
            launch = {**header["launches"][0], name: value}
            if name not in ("name", "choice", "flops", "traffic_bytes") and launch != header["launches"][0]:
                yield packed({**header, "launches": [launch]})
    for name in header:
        yield packed({key: value for key, value in header.items() if key != name})
    yield packed({**header, "launches": [{**header["launches"][0], "more": 1}]})
    yield packed({**header, "values": header["values"][:1]})


def test_a_plan_of_another_form_is_made_anew(folder: Path) -> None:
    check(compute())
    good: list[tuple[str, bytes]] = []
    before = DiskCache.put

    def put(self: DiskCache, kind: str, key: bytes | str, data: bytes) -> None:
        if kind == "plan":
            good.append((str(key), data))
        before(self, kind, key, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiskCache, "put", put)
        for path in files(folder, "plan"):
            path.unlink()
        check(compute())
    assert len(good) == 3
    key, data = good[0]
    assert plans._decode("CPU", data) is not None
    for damaged in damaged_plans(data):
        DiskCache().put("plan", key, damaged)
        forget()
        np.testing.assert_array_equal((Tensor(A) + 1).numpy(), A + 1)
        assert DiskCache().get("plan", key) == data, damaged


@pytest.mark.parametrize(
    "damage",
    [
        lambda code: b"hello",
        lambda code: b"{}\n",
        lambda code: dataclasses.replace(code, image=b"\x7fELF" + bytes(100)).to_bytes(),
        lambda code: dataclasses.replace(code, image=code.image[:-100]).to_bytes(),
        lambda code: dataclasses.replace(code, entry="another").to_bytes(),
        lambda code: dataclasses.replace(code, grid=(1, 1)).to_bytes(),
        lambda code: dataclasses.replace(code, scratch_bytes="1").to_bytes(),
    ],
    ids=["text", "no-fields", "no-object", "half", "entry", "grid", "types"],
)
def test_an_object_that_cannot_be_loaded_is_made_anew(
    folder: Path, damage: Callable[[compiling.CodeObject], bytes]
) -> None:
    class Damaging(DiskCache):
        """Keeps kernels and plans that are damaged before their hash is taken."""

        def put(self, kind: str, key: bytes | str, data: bytes) -> None:
            if kind == compiling.CACHE_KIND:
                data = damage(compiling.CodeObject.from_bytes(data))
            super().put(kind, key, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "DiskCache", Damaging)
        check(compute())
    for path in files(folder, "plan"):
        path.unlink()
    check(compute())  # finds the kernels
    check(compute())  # finds the plans, too


def test_texts_of_another_form_are_asked_for_anew(folder: Path) -> None:
    disk = DiskCache()
    for data in (b"", b"hello", b"\x78\x9c\x00"):
        disk.put(kernel_sources.KIND, kernel_sources._key(b"image", "entry"), data)
        assert kernel_sources.of(disk, b"image", "entry") is None
    kernel_sources.keep(disk, b"image", "entry", {"ir": "a", "code": "b"})
    kernel_sources._known.clear()
    assert kernel_sources.of(disk, b"image", "entry") == {"ir": "a", "source": "b"}


# -- what is kept in memory -----------------------------------------------------------------------------------------


@pytest.fixture
def few(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device, when four plans are kept; its ledger of submissions, which holds programs, is emptied by `settle`."""
    monkeypatch.setattr(plans, "MAX_PLANS", 4)
    monkeypatch.setattr(plans, "_plan_bytes", 0)
    return devices.get(devices.default())


def settle(device: Any) -> None:
    device.synchronize()
    device.recent.clear()
    gc.collect()


def test_programs_of_plans_that_went_go_and_their_code_is_given_back(few: Any) -> None:
    for size in range(1, 13):
        (Tensor([1.0] * size) * 3).realize()
    settle(few)
    assert len(plans._plans) == 4
    assert len(plans._programs) <= 8
    mapped = few.memory.mapped_bytes
    for size in range(13, 33):
        np.testing.assert_array_equal((Tensor([1.0] * size) * 3).numpy(), [3.0] * size)
        few.recent.clear()
        if size % 8 == 0:
            settle(few)
            assert len(plans._programs) <= 8
    assert few.memory.mapped_bytes == mapped


def test_a_plan_that_is_used_again_and_again_stays(few: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []
    before = plans._find

    def find(structure: Structure, roots: Sequence[Node], device: str) -> plans.Plan:
        found.append(structure.key)
        return before(structure, roots, device)

    monkeypatch.setattr(plans, "_find", find)
    for size in range(1, 13):
        np.testing.assert_array_equal((Tensor(A) * 3).numpy(), A * 3)
        np.testing.assert_array_equal((Tensor([1.0] * size) / 2).numpy(), [0.5] * size)
    assert len(found) == 13


def test_a_plan_that_is_too_large_to_keep_runs(few: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_PLAN_BYTES", 1)
    for _ in range(2):
        for number in range(4):
            np.testing.assert_array_equal((Tensor(A) - number).numpy(), A - number)
            assert len(plans._plans) == 1


def test_a_recording_keeps_its_programs(few: Any) -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        return ((x * 5 + 1).relu() - 3).realize()

    wanted = np.maximum(A * 5 + 1, 0) - 3
    for _ in range(3):
        np.testing.assert_array_equal(step(Tensor(A)).numpy(), wanted)
    for number in range(12):  # a power of two is part of the kernel
        (Tensor(A) * 2.0**number).realize()
    settle(few)
    for _ in range(3):
        np.testing.assert_array_equal(step(Tensor(A)).numpy(), wanted)


def test_code_of_work_in_flight_stays_when_its_plan_goes(few: Any) -> None:
    results = []
    for number in range(16):
        results.append((Tensor(A) * number).realize())
        few.recent.clear()
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result.numpy(), A * number)
