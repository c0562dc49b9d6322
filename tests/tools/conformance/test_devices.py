"""Between devices every difference of a sample is told, with the device that it is on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import hcq
from hcq import config
from hcq.tools.conformance import devices as between_devices
from hcq.tools.conformance.devices import NoDevice, apart, check, emulated, page, values_apart

OP = SimpleNamespace(name="add", decorators=(), supports_autograd=True)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What these tests say of devices ends with them."""
    before = config.current()
    for name in ("HCQ_EMULATE", "HCQ_DEVICE"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    yield
    config.use(before)


# -- names -----------------------------------------------------------------------------------------------------------


def test_emulated_devices_of_one_kind_are_numbered() -> None:
    assert emulated(["CPU", "amd:gfx1100", "nv:sm_90", "amd:gfx1201"]) == ["CPU", "AMD", "NV", "AMD:1"]
    assert os.environ["HCQ_EMULATE"] == "amd:gfx1100,nv:sm_90,amd:gfx1201"


def test_names_of_devices_that_are_there_ask_for_no_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HCQ_EMULATE")
    assert emulated(["CPU", "AMD:1"]) == ["CPU", "AMD:1"]
    assert "HCQ_EMULATE" not in os.environ


@pytest.mark.parametrize(
    "name,said",
    [("Foo", "unknown device"), ("amd:gfx9999", "unknown architecture"), ("foo:bar", "unknown device")],
)
def test_a_device_that_is_not_there_is_named_before_anything_runs(name: str, said: str) -> None:
    with pytest.raises(NoDevice, match=rf"^--devices {name}: .*{said}") as refused:
        check(["CPU", name])
    assert "\n" not in str(refused.value)


def test_devices_that_are_there_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HCQ_EMULATE")
    check(["CPU", "CPU:1"])


# -- what a difference is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first,found,said",
    [
        ("UsageError: x", "UsageError: x", ""),
        ("UsageError: x", "UsageError: y", "UsageError: y instead of UsageError: x"),
        ("UsageError: x", ([], []), "a result instead of UsageError: x"),
        (([], []), "DeviceFault: x", "DeviceFault: x instead of a result"),
        (([3], []), ([3], []), ""),
        (([3], []), ([4], []), "4 instead of 3"),
        (([3], []), ([3.0], []), "3.0 instead of 3"),
        (([float("nan")], []), ([float("nan")], []), ""),
        (([3], []), ([3, 3], []), "2 results instead of 1"),
        (([3], [None]), ([3], [2]), "gradient: 2 instead of None"),
        (([3], "UsageError: x"), ([3], "UsageError: x"), ""),
        (([3], "UsageError: x"), ([4], "UsageError: x"), "4 instead of 3"),
        (([3], [2]), ([3], "UsageError: x"), "gradient: UsageError: x instead of a gradient"),
        (([3], "UsageError: x"), ([3], [2]), "gradient: a gradient instead of UsageError: x"),
    ],
)
@pytest.mark.torch
def test_errors_and_plain_values_are_the_same_or_differ(first: Any, found: Any, said: str) -> None:
    assert apart(OP, first, found) == said


@pytest.mark.torch
def test_what_is_no_float_is_equal_and_floats_are_near() -> None:
    import torch

    x = torch.tensor([1.0, -2.0, float("nan"), float("inf")])
    whole = torch.tensor([10_000_000, 2])
    assert values_apart(OP, [x, whole], [x * (1 + 4e-7), whole], 0.0, 0.0) == ""
    one_more = whole + torch.tensor([1, 0])
    assert values_apart(OP, [whole], [one_more], 0.1, 0.1).startswith("1 of 2 elements differ: 10000001")
    assert values_apart(OP, [x], [x * 1.001], 0.0, 0.0).startswith("2 of 4 elements differ")
    assert values_apart(OP, [x], [x * 1.001], 0.01, 0.0) == ""
    assert values_apart(OP, [x], [x.nan_to_num(0.0)], 0.0, 0.0).startswith("2 of 4 elements differ: 0.0")
    assert values_apart(OP, [x], [x.double()], 0.0, 0.0) == "torch.float64 (4,) instead of torch.float32 (4,)"
    assert values_apart(OP, [x], [x[None]], 0.0, 0.0) == "torch.float32 (1, 4) instead of torch.float32 (4,)"


@pytest.mark.torch
def test_a_device_that_computes_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def alike(x: Any) -> Any:
        return x * x

    def off(x: Any) -> Any:
        return x * x + float(x.device == "CPU:1")

    def steeper(x: Any) -> Any:
        return x * x + (x - x.detach()) * float(x.device == "CPU:1")

    def refused(x: Any) -> Any:
        return x.reshape(3) if x.device == "CPU:1" else x

    def refused_alike(x: Any) -> Any:
        return x.reshape(3)

    monkeypatch.delenv("HCQ_EMULATE")
    sample = SimpleNamespace(input=torch.tensor([1.0, 2.0], requires_grad=True), args=(), kwargs={})
    outcomes = [
        between_devices.run_sample(OP, function, sample, ["CPU", "CPU:1"])
        for function in (alike, off, steeper, refused, refused_alike)
    ]
    assert [outcome.status for outcome in outcomes] == ["passes", "wrong", "wrong", "wrong", "refused"]
    assert outcomes[1].why == "CPU:1: 2 of 2 elements differ: 2.0 instead of 1.0"
    assert outcomes[2].why == "CPU:1: gradient: 2 of 2 elements differ: 3.0 instead of 2.0"
    assert outcomes[3].why.startswith("CPU:1: UsageError: [reshape]")
    assert outcomes[4].why.startswith("alike: UsageError: [reshape]")


@pytest.mark.torch
def test_random_numbers_begin_at_one_seed_on_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.delenv("HCQ_EMULATE")
    sample = SimpleNamespace(input=torch.zeros(5), args=(), kwargs={})
    rolled = between_devices.run_sample(OP, hcq.Tensor.rand_like, sample, ["CPU", "CPU:1"])
    assert rolled.status == "passes"


# -- the page --------------------------------------------------------------------------------------------------------


def test_the_page_names_what_differs_what_is_refused_and_what_was_measured() -> None:
    rows = [
        {"operator": "add", "status": "passes", "counts": {"passes": 3}, "why": []},
        {
            "operator": "mul",
            "status": "wrong",
            "counts": {"passes": 2, "wrong": 1},
            "why": ["bool: NV: 1, not 2"],
        },
        {"operator": "sort", "status": "late", "counts": {"late": 6}, "why": ["not done in 9 s"]},
        {"operator": "topk", "status": "refused", "counts": {"refused": 3}, "why": ["alike"]},
        {"operator": "frexp", "status": "missing", "counts": {"missing": 3}, "why": []},
    ]
    text = page(rows, ["CPU", "nv:sm_90"], 6, ["abc"])
    assert "| core | 1 of 5 | 20.0 % | 5 of 18 | 27.8 % |" in text
    assert "- `mul` wrong: bool: NV: 1, not 2\n- `sort` late: not done in 9 s\n" in text
    assert "Refused alike on every device: samples of `topk`. Missing: 1 operators." in text
    assert "The samples of each dtype" in text
    assert "Measured at revision abc." in text
    assert "The first 2 samples of each dtype" in page(rows, ["CPU", "nv:sm_90"], 2)
    assert "None." in page(rows[:1], ["CPU", "nv:sm_90"], 1)
