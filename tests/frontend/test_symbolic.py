"""Sizes that are known only when the work runs: what NumPy gives for each, from one kernel and one recording.

What lies in memory beyond a size is NaN in these tests: none of it gets into a result.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hcq import Tensor, Variable, dtypes, jit, save_program
from hcq.errors import UsageError
from hcq.frontend.run import plan as plans
from hcq.frontend.schedule import scores as large_scores
from hcq.performance import counters
from tests.compiler.emulated_gpus import machine_of, name_of

pytestmark = pytest.mark.own_devices

ROOM, WIDTH = 6, 4
GPUS = {"AMD": "amd:gfx1100", "NV": "nv:sm_90", "METAL": "metal:m3"}
machine = machine_of(*GPUS.values())
gpu = name_of({"CPU": "cpu", **GPUS}, thorough=("metal:m3",))


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def with_junk(array: Any, room: int, device: str) -> Tensor:
    """An array in a tensor with room for more rows, which are NaN, or a number that no table has."""
    junk = np.nan if array.dtype.kind == "f" else 99
    rest = np.full((room - len(array), *array.shape[1:]), junk, array.dtype)
    return Tensor(np.concatenate([array, rest]), device=device).realize()


def close(actual: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    found = actual.numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def softmax(x: Any, axis: int) -> Any:
    weights = np.exp(x - x.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


def normed(x: Any, axis: int) -> Any:
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


# -- one recording for all sizes --------------------------------------------------------------------------------------


def of_tensors(x: Tensor, w: Tensor, table: Tensor, ids: Tensor, n: Any) -> list[Tensor]:
    y, ids = x[:n], ids[:n]
    return [
        y,
        y * 2 + 1,
        y.sum(),
        y.sum(0),
        y.mean(0),
        y.mean(),
        y.var(0, correction=0),
        y.amax(0),
        y.prod(0),
        y.argmax(0),
        y.cumsum(0),
        y.softmax(0),
        y.logsumexp(0),
        y.layer_norm((WIDTH,)),
        y.T - y.T.mean(1, keepdim=True),
        y @ w,
        y.T @ y,
        y @ y.T,
        y.reshape(n, 2, 2).transpose(0, 1),
        y.reshape(-1)[n * WIDTH - 1],
        y[-1],
        y[n - 1 : n],
        y[(n - 1) // 2],
        y[:, 1:3],
        y[:, None].expand(n, 2, WIDTH),
        ids.embedding(table),
        table[ids] * Tensor(n),
        y[ids % n],
        y.scaled_dot_product_attention(y, y),
        y.scaled_dot_product_attention(y, y, is_causal=True),
    ]


def of_arrays(x: Any, w: Any, table: Any, ids: Any, n: int) -> list[Any]:
    scores = x @ x.T / np.sqrt(WIDTH)
    below = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    return [
        x,
        x * 2 + 1,
        x.sum(),
        x.sum(0),
        x.mean(0),
        x.mean(),
        x.var(0),
        x.max(0),
        x.prod(0),
        x.argmax(0),
        x.cumsum(0),
        softmax(x, 0),
        np.log(np.exp(x).sum(0)),
        normed(x, 1),
        x.T - x.T.mean(1, keepdims=True),
        x @ w,
        x.T @ x,
        x @ x.T,
        x.reshape(n, 2, 2).swapaxes(0, 1),
        x[-1, -1],
        x[-1],
        x[n - 1 : n],
        x[(n - 1) // 2],
        x[:, 1:3],
        np.broadcast_to(x[:, None], (n, 2, WIDTH)),
        table[ids],
        table[ids] * n,
        x[ids % n],
        softmax(scores, 1) @ x,
        softmax(below, 1) @ x,
    ]


@pytest.mark.sampled(2)
def test_one_recording_gives_what_numpy_gives_for_every_size(machine: None, gpu: str) -> None:
    n, calls = Variable("n", 1, ROOM), []
    w, table = numbers(WIDTH, 3, seed=1), numbers(7, WIDTH, seed=2)
    weights = [Tensor(array, device=gpu).realize() for array in (w, table)]

    @jit
    def step(x: Tensor, ids: Tensor, n: Any) -> Any:
        calls.append(1)
        return of_tensors(x, *weights, ids, n)

    compiled = None
    for size in (3, 5, *(range(1, ROOM + 1) if gpu == "CPU" else (1, ROOM))):
        x, ids = numbers(size, WIDTH, seed=size), np.arange(2, 2 + size) % 7
        found = step(with_junk(x, ROOM, gpu), with_junk(ids, ROOM, gpu), n.bind(size))
        for actual, expected in zip(found, of_arrays(x, w, table, ids, size), strict=True):
            close(actual, expected)
        compiled = compiled or len(plans._plans)
        assert len(plans._plans) <= compiled + 1  # the kernel that brings x.T into order to be read
    assert len(calls) == 2


def test_without_jit_one_kernel_serves_every_size() -> None:
    n = Variable("n", 0, ROOM)
    known = set[int]()
    for size in range(ROOM + 1):
        x = numbers(size, WIDTH, seed=size)
        cut = with_junk(x, ROOM, "CPU")[: n.bind(size)]
        assert cut.tolist() == x.tolist()
        assert bytes(cut.as_memoryview().cast("B")) == x.tobytes()
        kept = (cut + 1.0).realize()  # in memory, and still of that size
        assert kept.shape == (n.bind(size), WIDTH)
        close(kept.sum(0), (x + 1).sum(0))
        known.add(len(plans._plans))
    assert len(known) == 1


# -- random programs --------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """What one kind of value becomes: rows (n, WIDTH), columns (WIDTH, n), square (n, n), line (WIDTH,)."""

    kinds: tuple[str, ...]
    result: str
    tensor: Callable[..., Any]
    array: Callable[..., Any]


def both(kinds: str, result: str, function: Callable[..., Any]) -> Step:
    """The same words do for both."""
    return Step(tuple(kinds.split()), result, function, function)


STEPS = [
    *[both(f"{kind} {kind}", kind, lambda a, b: a + b) for kind in ("rows", "columns", "square", "line")],
    *[both(f"{kind} {kind}", kind, lambda a, b: a * b) for kind in ("rows", "columns", "square", "line")],
    both("rows line", "rows", lambda a, b: a * b),
    both("rows", "columns", lambda a: a.T),
    both("columns", "rows", lambda a: a.T),
    both("rows columns", "square", lambda a, b: (a @ b) * 0.5),
    both("square rows", "rows", lambda a, b: (a @ b) * 0.5),
    both("rows", "line", lambda a: a.sum(0) * 0.5),
    both("rows", "line", lambda a: a.mean(0)),
    both("columns", "line", lambda a: a.mean(1)),
    both("rows", "line", lambda a: a[-1]),
    both("columns", "line", lambda a: a[:, -1]),
    both("square", "square", lambda a: a.T),
    both("rows", "rows", lambda a: a - a.mean(0)),
    Step(("rows",), "line", lambda a: a.amax(0), lambda a: a.max(0)),
    Step(("columns",), "columns", lambda a: a.softmax(1), lambda a: softmax(a, 1)),
    Step(("rows",), "rows", lambda a: a.softmax(0), lambda a: softmax(a, 0)),
    Step(("square",), "square", lambda a: a.softmax(-1), lambda a: softmax(a, -1)),
    Step(("rows",), "rows", lambda a: a.tanh().cumsum(0), lambda a: np.tanh(a).cumsum(0)),
    Step(("rows",), "rows", lambda a: a.layer_norm((WIDTH,)), lambda a: normed(a, 1)),
    Step(("square",), "square", lambda a: a.tanh(), np.tanh),
]


def random_program(draw: random.Random, length: int) -> list[tuple[Step, tuple[int, ...]]]:
    """Steps, each with the numbers of the values that it takes: 0 is rows, 1 a line."""
    kinds = ["rows", "line"]
    program = []
    while len(program) < length:
        step = draw.choice(STEPS)
        places = [[i for i, kind in enumerate(kinds) if kind == wanted] for wanted in step.kinds]
        if all(places):
            program.append((step, tuple(draw.choice(found[-3:]) for found in places)))
            kinds.append(step.result)
    return program


def run(program: list[tuple[Step, tuple[int, ...]]], values: list[Any], is_tensor: bool) -> Any:
    for step, places in program:
        made = (step.tensor if is_tensor else step.array)(*[values[place] for place in places])
        values.append(made.tanh() if is_tensor else np.tanh(made))
    return values[2:]


QUICK = [("CPU", 0), ("CPU", 1), ("AMD", 2), ("NV", 3)]
ALL = [(gpu, seed) for gpu in ("CPU", *GPUS) for seed in range(60)]


@pytest.mark.parametrize(
    ("gpu", "seed"), [pytest.param(*one, marks=() if one in QUICK else pytest.mark.thorough) for one in ALL]
)
def test_random_programs_of_random_sizes_are_numpys(machine: None, gpu: str, seed: int) -> None:
    draw = random.Random(seed)
    room = draw.choice((5, 8, 16, 33))
    n, calls = Variable("n", 1, room), []
    program = random_program(draw, 6)
    line = numbers(WIDTH, seed=seed)
    kept = Tensor(line, device=gpu).realize()

    @jit
    def step(x: Tensor, n: Any) -> Any:
        calls.append(1)
        return run(program, [x[:n], kept], True)

    for size in draw.sample(range(1, room + 1), 4):
        x = numbers(size, WIDTH, seed=size)
        found = step(with_junk(x, room, gpu), n.bind(size))
        for actual, expected in zip(found, run(program, [x, line], False), strict=True):
            close(actual, expected)
    assert len(calls) == 2


# -- gradients --------------------------------------------------------------------------------------------------------


def test_gradients_are_those_of_the_elements_that_count() -> None:
    n = Variable("n", 1, ROOM)

    def loss(x: Tensor, w: Tensor) -> Tensor:
        y = (x @ w).softmax(0) * x.layer_norm((WIDTH,))
        return (y.scaled_dot_product_attention(y, x) + y.mean(0)).square().mean()

    for size in (2, 5):
        array, weight = numbers(size, WIDTH, seed=size), numbers(WIDTH, WIDTH)
        x, w = Tensor(array, requires_grad=True), Tensor(weight, requires_grad=True)
        loss(x, w).backward()
        room, v = with_junk(array, ROOM, "CPU").requires_grad_(), Tensor(weight, requires_grad=True)
        loss(room[: n.bind(size)], v).backward()
        assert x.grad is not None and w.grad is not None and room.grad is not None and v.grad is not None
        close(v.grad, w.grad.numpy())
        close(room.grad[:size], x.grad.numpy())
        close(room.grad[size:], np.zeros((ROOM - size, WIDTH)))


def test_the_gradient_of_a_table_is_that_of_the_rows_that_were_read() -> None:
    n = Variable("n", 1, ROOM)
    ids = np.array([2, 0, 2], np.int64)
    table = Tensor(numbers(7, WIDTH), requires_grad=True)
    found = with_junk(ids, ROOM, "CPU")[: n.bind(3)].embedding(table)
    found.sum().backward()
    wanted = np.zeros((7, WIDTH))
    np.add.at(wanted, ids, 1.0)
    assert table.grad is not None
    close(table.grad, wanted)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda n, x: n.bind(9), "n = 9 is outside of its range, 1 to 6"),
        (lambda n, x: n.bind(0), "n = 0 is outside of its range, 1 to 6"),
        (lambda n, x: n.bind(2.5), "give an int"),
        (lambda n, x: x[: n.bind(3)] + x, "axis 0 is n in one and 6 in the other"),
        (lambda n, x: x[: n.bind(3)].T @ x, "in one and"),
        (lambda n, x: x[: n.bind(3)].pad((0, 0, 1, 1), mode="replicate"), "pad.*size|axis 0"),
        (lambda n, x: x[: n.bind(3)].sort(0), "size n"),
        (lambda n, x: jit(lambda y, m: y[:m][:2])(x, n.bind(1)), "inside of axis 0.* n = 1"),
        (lambda n, x: x[n.bind(6)], "inside of axis 0.* n = 6"),
        (lambda n, x: x[n.bind(1) - 2], "inside of axis 0.* n = 1"),
        (lambda n, x: len(x[: n.bind(3)]), "len.*size n"),
        (lambda n, x: list(x[: n.bind(3)]), "size n"),
        (lambda n, x: x[: n.bind(3)].requires_grad_(), "ask for the gradient of the whole"),
        (lambda n, x: n.bind(3) < 4, "for some of its numbers"),
        (lambda n, x: Variable("n", 3, 2), "Swap"),
        (lambda n, x: Variable("n", -1, 2), "bounds"),
        (lambda n, x: x[: Variable("m", 1, 2**40).bind(2)], "sizes are up to 2147483647"),
        (lambda n, x: Variable("no name", 0, 2), "name"),
        (lambda n, x: jit(lambda y, m: y * int(m.value))(x, n.bind(3)), "serves all values"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(program: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        program(Variable("n", 1, ROOM), Tensor(numbers(ROOM, WIDTH)).realize())


def test_numbers_of_variables_are_counted_with() -> None:
    n, m = Variable("n", 0, 9).bind(7), Variable("m", 1, 4).bind(2)
    assert [(b.value, b.low, b.high) for b in (n + 1, 2 * n - m, (n + 1) // 2, n % 4, -m + 5)] == [
        (8, 1, 10),
        (12, -4, 17),
        (4, 0, 5),
        (3, 0, 3),
        (3, 1, 4),
    ]
    assert n + 1 - 1 == n and (4 * n) // 2 == 2 * n and n - n == 0 and str((n + 1) // 2) == "(n + 1) // 2"
    assert Tensor((n + 1) // 2 + 3 * m).item() == 10


# -- writing ----------------------------------------------------------------------------------------------------------

WRITES: dict[str, tuple[Callable[..., None], Callable[..., None], int]] = {
    # what it does to a tensor, to an array, how many elements it writes at most
    "a row": (
        lambda t, v, n, p: t.__setitem__((slice(None), p), v[:, 0]),
        lambda a, v, n, p: a.__setitem__((slice(None), p), v[:, 0]),
        3 * WIDTH,
    ),
    "a row of a part": (
        lambda t, v, n, p: t.__setitem__((1, p, slice(1, 3)), v[1, 0, 1:3]),
        lambda a, v, n, p: a.__setitem__((1, p, slice(1, 3)), v[1, 0, 1:3]),
        2,
    ),
    "the first rows": (
        lambda t, v, n, p: t.__setitem__((slice(None), slice(n)), v[:, :n]),
        lambda a, v, n, p: a.__setitem__((slice(None), slice(n)), v[:, :n]),
        3 * ROOM * WIDTH,
    ),
    "the last of the first rows": (
        lambda t, v, n, p: t.__setitem__((slice(None), slice(p, n)), v[:, :1]),
        lambda a, v, n, p: a.__setitem__((slice(None), slice(p, n)), v[:, :1]),
        3 * WIDTH,
    ),
    "a number": (
        lambda t, v, n, p: t.__setitem__((slice(None), slice(n), 2), 7.0),
        lambda a, v, n, p: a.__setitem__((slice(None), slice(n), 2), 7.0),
        3 * ROOM,
    ),
    "rows named in a list": (
        lambda t, v, n, p: t.__setitem__((slice(None), [4, 1, 4]), v[:, :3]),
        lambda a, v, n, p: a.__setitem__((slice(None), [4, 1, 4]), v[:, :3]),
        3 * 3 * WIDTH,
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_into_memory_touches_what_it_writes_and_nothing_else(name: str) -> None:
    to_tensor, to_array, most = WRITES[name]
    n = Variable("n", 1, ROOM)
    values = numbers(3, ROOM, WIDTH, seed=1)
    written = Tensor(values).realize()
    for size in (1, 4, ROOM):
        array = numbers(3, ROOM, WIDTH)
        tensor = Tensor(array).realize()
        memory = tensor.node
        bound = n.bind(size)
        to_tensor(tensor, written, bound, bound - 1)
        (plan,) = tensor.schedule()
        (launch,) = plan.launches
        assert launch.traffic_bytes <= 4 * (most + values.size) + 8 * 3  # with what it reads, and the places
        to_array(array, values, size, size - 1)
        np.testing.assert_array_equal(tensor.numpy(), array)
        assert tensor.node is memory


def test_a_written_row_may_be_made_of_other_rows_and_read_again() -> None:
    n = Variable("n", 2, ROOM)
    for size in (2, 5):
        array = numbers(3, ROOM, WIDTH)
        tensor = Tensor(array).realize()
        place = n.bind(size) - 1
        before = tensor + 1
        tensor[:, place] = tensor[:, 0] * 2
        tensor[:, 0] = tensor[:, place] + tensor[:, 1]
        wanted = array.copy()
        wanted[:, size - 1] = wanted[:, 0] * 2
        wanted[:, 0] = wanted[:, size - 1] + wanted[:, 1]
        close(tensor, wanted)
        close(before, array + 1)


def test_a_write_of_another_size_is_refused() -> None:
    n, m = Variable("n", 1, ROOM).bind(3), Variable("m", 1, ROOM).bind(3)
    x, y = (Tensor(numbers(ROOM, WIDTH)).realize() for _ in range(2))
    for write, words in (
        (lambda: x.__setitem__(slice(n), y), "n elements of axis 0 are written, and the value has 6"),
        (lambda: x.__setitem__(slice(n), y[:m]), "and the value has m"),
        (lambda: x.__setitem__(slice(None), y[:n]), "axis 0 is 6 in one and n in the other"),
        (lambda: x.assign(y[:n]), "6 in one and n in the other|shapes must be equal"),
    ):
        with pytest.raises(UsageError, match=words):
            write()
    np.testing.assert_array_equal(x.numpy(), y.numpy())


# -- decoding with a cache of keys and values -------------------------------------------------------------------------


@pytest.mark.sampled(2)
def test_a_decoder_with_a_cache_gives_what_the_whole_text_gives_at_every_place(
    machine: None, gpu: str
) -> None:
    heads, width, calls = 2, 4, []
    n = Variable("n", 1, ROOM)
    draw = numbers(3, heads * width, heads * width, seed=3) * 0.5
    weights = [Tensor(each, device=gpu).realize() for each in draw]
    keys, values = (
        Tensor(np.full((heads, ROOM, width), np.nan, np.float32), device=gpu).realize() for _ in "kv"
    )

    @jit
    def step(x: Tensor, n: Any) -> Tensor:
        calls.append(1)
        q, k, v = ((x @ w).reshape(heads, 1, width) for w in weights)
        keys[:, n - 1 : n], values[:, n - 1 : n] = k, v
        found = q.scaled_dot_product_attention(keys[:, :n], values[:, :n])
        Tensor.realize(found, keys, values)
        return found.reshape(heads * width)

    text = numbers(ROOM, heads * width, seed=4)
    q, k, v = ((text @ w).reshape(ROOM, heads, width).swapaxes(0, 1) for w in draw)
    scores = np.where(np.tri(ROOM, dtype=bool), q @ k.swapaxes(1, 2) / np.sqrt(width), -np.inf)
    wanted = (softmax(scores, -1) @ v).swapaxes(0, 1).reshape(ROOM, heads * width)
    for _ in range(2):  # the second text overwrites the first
        for place, row in enumerate(text):
            close(step(Tensor(row, device=gpu).realize(), n.bind(place + 1)), wanted[place])
    assert len(calls) == 2
    close(keys, k)


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        pytest.param(
            *one, marks=() if one in (("AMD", "float32"), ("NV", "float16")) else pytest.mark.thorough
        )
        for one in [(device, dtype) for device in ("CPU", *GPUS) for dtype in ("float32", "float16")]
    ],
)
def test_attention_with_many_scores_looks_at_the_keys_that_count(
    machine: None, device: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where loops are longer than the room: nothing is stored behind a result."""
    monkeypatch.setattr(large_scores, "LARGE_SCORES", 1)
    room, width, size = 96, 16, 33
    n = Variable("n", 1, room)
    arrays = [numbers(2, room, width, seed=seed) for seed in range(3)]
    q, k, v = (Tensor(a, device=device).cast(getattr(dtypes, dtype)).realize() for a in arrays)
    keys, values = (each[:, : n.bind(size)] for each in (k, v))
    found = q.scaled_dot_product_attention(keys, values)
    scores = arrays[0] @ arrays[1][:, :size].swapaxes(1, 2) / np.sqrt(width)
    tolerance = 1e-4 if dtype == "float32" else 1e-2
    wanted = softmax(scores, -1) @ arrays[2][:, :size]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance, atol=tolerance)


