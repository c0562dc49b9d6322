"""Several ranks on this machine: what they compute together, and what they say when one is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.frontend.more.distributed.ranks import Outcome, run_ranks

pytestmark = pytest.mark.own_devices


def lines(outcome: Outcome, kind: str = "Timeout|RankLost|Error") -> list[str]:
    """The errors that ranks ended with. Ranks write at the same time: a line may have two, or begin within a name."""
    begins = rf"\.\w*(?:{kind}): \["
    parts = re.split(rf"(?={begins})", outcome.errors)
    return [part[1:].splitlines()[0] for part in parts if re.match(begins, part)]


def test_collectives_of_four_ranks_give_what_numpy_gives_to_the_last_bit() -> None:
    outcome = run_ranks(4, "collectives")
    assert outcome.status == 0, outcome.errors
    assert all(f"rank {rank} is right" in outcome.out for rank in range(4))


@pytest.mark.thorough
@pytest.mark.deadline(300)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_collectives_of_any_number_of_ranks_give_what_numpy_gives(ranks: int) -> None:
    outcome = run_ranks(ranks, "collectives")
    assert outcome.status == 0, outcome.errors
    assert outcome.out.count("is right") == ranks


@pytest.mark.deadline(150)
def test_a_killed_rank_is_named_and_two_ranks_go_on_to_what_one_would_have_reached(tmp_path: Path) -> None:
    alone = run_ranks(1, "train", str(tmp_path / "none"), "4")  # first: it compiles what the others find
    assert alone.status == 0, alone.errors

    path = str(tmp_path / "checkpoint.safetensors")
    killed = run_ranks(4, "train", path, "4", "2", "3")
    assert killed.status != 0
    said = lines(killed)
    assert len(said) == 3, killed.errors
    for line in said:
        assert re.search(
            r"\[all_reduce #\d+\] rank [012] .*: rank 3 on \S+ \(process \d+\) was killed by signal 9", line
        )

    resumed = run_ranks(2, "train", path, "4")
    assert resumed.status == 0, resumed.errors
    assert resumed.out == alone.out and "state" in alone.out


@pytest.mark.thorough
@pytest.mark.deadline(300)
def test_any_number_of_ranks_trains_to_the_same_bits_sharded_or_not(tmp_path: Path) -> None:
    outs = {
        run_ranks(ranks, "train", str(tmp_path / "none"), "5", "", "", sharded).out
        for ranks in (1, 2, 4)
        for sharded in ("", "sharded")
    }
    assert len(outs) == 1 and "state" in outs.pop()


def test_a_rank_that_does_not_come_is_named_with_the_operation_and_the_deadline() -> None:
    outcome = run_ranks(2, "slow")
    assert outcome.status != 0
    (late,) = lines(outcome, "WaitTimeout")
    assert re.search(
        r"\[barrier #\d+\] rank 0 of group 'world': waited 300 ms for rank 1 on \S+ \(process \d+\)", late
    )
    (other,) = lines(outcome, "RankLost")
    assert "rank 0" in other and "given up waiting for this rank" in other


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("what", "first", "others"),
    [
        ("shape", "all_reduce sum float32 (2, 9)", "all_reduce sum float32 (18,)"),
        ("length", "all_gather float32 (17,)", "all_gather float32 (18,)"),
        ("format", "all_reduce sum float16 (18,)", "all_reduce sum bfloat16 (18,)"),
        ("mean", "all_reduce mean float32 (18,)", "all_reduce sum float32 (18,)"),
        ("least", "reduce_scatter min float32 (18,)", "reduce_scatter max float32 (18,)"),
        ("root", "broadcast from 1 float32 (18,)", "broadcast from 0 float32 (18,)"),
        ("call", "all_gather float32 (18,)", "all_reduce sum float32 (18,)"),
        ("order", "all_reduce sum float32 (18,)", "broadcast from 0 float32 (18,)"),
        ("barrier", "barrier", "split"),
        ("close", "close", "barrier"),
    ],
)
def test_what_ranks_do_not_agree_on_is_refused_on_each_and_both_calls_are_named(
    what: str, first: str, others: str
) -> None:
    outcome = run_ranks(3, "unlike", what, HCQ_VALIDATE="0")
    assert "numbers" not in outcome.out
    for rank, own, theirs in ((0, first, others), (1, others, first), (2, others, first)):
        said = (
            re.escape(f"calls {own!r}, and rank ")
            + r"\d on \S+ \(process \d+\) "
            + re.escape(f"{theirs!r}: ")
        )
        assert re.search(rf"rank {rank} was refused: \[\w+ #2\] rank {rank} .* {said}", outcome.out), (
            outcome.out
        )


def test_two_ways_of_one_sum_are_refused() -> None:
    outcome = run_ranks(2, "unlike", "way")
    assert outcome.out.count("was refused") == 2
    assert "'all_reduce sum float32 (12,) halving'" in outcome.out


def test_a_message_of_another_shape_is_refused_on_both_ranks() -> None:
    outcome = run_ranks(2, "unlike", "message")
    assert "numbers" not in outcome.out
    assert re.search(
        r"\[send\] rank 0 .* with rank 1 sends 'float32 \(1048576,\)', and rank 1 .* takes", outcome.out
    )
    assert re.search(
        r"\[recv\] rank 1 .* with rank 0 takes 'float32 \(524288,\)', and rank 0 .* sends", outcome.out
    )


def test_what_a_rank_did_before_that_waits_for_nobody_is_known_when_others_come() -> None:
    outcome = run_ranks(2, "ahead")
    (said,) = lines(outcome, "UsageError")
    assert "calls 'all_reduce sum float32 (3,)', and rank 0 on" in said
    assert "'broadcast from 0 float32 (3,)'" in said


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("how", "fate"),
    [
        ("exit", "has come to the end of its program"),
        ("end", "has come to the end of its program"),
        ("error", "(has failed|ended with an error \\(status 1\\)), in clocks #1"),
        ("status", "ended with an error \\(status 3\\), in clocks #1"),
    ],
)
def test_a_rank_that_ends_is_told_from_one_that_calls_something_else(how: str, fate: str) -> None:
    outcome = run_ranks(3, "leave", how)
    assert outcome.status != 0
    assert "same operations in the same order" not in outcome.errors
    for rank in (0, 1):
        lost = (
            rf"RankLost: \[all_reduce #2\] rank {rank} of group 'world': rank 2 on \S+ \(process \d+\) {fate}"
        )
        assert re.search(lost, outcome.errors), outcome.errors


def test_divided_layers_and_stages_compute_what_a_whole_model_does() -> None:
    outcome = run_ranks(2, "divided")
    assert outcome.status == 0, outcome.errors
    assert outcome.out.count("is right") == 2


@pytest.mark.thorough
@pytest.mark.deadline(300)
@pytest.mark.parametrize("kind", ["tensor", "pipeline"])
def test_a_transformer_trains_alike_on_one_and_on_two_ranks(kind: str) -> None:
    alone, two = run_ranks(1, "transformer", kind), run_ranks(2, "transformer", kind)
    assert alone.status == two.status == 0, alone.errors + two.errors
    found = [[float(word) for word in re.findall(r"loss (\S+)", each.out)] for each in (alone, two)]
    assert len(found[0]) == 3
    assert found[0] == pytest.approx(found[1], abs=2e-5)


@pytest.mark.thorough
@pytest.mark.deadline(300)
def test_a_gpus_memory_travels_in_pieces_through_staging_buffers() -> None:
    outcome = run_ranks(2, "pieces", HCQ_EMULATE="amd:gfx1100", HCQ_DEVICE="AMD")
    assert outcome.status == 0, outcome.errors
    assert outcome.out.count("is right") == 2
