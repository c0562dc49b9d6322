"""GGUF files: ours are read by the format's own library, theirs by us, and a damaged one is one sentence."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError, dtypes
from hcq.frontend.io.blocks import BY_NAME, QUANTISED
from hcq.frontend.io.gguf_writer import Packed, save_gguf
from hcq.frontend.io.quantised import of_bytes
from tests.frontend.io.test_dequantise import random_blocks

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.eps": 0.5,
    "below": -3,
    "flag": True,
    "words": ["a", "", "ünder"],
    "numbers": [1, 2, 3],
    "scores": [0.5, -1.0],
}


def packed(form: str, *shape: int) -> Packed:
    count = int(np.prod(shape)) // BY_NAME[form].elements
    return Packed(form, shape, random_blocks(form, count).tobytes())


def some_tensors() -> dict[str, Any]:
    return {
        "f32": Tensor([[1.0, 2.0, 3.0]]),
        "bf16": Tensor([1.5, -2.0]).cast(dtypes.bfloat16),
        "ids": Tensor([1, 2], dtype=dtypes.int32),
        "q": packed("Q4_K", 3, 512),
    }


def test_what_is_saved_is_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    tensors = some_tensors()
    hcq.save(tensors, path, METADATA)
    found = hcq.load(path)
    assert (found.kind, list(found)) == ("GGUF", list(tensors))
    for key, value in METADATA.items():
        kept = found.metadata[key]
        assert (list(kept) if isinstance(value, list) else kept) == value
    assert found["f32"].tolist() == [[1.0, 2.0, 3.0]]
    assert found["bf16"].dtype is dtypes.bfloat16
    assert found["ids"].tolist() == [1, 2]
    assert bytes(found.raw("q")) == tensors["q"].raw
    entry = found.entry("q")
    assert (entry.format, entry.shape, entry.size_bytes) == ("Q4_K", (3, 512), 6 * 144)


def test_the_formats_own_library_reads_what_we_write(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "x.gguf"
    tensors = {form: packed(form, 2, 512) for form in QUANTISED} | some_tensors()
    hcq.save(tensors, path, METADATA)
    reader = gguf.GGUFReader(path)
    assert reader.get_field("llama.block_count").contents() == 2
    assert reader.get_field("words").contents() == METADATA["words"]
    theirs = {tensor.name: tensor for tensor in reader.tensors}
    assert set(theirs) == set(tensors)
    for name, tensor in tensors.items():
        if isinstance(tensor, Packed):
            assert (theirs[name].tensor_type.name, theirs[name].data.tobytes()) == (tensor.format, tensor.raw)
        assert tuple(reversed(theirs[name].shape)) == tensor.shape


def test_we_read_what_the_formats_own_library_writes(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "theirs.gguf"
    draw = np.random.default_rng(0)
    weights = draw.standard_normal((4, 64), dtype=np.float32)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_token_list(["a", "b"])
    writer.add_tensor("plain", weights)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("packed", gguf.quants.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = hcq.load(path)
    assert found.metadata["llama.block_count"] == 3
    assert list(found.metadata["tokenizer.ggml.tokens"]) == ["a", "b"]
    np.testing.assert_array_equal(found["plain"].numpy(), weights)
    assert np.abs(found["packed"].numpy() - weights).max() < 0.02


IN_EVERY_RUN = ("Q4_0", "Q4_K", "IQ2_XS")
ONE_KERNEL = [
    pytest.param(form, marks=() if form in IN_EVERY_RUN else pytest.mark.thorough)
    for form in QUANTISED
    if form != "TQ1_0"  # whose last sixteen elements are taken apart in a kernel of their own
]


@pytest.mark.parametrize("form", ONE_KERNEL)
def test_a_product_with_a_row_reads_quantised_bytes_in_its_only_kernel(form: str) -> None:
    size = 1024
    raw = Tensor(np.frombuffer(packed(form, size, size).raw, dtype=np.uint8)).realize()
    x = Tensor(np.random.default_rng(0).standard_normal((1, size), dtype=np.float32)).realize()
    product = x.linear(of_bytes(raw, form, (size, size)))
    (plan,) = product.schedule()
    (kernel,) = plan.launches
    kinds = [(plan.values[n].dtype, plan.values[n].shape) for n in kernel.arguments]
    assert (dtypes.float32, (size, size)) not in kinds
    expected = x.numpy() @ of_bytes(raw, form, (size, size)).numpy().T
    np.testing.assert_allclose(product.numpy(), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_a_model_in_several_files_is_read_as_one(tmp_path: Path) -> None:
    for i in (1, 2, 3):
        metadata = {"split.count": 3, "split.no": i - 1}
        save_gguf({f"t{i}": Tensor([float(i)])}, tmp_path / f"m-0000{i}-of-00003.gguf", metadata)
    found = hcq.load(tmp_path / "m-00001-of-00003.gguf")
    assert [found[name].tolist() for name in found] == [[1.0], [2.0], [3.0]]
    with pytest.raises(UsageError, match="and not the first"):
        hcq.load(tmp_path / "m-00002-of-00003.gguf")
    (tmp_path / "m-00003-of-00003.gguf").unlink()
    with pytest.raises(FileNotFoundError, match=r"m-00003-of-00003\.gguf is missing") as missing:
        hcq.load(tmp_path / "m-00001-of-00003.gguf")
    assert isinstance(missing.value, UsageError)


def test_a_tensor_of_an_unknown_format_is_refused_by_itself_and_the_others_are_read(tmp_path: Path) -> None:
    numbers = struct.pack("<4f", 1, 2, 3, 4)
    head = header(tensors=2, rest=info("new", number=4, offset=32) + info("old"))
    (tmp_path / "x.gguf").write_bytes(head + bytes(-len(head) % 32) + numbers + bytes(16) + b"what?")
    found = hcq.load(tmp_path / "x.gguf")
    assert found["old"].tolist() == [1, 2, 3, 4]
    assert (found.entry("new").format, found.entry("new").size_bytes) == ("number 4", 5)
    for ask in (found.__getitem__, found.raw):
        with pytest.raises(UsageError, match="the tensor 'new' has format number 4; known are F32"):
            ask("new")


def text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def info(name: str = "t", shape: Any = (4,), number: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, offset)


def header(version: int = 3, tensors: int = 0, entries: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + rest


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (header(1), "of version 1"),
        (header(3 << 24), "is big-endian"),
        (header(tensors=1 << 60), "tensors"),
        (header(entries=1 << 60), "entries"),
        (header(entries=1, rest=struct.pack("<Q", 1 << 50)), "a string of"),
        (header(entries=1, rest=text("k") + struct.pack("<I", 77)), "of type 77"),
        (header(entries=1, rest=text("k") + struct.pack("<IIQ", 9, 8, 1 << 50)), "no room"),
        (header(entries=1, rest=text("k") + struct.pack("<IIQ", 9, 6, 1 << 50)), "bytes are missing"),
        (header(entries=1, rest=text("k") + struct.pack("<IIQ", 9, 9, 1)), "an array of type 9"),
        (header(entries=2, rest=2 * (text("k") + struct.pack("<IB", 0, 1))), "stands there twice"),
        (header(tensors=1, rest=info(shape=(1,) * 9)), "9 axes"),
        (header(tensors=1, rest=info(shape=(33,), number=2)), "no whole blocks of Q4_0"),
        (header(tensors=1, rest=info(shape=(2**40, 2**40))), "ends at byte"),
        (header(tensors=1, rest=info(offset=2**62)), "ends at byte"),
        (header(tensors=2, rest=info() * 2 + bytes(64)), "stands there twice"),
        (header(entries=1, rest=text("general.alignment") + struct.pack("<II", 4, 0)), "alignment is 0"),
    ],
)
def test_a_damaged_header_says_what_is_wrong(tmp_path: Path, raw: bytes, why: str) -> None:
    (tmp_path / "x.gguf").write_bytes(raw)
    with pytest.raises(UsageError, match=why):
        hcq.load(tmp_path / "x.gguf")