def test_attention_over_the_filled_part_asks_for_that_part_of_memory(machine: None) -> None:
    room, width = 256, 8
    n = Variable("n", 1, room)
    for device in ("AMD", "NV"):
        keys, values = (Tensor(numbers(1, room, width), device=device).realize() for _ in "kv")
        query = Tensor(numbers(1, 1, width), device=device).realize()
        asked = []
        for count in (16, 64, room):
            made: list[counters.Counters] = []
            end = counters.listen(lambda _, one, made=made: made.append(one))
            try:
                cut = n.bind(count)
                query.scaled_dot_product_attention(keys[:, :cut], values[:, :cut]).numpy()
            finally:
                end()
            asked.append(sum(one.bytes_needed for one in made))
        assert asked[0] < asked[1] < asked[2] and asked[0] < asked[2] / 2


# -- in a file --------------------------------------------------------------------------------------------------------

LOADED = """
import array, json, sys
for name in ("numpy", "llvmlite"):
    sys.modules[name] = None
import hcq
program = hcq.load_program(sys.argv[1])
x = array.array("f", json.loads(sys.argv[2]))
found = [[memoryview(out.read()).cast("f").tolist() for out in program(x, n)] for n in (2, 6, 1)]
try:
    program(x, 7)
except hcq.UsageError as error:
    found.append(str(error))
print(json.dumps([[list(one) for one in program.parameters], *found]))
"""


