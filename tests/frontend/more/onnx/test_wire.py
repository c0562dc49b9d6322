"""A file that is no model is refused in one sentence, whatever it holds, and costs no more memory than it is large."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from hcq import UsageError
from hcq.frontend.more.onnx import OnnxModel, proto
from hcq.frontend.more.onnx import graph as graphs
from hcq.frontend.more.onnx.wire import Damaged, fields, packed_varints, varint
from tests.frontend.onnx_files import field, function, graph, model, node, tensor, value
from tests.frontend.onnx_files import varint as written

RELU = graph([node("Relu", ["x"], ["y"])], [value("x", shape=[3])], [value("y", shape=[3])])


def refused(data: bytes) -> str:
    """The sentence that a file is refused with."""
    with pytest.raises(UsageError) as caught:
        OnnxModel(data)
    text = str(caught.value)
    assert text.startswith("[OnnxModel]") and len(text) < 5000
    return text


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1])
def test_a_varint_is_read_as_it_was_written(number: int) -> None:
    assert varint(memoryview(written(number)), 0) == (number, len(written(number)))


def test_packed_numbers_are_those_that_one_by_one_give() -> None:
    rng = random.Random(3)
    numbers = [rng.getrandbits(rng.choice((3, 7, 14, 40, 64))) for _ in range(30000)]
    packed = memoryview(b"".join(map(written, numbers)))
    assert packed_varints([packed], len(numbers), "it").tolist() == numbers


def test_every_truncated_file_is_refused_or_another_model() -> None:
    whole = model(RELU)
    for size in range(len(whole)):
        try:
            OnnxModel(whole[:size])
        except UsageError as error:
            assert str(error).startswith("[OnnxModel]")


def test_random_damage_is_refused_or_another_model() -> None:
    rng = random.Random(1)
    whole = model(
        graph([node("Add", ["x", "w"], ["y"])], [value("x")], [value("y")], [tensor("w", np.ones(4))])
    )
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            OnnxModel(bytes(damaged))
        except UsageError as error:
            assert str(error).startswith("[OnnxModel]")


def test_a_length_beyond_the_file_is_refused() -> None:
    with pytest.raises(Damaged, match="says 1000 bytes where 0 are left"):
        list(fields(memoryview(written(7 << 3 | 2) + written(1000))))


def test_a_shape_that_its_numbers_do_not_fill_takes_no_memory() -> None:
    huge = b"".join(field(1, 2**40) for _ in range(3)) + field(2, 1) + field(8, "w") + field(9, b"1234")
    assert "has 4 bytes, not" in refused(model(graph([], [], [], [huge])))
    negative = field(1, -5) + field(2, 1) + field(8, "w")
    assert "[-5]" in refused(model(graph([], [], [], [negative])))


def test_numbers_without_a_shape_to_fill_are_refused_when_they_are_read() -> None:
    few = field(1, 2**40) + field(2, 7) + field(8, "w") + field(7, written(5))
    made = OnnxModel(model(graph([node("Neg", ["w"], ["y"])], [], [value("y", "int64")], [few])))
    with pytest.raises(UsageError, match="has 1 numbers where its shape says 1099511627776"):
        made()


def test_graphs_within_graphs_end_somewhere() -> None:
    inner = graph([], [], [])
    for _ in range(200):
        inner = graph([node("If", ["c"], [], then_branch=inner)], [], [])
    assert "more than 32 deep" in refused(model(inner))


def test_many_small_records_cost_no_more_than_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proto.MAX_RECORDS <= 500_000
    monkeypatch.setattr(proto, "MAX_RECORDS", 10_000)
    many = model(field(1, b"") * 1_000_000)
    tracemalloc.start()
    assert "more than 10,000" in refused(many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400 * proto.MAX_RECORDS  # bytes for each, and nothing for those beyond


def test_a_graph_with_a_circle_is_refused() -> None:
    nodes = [node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"])]
    assert "Relu 'relu_a' uses 'b', which nothing before it makes" in refused(
        model(graph(nodes, [], [value("a")]))
    )


def test_a_value_is_made_once() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]
    assert "makes 'y', which is there already" in refused(model(graph(nodes, [value("x")], [value("y")])))


def test_an_output_that_nothing_makes_is_refused() -> None:
    assert "output 'y'" in refused(model(graph([], [value("x")], [value("y")])))


def test_functions_that_call_themselves_or_grow_without_end_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert graphs.MAX_STEPS <= 100_000
    monkeypatch.setattr(graphs, "MAX_STEPS", 3000)
    self_calling = function("f", "own", ["a"], ["b"], [node("f", ["a"], ["b"], domain="own")])
    call = graph([node("f", ["x"], ["y"], domain="own")], [value("x")], [value("y")])
    assert "calls itself" in refused(model(call, functions=[self_calling], own=1))
    doubling = [
        function(
            f"f{i}", "own", ["a"], ["b"],
            [node(f"f{i + 1}", ["a"], ["m"], domain="own"), node(f"f{i + 1}", ["m"], ["b"], domain="own")],
        )
        for i in range(30)
    ]  # fmt: skip
    last = function("f30", "own", ["a"], ["b"], [node("Relu", ["a"], ["b"])])
    start = graph([node("f0", ["x"], ["y"], domain="own")], [value("x")], [value("y")])
    assert "more than 3,000" in refused(model(start, functions=[*doubling, last], own=1))


def test_all_operators_that_are_not_known_are_named_with_their_nodes() -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Foo", ["a"], ["b"]),
        node("Bar", ["b"], ["c"], domain="com.example"),
        node("Elu", ["c"], ["y"], colour=3),
    ]
    text = refused(model(graph(nodes, [value("x")], [value("y")]), **{"com.example": 1}))
    assert "3 nodes" in text and "Foo 'foo_b'" in text and "com.example.Bar 'bar_c'" in text
    assert "attribute 'colour' is not known" in text


def test_operators_of_the_future_are_refused() -> None:
    assert "known are 1 to" in refused(model(RELU, opset=99))


def test_external_data_is_read_beside_the_model_and_nowhere_else(tmp_path: Path) -> None:
    weights = np.arange(6, dtype=np.float32)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "weights.bin").write_bytes(b"1234" + weights.tobytes())
    (tmp_path / "secret").write_bytes(weights.tobytes())

    def written_to(location: str, **words: str) -> OnnxModel:
        constant = tensor("w", weights, location=location, **words)
        path = tmp_path / "folder" / "m.onnx"
        path.write_bytes(model(graph([node("Neg", ["w"], ["y"])], [], [value("y")], [constant])))
        return OnnxModel(path)

    good = written_to("weights.bin", offset="4", length="24")
    np.testing.assert_array_equal(good()["y"].numpy(), -weights)
    for location, words, why in [
        ("../secret", {}, "outside of the model's folder"),
        (str(tmp_path / "secret"), {}, "outside of the model's folder"),
        ("gone.bin", {}, "No such file"),
        ("weights.bin", {"offset": "8"}, "wants bytes 8 to 32"),
        ("weights.bin", {"offset": "-4"}, "wants bytes"),
        ("weights.bin", {"length": "8"}, "says 8"),
        ("weights.bin", {"offset": "x"}, "has the place"),
    ]:
        with pytest.raises(UsageError, match=why):
            written_to(location, **words)()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="outside of the model's folder"):
        written_to("link")()
    (tmp_path / "folder" / "itself").symlink_to("itself")
    for location in ("itself", "a\0b"):
        with pytest.raises(UsageError, match="which leads nowhere"):
            written_to(location)()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", ["", "rounds"])
@pytest.mark.parametrize("condition", ["", "on"])
def test_a_loop_without_end_is_refused(count: str, condition: str) -> None:
    body = graph(
        [node("Identity", ["c"], ["again"]), node("Identity", ["v"], ["after"])],
        [value("i", "int64", []), value("c", "bool", []), value("v", shape=[3])],
        [value("again", "bool", []), value("after", shape=[3])],
    )
    constants = [tensor("rounds", np.array(1 << 60)), tensor("on", np.array(True))]
    whole = graph(
        [node("Loop", [count, condition, "x"], ["y"], body=body)],
        [value("x", shape=[3])],
        [value("y")],
        constants,
    )
    with pytest.raises(UsageError, match="in one call there are at most 100,000"):
        OnnxModel(model(whole))(x=np.ones(3, np.float32))
