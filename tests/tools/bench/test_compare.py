"""The benchmark program: what its figures mean, and that a wrong result never becomes a time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest

from hcq.tools.bench import compare, worker
from hcq.tools.bench.cases import language, quantised
from hcq.tools.bench.cases.case import LIBRARIES, Case
from hcq.tools.bench.cases.convolutions import _convolve
from hcq.tools.bench.cases.overheads import TinyAdds
from hcq.tools.bench.cases.quantised import LlamaDecodeQ4, LlamaDecodeQ8
from hcq.tools.bench.cases.training import ALL_CASES


def row(unit: str, ours: float, theirs: float) -> compare.Row:
    return compare.Row(
        "case", "", unit, figures={"hcq": compare.Figure(ours), "numpy": compare.Figure(theirs)}
    )


@pytest.mark.parametrize(
    ("unit", "ours", "theirs"),
    [("GFLOP/s", 300, 100), ("GB/s", 30, 10), ("tokens/s", 90, 30), ("us", 2, 6), ("s", 0.1, 0.3)],
)
def test_a_ratio_above_one_means_that_we_are_faster(unit: str, ours: float, theirs: float) -> None:
    assert row(unit, ours, theirs).ratio("numpy") == pytest.approx(3)


def test_a_peer_without_a_figure_has_no_ratio() -> None:
    compared = row("us", 2, 6)
    compared.figures["torch"] = compare.Figure(reason="not installed")
    assert compared.ratio("torch") is None


def test_a_figure_is_the_median_of_the_runs() -> None:
    rate = compare.figure([0.5, 0.1, 0.2], amount=1, unit="GB/s")
    assert (rate.value, rate.low, rate.high, rate.runs) == (5, 2, 10, 3)
    time = compare.figure([0.001, 0.004, 0.002], amount=1000, unit="us")
    assert time.value == pytest.approx(2)


def test_a_wrong_result_is_refused() -> None:
    expected = numpy.arange(16.0)
    worker.check(TinyAdds(), expected.astype("float32"), expected)
    with pytest.raises(ArithmeticError, match="relative error"):
        worker.check(TinyAdds(), expected + 1, expected)
    with pytest.raises(ArithmeticError, match="shape"):
        worker.check(TinyAdds(), expected[:1], expected)
    with pytest.raises(ArithmeticError, match="relative error nan"):
        worker.check(TinyAdds(), expected * numpy.nan, expected)


def test_the_expected_convolution_is_the_convolution() -> None:
    draw = numpy.random.default_rng(0)
    x, w = draw.standard_normal((2, 3, 5, 4)), draw.standard_normal((6, 3, 3, 3))
    padded = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for n, k, i, j in [(0, 0, 0, 0), (1, 5, 4, 3), (1, 2, 2, 1)]:
        direct = (padded[n, :, i : i + 3, j : j + 3] * w[k]).sum()
        assert _convolve(x, w)[n, k, i, j] == pytest.approx(direct)


@pytest.mark.parametrize("name", ["tiny-adds", "replay-100"])
def test_a_worker_checks_and_times_a_library(name: str) -> None:
    worker = compare.Worker("numpy", name, compare.environment_for("numpy"))
    try:
        times = worker.block(0.001)
    finally:
        worker.close()
    assert times
    assert all(seconds > 0 for seconds in times)


@pytest.mark.parametrize(("first", "others", "runs"), [(1, 1, 7), (1, 50, 3), (9, 1, 1)])
def test_a_block_has_three_runs_or_as_many_as_fit_or_one_that_is_too_long(
    first: int, others: int, runs: int
) -> None:
    """On a clock that only the runs move on; each look at it is a tenth of a second."""
    now, durations = [0.0], iter([first])

    def clock() -> float:
        now[0] += 0.1
        return now[0]

    def run() -> None:
        now[0] += next(durations, others)

    times = worker.block(run, 8.0, clock)
    assert len(times) == runs


@pytest.mark.parametrize("name", [pytest.param("mlp-sgd-step", marks=pytest.mark.thorough), "mlp-adam-step"])
def test_the_gradients_by_hand_are_ours(name: str) -> None:
    """NumPy's training step has no check but that of its first loss: later ones tell whether the weights move alike."""
    case = ALL_CASES[name]()
    inputs = case.inputs()
    losses = []
    for library in ("hcq", "numpy"):
        make = case.maker(library)
        assert make is not None
        run = make(inputs)
        losses.append([float(worker.fetch(run())) for _ in range(4)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.deadline(120)
@pytest.mark.parametrize("case", language.LANGUAGE_CASES)
def test_a_language_model_of_small_sizes_is_right(
    case: type[language._Gpt2], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"VOCABULARY": 50, "CONTEXT": 32, "WIDTH": 32, "DEPTH": 2, "HEADS": 2, "BEFORE": 8, "KEPT": 16}
    for name, size in small.items():
        monkeypatch.setattr(language, name, size)
    worker.prepare(case(), "hcq")


@pytest.mark.parametrize("case", [LlamaDecodeQ8, pytest.param(LlamaDecodeQ4, marks=pytest.mark.thorough)])
def test_a_quantised_model_of_small_sizes_is_right(case: type[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"VOCABULARY": 64, "WIDTH": 256, "DEPTH": 1, "HEADS": 2, "INNER": 256, "BEFORE": 1, "KEPT": 32}
    for name, size in small.items():
        monkeypatch.setattr(quantised, name, size)
    monkeypatch.setattr(case, "tolerance", 1e-4)  # ours is that near: the case's own is for llama.cpp
    worker.prepare(case(), "hcq")


def test_a_library_that_cannot_run_a_case_says_why() -> None:
    with pytest.raises(RuntimeError, match="nothing to compare"):
        compare.Worker("numpy", "digits-step", compare.environment_for("numpy"))


def test_an_unknown_case_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.main(["sgemv"])
    assert "no case begins with 'sgemv'; cases: sgemm-256" in capsys.readouterr().err


def test_every_case_measures_us_and_somebody_else() -> None:
    for case in ALL_CASES.values():
        compared = [library for library in LIBRARIES if case.method(library)]
        assert compared[0] == "hcq"
        assert len(compared) > 1
    assert ALL_CASES["sgemm-512"]().amount == pytest.approx(0.268435456)


@pytest.mark.deadline(120)
def test_the_program_prints_and_keeps_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "figures.json"
    assert (
        compare.main(
            [
                "tiny-adds",
                "--quick",
                "--processor-time",
                "--only",
                "numpy",
                "--no-ceilings",
                "--json",
                str(kept),
            ]
        )
        == 0
    )
    assert "tiny-adds" in capsys.readouterr().out
    (measured,) = json.loads(kept.read_text())["rows"]
    assert measured["figures"]["hcq"]["value"] > 0
    assert measured["figures"]["numpy"]["value"] > 0