def test_a_saved_program_takes_every_size_without_the_compiler(tmp_path: Path) -> None:
    n = Variable("n", 1, ROOM)
    weight = numbers(WIDTH, WIDTH, seed=1)
    w = Tensor(weight).realize()
    total = Tensor.zeros(ROOM, WIDTH).realize()

    @jit
    def step(x: Tensor, n: Any) -> Any:
        y = x[:n]
        total[n - 1] = total[n - 1] + y.sum(0)
        Tensor.realize(total)
        return (y @ w).softmax(0), y.mean(0), total[n - 1]

    array = numbers(ROOM, WIDTH)
    for _ in range(2):
        step(Tensor(array).realize(), n.bind(3))
    path = tmp_path / "step.hcqprog"
    save_program(path, step)
    command = [sys.executable, "-c", LOADED, str(path), json.dumps(array.flatten().tolist())]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50)
    parameters, *found, refused = json.loads(answer.stdout)
    assert parameters == [["n", 1, ROOM, 1]]
    assert refused == f"step: n = 7; takes an int from 1 to {ROOM}."
    for size, (shares, mean, line) in zip((2, 6, 1), found, strict=True):
        x = array[:size]
        rows = np.reshape(shares, (ROOM, WIDTH))[:size]
        np.testing.assert_allclose(rows, softmax(x @ weight, 0), rtol=1e-4)
        np.testing.assert_allclose(mean, x.mean(0), rtol=1e-4)
        np.testing.assert_allclose(line, x.sum(0), rtol=1e-4, atol=1e-5)


