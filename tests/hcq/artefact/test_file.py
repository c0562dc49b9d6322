"""Program files: what is damaged, of another version or for another machine is one sentence, never another result."""

from __future__ import annotations

import json
import os
import random
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hcq
from hcq import Tensor, jit, nn
from hcq.artefact.file import HEAD, MAGIC, VERSION, ProgramFile, digest_of, padded
from hcq.artefact.program import carried_of
from hcq.artefact.writing import Blob, write
from hcq.errors import HcqError, UsageError
from tests.campaigns import _mutate as mutate


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of two inputs, with a weight, a state and temporary memory."""
    w = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    total = Tensor([0.0]).realize()

    @jit
    def step(x, count):
        total.assign(total + x.sum()).realize()
        return (x @ w).softmax(1) + count, total

    for _ in range(3):
        step(Tensor([[1.0, 2.0]]), hcq.tensor([1, 2]))
    path = tmp_path_factory.mktemp("saved") / "step.hcqprog"
    hcq.save_program(path, step, names={"total": total})
    return path


X, COUNT = struct.pack("<2f", 0.5, -1.5), struct.pack("<2q", 3, 4)


def results(path: Path) -> list[bytes]:
    program = hcq.load_program(path)
    return [out.read() for _ in range(2) for out in program(X, COUNT)]


def sentence(path: Path) -> str:
    """What loading refuses with: one sentence, or two, in one line, that name the call and the file."""
    with pytest.raises(UsageError) as caught:
        hcq.load_program(path, "CPU")
    said = str(caught.value)
    assert said.startswith(f"[load_program] {path}: ")
    assert "\n" not in said
    return said


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_file_damaged_in_any_byte_is_refused_or_gives_the_same(saved, tmp_path):
    content, wanted = saved.read_bytes(), results(saved)
    length = HEAD.unpack_from(content)[2]
    places = [*range(HEAD.size), *range(HEAD.size, HEAD.size + length, 5), *range(0, len(content), 61)]
    rng = random.Random(1)
    refused = 0
    for at in places:
        damaged = bytearray(content)
        damaged[at] ^= 1 << rng.randrange(8)
        (tmp_path / "p").write_bytes(damaged)
        try:
            assert results(tmp_path / "p") == wanted, f"byte {at}"
        except UsageError:
            refused += 1
    assert refused > len(places) * 0.9  # what is between blobs means nothing


def test_a_file_cut_off_or_grown_is_refused(saved, tmp_path):
    content = saved.read_bytes()
    for size in [*range(0, len(content), 997), len(content) - 1]:
        (tmp_path / "p").write_bytes(content[:size])
        sentence(tmp_path / "p")
    (tmp_path / "p").write_bytes(content + b"\0")
    assert "it has" in sentence(tmp_path / "p")


def rewritten(content: bytes, text: bytes) -> bytes:
    """The file with another header, and a digest as if it had been written so."""
    old = HEAD.unpack_from(content)
    blobs = content[padded(HEAD.size + old[2]) :]
    start = padded(HEAD.size + len(text))
    size = start + len(blobs)
    head = HEAD.pack(MAGIC, VERSION, len(text), size, digest_of(len(text), size, text))
    return (head + text).ljust(start, b"\0") + blobs


def header(content: bytes) -> dict:
    return json.loads(content[HEAD.size : HEAD.size + HEAD.unpack_from(content)[2]])


def test_rewriting_a_header_as_it_was_changes_nothing(saved, tmp_path):
    content = saved.read_bytes()
    (tmp_path / "p").write_bytes(rewritten(content, json.dumps(header(content)).encode()))
    assert results(tmp_path / "p") == results(saved)


def test_a_header_that_was_made_to_harm_is_read_or_refused_and_nothing_else(saved, tmp_path):
    content, rng = saved.read_bytes(), random.Random(2)
    table = header(content)
    for _ in range(400):
        hostile = table
        for _ in range(rng.choice((1, 1, 2))):
            hostile = mutate.of_json(hostile, rng)
        (tmp_path / "p").write_bytes(rewritten(content, json.dumps(hostile).encode()))
        try:  # and never run: launches that are others are another program
            hcq.load_program(tmp_path / "p", "CPU")
        except HcqError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"name": NaN}', b"null"], ids=lambda text: text[:9]
)
def test_a_header_that_is_no_table_is_refused(saved, tmp_path, text):
    (tmp_path / "p").write_bytes(rewritten(saved.read_bytes(), text))
    assert "It is damaged" in sentence(tmp_path / "p")


def changed(saved: Path, target: Path, *steps: tuple) -> Path:
    """The file with one value of its header changed: a path of keys, and the value."""
    content = saved.read_bytes()
    table = header(content)
    *keys, last, value = steps
    place = table
    for key in keys:
        place = place[key]
    place[last] = value
    target.write_bytes(rewritten(content, json.dumps(table).encode()))
    return target


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (("blobs", 0, 0, 1 << 40), "a blob"),
        (("blobs", 0, 1, 1 << 40), "a blob"),
        (("blobs", 0, 1, -1), "a blob"),
        (("inputs", 0, 2, [1 << 40, 1 << 40]), "inputs: "),
        (("inputs", 0, 2, [1] * 65), "65 dimensions"),
        (("inputs", 0, 1, "float33"), "dtype 'float33'"),
        (("parameters", ["n"]), "a parameter: 'n', expected 4 values"),
        (("parameters", [["n", 3, 2, 0]]), "a parameter"),
        (("parameters", [["n", 1, 2, 99]]), "a parameter"),
        (("parameters", [["n", 1, 2, 0]]), "no int32 of shape ()"),
        (("variants", []), "no variant"),
        (("variants", 0, "memory", 0, ["temporary", 1 << 60]), "temporary"),
        (("variants", 0, "memory", 0, ["input", 7]), "input"),
        (("variants", 0, "memory", 0, ["output", 0]), "outputs of a variant"),
        (("variants", 0, "launches", 0, "arguments", [99]), "whole number"),
        (("variants", 0, "launches", 0, "access", "w"), "arguments, and"),
        (("variants", 0, "launches", 0, "grid", [0, 1, 1]), "whole number"),
        (("variants", 0, "launches", 0, "image", 99), "whole number"),
        (("variants", 0, "runtime", ["key", True]), "runtime"),
        (("name", "\ud800"), "expected a text"),
    ],
    ids=lambda value: ".".join(map(str, value[:-1])) if isinstance(value, tuple) else None,
)
def test_numbers_that_cannot_be_are_refused_before_memory_is_touched(saved, tmp_path, steps, why):
    assert why in sentence(changed(saved, tmp_path / "p", *steps))


@pytest.mark.parametrize("name", ["../m.safetensors", "/etc/passwd", "", "..", "a\0b"])
def test_weights_beside_are_looked_for_in_no_other_folder(saved, tmp_path, name):
    memory = header(saved.read_bytes())["variants"][0]["memory"]
    at = next(number for number, row in enumerate(memory) if row[0] == "weight")
    path = changed(saved, tmp_path / "p", "variants", 0, "memory", at, -1, [name, "w", "0" * 64])
    assert "no name of a file in its folder" in sentence(path)


def test_a_launch_that_would_write_to_an_input_is_refused(saved, tmp_path):
    table = header(saved.read_bytes())["variants"][0]
    inputs = {at for at, row in enumerate(table["memory"]) if row[0] == "input"}
    number, launch = next(
        (n, one) for n, one in enumerate(table["launches"]) if inputs & set(one["arguments"])
    )
    path = changed(
        saved, tmp_path / "p", "variants", 0, "launches", number, "access", "w" * len(launch["access"])
    )
    assert "writes to an input or a weight" in sentence(path)


def test_a_tensor_that_changes_while_it_is_saved_leaves_the_file_as_it_was(saved, tmp_path):
    path = tmp_path / "p"
    path.write_bytes(saved.read_bytes())
    numbers = iter((b"before", b"behind"))
    with ProgramFile(saved) as file, pytest.raises(UsageError, match=r"a tensor changed while it was saved"):
        write(path, file.contents, [Blob.of(lambda: (next(numbers),))])
    assert path.read_bytes() == saved.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["p"]


# -- mismatches --------------------------------------------------------------------------------------------------------


def test_another_version_is_said(saved, tmp_path):
    content = bytearray(saved.read_bytes())
    content[len(MAGIC)] = VERSION + 1
    (tmp_path / "p").write_bytes(content)
    assert f"a program of version {VERSION + 1}, and this hcq reads version {VERSION}" in sentence(
        tmp_path / "p"
    )


def test_what_is_no_program_is_said(tmp_path):
    (tmp_path / "p").write_bytes(b"\x7fELF" + bytes(100))
    assert "no program; it does not start with 'HCQPROG'" in sentence(tmp_path / "p")
    assert "cannot be read (No such file or directory)" in sentence(tmp_path / "q")
    os.mkfifo(tmp_path / "pipe")  # which nobody writes to
    assert "cannot be read (it is no plain file)" in sentence(tmp_path / "pipe")
    assert "cannot be read (it is no plain file)" in sentence(tmp_path)


def test_another_architecture_is_said(saved, tmp_path):
    path = changed(saved, tmp_path / "p", "variants", 0, "arch", "pdp11")
    assert "it holds code for CPU pdp11, and CPU is" in sentence(path)


def test_another_convention_of_calling_kernels_is_said(saved, tmp_path):
    path = changed(saved, tmp_path / "p", "variants", 0, "abi", carried_of("CPU").abi + 1)
    assert "its kernels are called by convention 2 of CPU, and this hcq has 1" in sentence(path)


def test_instructions_that_this_processor_lacks_are_said(saved, tmp_path):
    features = [*sorted(carried_of("CPU").features()), "avx9000"]
    path = changed(saved, tmp_path / "p", "variants", 0, "features", features)
    assert "it was saved on a processor with avx9000, which this one lacks" in sentence(path)


def test_of_variants_for_one_architecture_the_one_with_most_instructions_is_taken(saved, tmp_path):
    with ProgramFile(saved) as file:
        contents = file.contents
        (variant,) = contents.variants
        features = (frozenset(), variant.features, variant.features | {"avx9000"})
        variants = tuple(variant._replace(features=words) for words in features)
        blobs = [Blob.of(lambda n=n: (file.blob(n),)) for n in range(len(file._places))]
        write(tmp_path / "p", contents._replace(variants=variants), blobs)
    assert hcq.load_program(tmp_path / "p").variant.features == variant.features
    assert results(tmp_path / "p") == results(saved)


def test_a_command_processor_of_another_version_is_not_taken(saved, tmp_path):
    path = changed(saved, tmp_path / "p", "variants", 0, "runtime", 0, "0" * 64)
    assert results(path) == results(saved)


# -- what goes in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((), "takes 2 inputs (x: float32[1, 2], count: int64[2]), got 0"),
        ((X, COUNT, COUNT), "got 3"),
        ((X[:-1], COUNT), "input x: float32[1, 2] has 8 bytes, got 7"),
        ((X, b""), "input count: int64[2] has 16 bytes, got 0"),
        ((X, 3), "input count: 3 has no bytes"),
        ((np.zeros((1, 2), np.float64), COUNT), "was given float64[1, 2]"),
        ((np.zeros((1, 2), np.int32), COUNT), "was given int32[1, 2]"),
        ((np.zeros((2, 1), np.float32), COUNT), "was given float32[2, 1]"),
        ((np.zeros((1, 2), ">f4"), COUNT), "was given >f32[1, 2]"),
        ((np.zeros((1, 4), np.float32)[:, ::2], COUNT), "not contiguous"),
    ],
)
def test_what_is_not_what_a_program_takes_is_one_sentence(saved, given, why):
    with pytest.raises(UsageError) as caught:
        hcq.load_program(saved)(*given)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_child_of_fork_calls_the_program_although_another_thread_was_calling_it(saved):
    program = hcq.load_program(saved)
    wanted = program(X, COUNT)[0].read()
    with program._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if program(X, COUNT)[0].read() == wanted else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_may_call_one_program_at_the_same_time(saved):
    program = hcq.load_program(saved)
    given = [(struct.pack("<2f", n, 1.0), struct.pack("<2q", n, -n)) for n in range(8)]
    wanted = [program(*one)[0].read() for one in given]

    def call(one: tuple[bytes, bytes]) -> list[bytes]:
        return [program(*one)[0].read() for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, given)) == [[one] * 20 for one in wanted]


def test_buffers_of_another_size_or_freed_are_refused(saved):
    program = hcq.load_program(saved)
    with pytest.raises(UsageError, match=r"has 8 bytes, got 4"):
        program(program.device.alloc(4), COUNT)
    buffer = program.device.alloc(8)
    buffer.free()
    with pytest.raises(UsageError, match="freed"):
        program(buffer, COUNT)


# -- python -m hcq run -------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    from hcq.__main__ import main

    status = main(["run", *map(str, words)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_run_shows_what_a_file_holds_and_opens_no_device_for_a_list(saved, capsys):
    status, said, _ = run(capsys, saved, "--list", "--device", "NO-SUCH-DEVICE")
    assert status == 0
    for words in (
        "step",
        "input   x: float32[1, 2]",
        "state   total: float32[1]",
        "kernel ",
        "1 weights (16 bytes)",
    ):
        assert words in said


def test_run_gives_from_files_what_a_call_gives(saved, tmp_path, capsys):
    wanted = hcq.load_program(saved)(X, COUNT)[0].read()
    np.save(tmp_path / "x.npy", np.frombuffer(X, np.float32).reshape(1, 2))
    (tmp_path / "count.bin").write_bytes(COUNT)
    nn.save_file({"count": hcq.tensor([3, 4]), "n": Tensor([[0.5, -1.5]])}, tmp_path / "both.safetensors")
    both = tmp_path / "both.safetensors"
    for words in (
        (f"x={tmp_path / 'x.npy'}", f"count={tmp_path / 'count.bin'}"),
        (f"x={both}:n", f"count={both}"),
    ):
        given = [part for word in words for part in ("--input", word)]
        status, said, _ = run(capsys, saved, *given, "--json", "--times", 2, "--output", tmp_path / "out")
        assert status == 0
        assert (tmp_path / "out" / "0.bin").read_bytes() == wanted
        ran = json.loads(said)["run"]
        assert struct.pack("<2f", *ran["results"][0]["first"]) == wanted
        assert ran["load_ms"] > 0 and ran["calls"] == 2


def test_random_inputs_are_those_of_their_seed(saved, capsys):
    first, again, other = (
        json.loads(run(capsys, saved, "--random", seed, "--json")[1])["run"]["results"] for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--input", "y=x.npy"), "takes NAME=FILE. The inputs: x, count"),
        (("--input", "x=no-such-file"), "cannot be read (No such file or directory)"),
        (("--times", "0"), "at least one call"),
        (("--device", "TOASTER"), "unknown device"),
    ],
)
def test_run_refuses_in_a_line_what_cannot_be(saved, capsys, words, why):
    status, _, said = run(capsys, saved, *words)
    assert status == 2
    assert why in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 1), np.float32),
        np.zeros((1, 2), np.float64),
        np.zeros((1, 2), ">f4"),
        np.zeros((1, 2), "U3"),
        np.zeros((1, 2), np.dtype([("a", "f4")])),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_an_array_of_another_format_is_refused(saved, tmp_path, capsys, array):
    np.save(tmp_path / "x.npy", array)
    status, _, said = run(capsys, saved, "--input", f"x={tmp_path / 'x.npy'}")
    assert (status, said.count("\n")) == (2, 1)


def test_damaged_arrays_are_refused_or_read(saved, tmp_path):
    from hcq.artefact.inputs import from_file

    spec = hcq.load_program(saved).inputs[0]
    path = tmp_path / "x.npy"
    np.save(path, np.frombuffer(X, np.float32).reshape(1, 2))
    content, rng = path.read_bytes(), random.Random(3)
    for _ in range(500):
        path.write_bytes(mutate.of_bytes(content, [mutate.Place(8, 2)], rng))
        try:
            assert len(from_file(spec, str(path))) == spec.size_bytes
        except UsageError as error:
            assert "\n" not in str(error)
