"""Reading a file takes at most twice its size and some 24 MB, whatever is in it, and time in proportion."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError
from hcq.checks import shown
from hcq.frontend.io.mapped import Mapped
from hcq.frontend.io.zipped import members

SLACK = 24 << 20


def pt(pickled: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a/data.pkl", pickled)
    return data.getvalue()


def gguf(*entries: tuple[bytes, bytes], tensors: bytes = b"", count: int = 0) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(entries))
    return head + b"".join(struct.pack("<Q", len(key)) + key + value for key, value in entries) + tensors


def one_member_under_many_names(count: int) -> bytes:
    """A zip file of 64 bits whose entries all name the same member."""
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (0,), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    array = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header
    sizes = (zlib.crc32(array), len(array), len(array))
    member = b"PK\3\4" + struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, *sizes, 5, 0) + b"a.npy" + array
    directory = b""
    for name in (b"%x.npy" % number for number in range(count)):
        directory += (
            b"PK\1\2" + struct.pack("<6H3I5HII", 20, 20, 0, 0, 0, 0, *sizes, len(name), *[0] * 6) + name
        )
    end = struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, len(directory), len(member))
    where = struct.pack("<IQI", 0, len(member) + len(directory), 1)
    last = struct.pack("<HHHHIIH", 0, 0, 65535, 65535, 2**32 - 1, 2**32 - 1, 0)
    return member + directory + b"PK\6\6" + end + b"PK\6\7" + where + b"PK\5\6" + last


def nested_keys(depth: int) -> bytes:
    """A dict whose key is a pair of one pair of one pair ..., which written out has 2 ** depth parts."""
    pairs = b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(depth))
    return b"\x80\2}N\x85q\0" + pairs + b"Ns."


LONG = b"\x80\2(" + b"K\1" * 60_000 + b"tq\0"  # a tuple of 60,000 numbers, remembered as 0
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n(NK\0h\0h\0tR"
BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "sets of one list": (".pt", lambda: pt(
        b"\x80\2]q\0(" + b"N" * 60_000 + b"e0](" + b"cbuiltins\nset\n(h\0tR" * 20_000 + b"e."
    )),
    "letters of one text": (".pt", lambda: pt(
        b"\x80\2X\xff\xff\0\0" + b"a" * 65_535 + b"q\0](" + b"cbuiltins\nset\n(h\0tR" * 1_000 + b"e."
    )),
    "ordered dicts of one list": (".pt", lambda: pt(
        b"\x80\2]q\0(" + b"".join(b"J%bN\x86" % struct.pack("<i", i) for i in range(20_000)) + b"e0]("
        + b"ccollections\nOrderedDict\n(h\0tR" * 2_000 + b"e."
    )),
    "devices of long words": (".pt", lambda: pt(
        b"\x80\2X\xff\xff\0\0" + b"a" * 65_535 + b"q\0](" + b"ctorch\ndevice\n(h\0h\0h\0h\0tR" * 3_000 + b"e."
    )),
    "sizes of one long tuple": (".pt", lambda: pt(LONG + b"](" + b"ctorch\nSize\n(h\0tR" * 10_000 + b"e.")),
    "tensors of one long shape": (".pt", lambda: pt(LONG + b"](" + TENSOR * 10_000 + b"e.")),
    "one long list in many places": (".pt", lambda: pt(
        b"\x80\2]q\0(" + b"N" * 500_000 + b"e0](" + b"h\0" * 70_000 + b"e."
    )),
    "keys of nested tuples": (".pt", lambda: pt(nested_keys(60))),
    "a million things remembered": (".pt", lambda: pt(b"\x80\2N" + b"\x94" * 1_000_000 + b".")),
    "a million empty dicts": (".pt", lambda: pt(b"\x80\2(" + b"}" * 1_000_000 + b"l.")),
    "a key of many digits": (".pt", lambda: pt(
        b"\x80\2}\x8b" + struct.pack("<I", 9_000) + b"\x7f" * 9_000 + b"Ns."
    )),
    "one wide letter in each text": (".gguf", lambda: gguf(*(
        (b"k%d" % i, struct.pack("<IQ", 8, 4 + (6 << 20)) + "\U0001f600".encode() + b"a" * (6 << 20)) for i in range(5)
    ))),
    "many bools": (".gguf", lambda: gguf(*(
        (b"k%d" % i, struct.pack("<IIQ", 9, 7, 65_535) + b"\1" * 65_535) for i in range(200)
    ))),
    "many tensors of nothing": (".gguf", lambda: gguf(
        tensors=b"".join(struct.pack("<Q", 5) + b"%5d" % i + struct.pack("<IQIQ", 1, 0, 0, 0) for i in range(65_000)),
        count=65_000,
    )),
    "one member under many names": (".npz", lambda: one_member_under_many_names(20_000)),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_says_much_in_few_bytes_costs_no_more_than_another(name: str, tmp_path: Path) -> None:
    suffix, make = BOMBS[name]
    path = tmp_path / f"x{suffix}"
    path.write_bytes(make())
    hcq.load(_good(tmp_path))  # what is imported for the first file is not counted
    tracemalloc.start()
    try:
        try:
            hcq.load(path)  # what is not linear takes hours here, beyond any deadline
        except UsageError as error:
            assert len(str(error)) < 1000
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most <= 2 * path.stat().st_size + SLACK


def _good(folder: Path) -> Path:
    path = folder / "good.pt"
    hcq.save({"w": Tensor([1.0])}, path)
    return path


def test_a_checkpoint_of_thousands_of_small_tensors_is_read(tmp_path: Path) -> None:
    state = {f"layers.{i}.weight": Tensor([float(i)]) for i in range(3000)}
    for suffix in (".pt", ".npz", ".gguf"):
        hcq.save(state, tmp_path / f"many{suffix}")
        found = hcq.load(tmp_path / f"many{suffix}")
        assert len(found) == 3000 and found["layers.2999.weight"].tolist() == [2999.0]


def test_a_list_that_is_in_many_places_is_one_list(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(pt(b"\x80\2}X\1\0\0\0a](]q\0(K\1K\2eh\0es."))
    first, second = hcq.load(tmp_path / "x.pt")["a"]
    assert first == [1, 2] and first is second


@pytest.mark.parametrize("suffix", [".safetensors", ".gguf", ".npz", ".pt", ".index.json", ".npy"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    with pytest.raises(UsageError, match="No such file"):
        hcq.load(path)
    os.mkfifo(path)
    with pytest.raises(UsageError, match="is a FIFO: give a file"):
        hcq.load(path)


def test_the_directory_of_a_zip_file_is_read_as_zipfile_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"behind the end"
        for name in ("a.npy", "é/b.npy"):
            with archive.open(name, "w", force_zip64=True) as file:
                np.save(file, np.arange(1000))
    found = members(Mapped(path, "zip"))
    with zipfile.ZipFile(path) as archive:
        assert [(one.name, one.size, one.packed) for one in found] == [
            (info.filename, info.file_size, info.compress_size) for info in archive.infolist()
        ]
        assert [bytes(one.read()) for one in found] == [archive.read(one.name) for one in found]
    assert hcq.load(path)["é/b"].tolist() == list(range(1000))


def test_a_value_in_a_message_is_bounded_in_what_it_costs() -> None:
    nested: object = ()
    for _ in range(100):
        nested = (nested, nested)
    assert len(shown(nested)) <= 80
    assert shown([1, (2, "three"), {"four": [5]}]) == "[1, (2, 'three'), {'four': [5]}]"
    assert shown((1,)) == "(1,)"