def test_tensors_that_variables_cut_are_arguments_and_one_recording_serves_all_their_sizes() -> None:
    n, m = Variable("n", 1, ROOM), Variable("m", 1, WIDTH)
    array = numbers(ROOM, WIDTH)
    x = Tensor(array).realize()

    @jit
    def scores(parts: dict[str, Tensor], y: Tensor) -> tuple[Tensor, Tensor]:
        return parts["a"] @ y.T, parts["b"].sum(0)

    for rows, columns in ((2, 1), (6, 3), (3, 4), (1, 2)):
        cut, part = array[:rows], array[:rows, :columns]
        parts = {"a": x[: n.bind(rows)], "b": x[: n.bind(rows), : m.bind(columns)]}
        found, total = scores(parts, x[: n.bind(rows)] * 2.0)
        close(found, cut @ (cut * 2).T)
        close(total, part.sum(0))
    assert scores.kernels > 0


def test_outside_of_a_recording_a_cut_axis_is_sliced_as_long_as_it_is_now() -> None:
    array = numbers(ROOM, WIDTH)
    y = Tensor(array)[: Variable("n", 1, ROOM).bind(4)]
    close(y[:3], array[:3])
    close(y[1:9], array[1:4])
    close(y[3], array[3])
    with pytest.raises(UsageError, match=r"4.* axis 0 of size n|4.*axis 0 of.*4"):
        y[4]
