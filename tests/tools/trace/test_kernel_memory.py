"""Records of memory after each kernel are compared by what the program wrote, wherever it lies."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hcq.errors import UsageError
from hcq.tools import hcq_trace
from hcq.tools.trace import kernel_memory
from hcq.tools.trace.kernel_memory import MAGIC

HERE, THERE = 0x7F00_0000_0000, 0x5500_1230_0000


def record(kind: str, body: bytes) -> bytes:
    return struct.pack("<4sQ", kind.encode(), len(body)) + body


def made(number: int, address: int, size: int) -> bytes:
    return record("MADE", struct.pack("<3Q", number, address, size))


def ran(name: str = "scale", grid: int = 4, error: int = 0) -> bytes:
    return record("RUNS", struct.pack("<7Ii", grid, 1, 1, 64, 1, 1, 0, error) + name.encode())


def changed(number: int, offset: int, content: bytes, kind: str = "DATA") -> bytes:
    return record(kind, struct.pack("<2Q", number, offset) + content)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def file(path: Path, *records: bytes, launches: int | None = 1) -> Path:
    end = b"" if launches is None else record("ENDS", struct.pack("<Q", launches))
    path.write_bytes(MAGIC + b"".join(records) + end)
    return path


def compare(a: Path, b: Path, ulps: int = 0) -> kernel_memory.Result:
    return kernel_memory.compare(kernel_memory.read(a), kernel_memory.read(b), ulps)


def test_the_same_bytes_at_other_addresses_are_the_same_memory(tmp_path: Path) -> None:
    a = file(tmp_path / "a", made(0, HERE, 64), ran(), changed(0, 0, floats(1, 2, 3)))
    b = file(tmp_path / "b", made(0, THERE, 64), ran(), changed(0, 0, floats(1, 2, 3)))
    result = compare(a, b)
    assert result.is_same
    assert (result.launches, result.words) == (1, 3)


def test_a_pointer_to_the_same_place_of_an_allocation_is_the_same(tmp_path: Path) -> None:
    sides = []
    for name, base in (("a", HERE), ("b", THERE)):
        pointers = struct.pack("<2Q", base + 16, base + 64)
        sides.append(file(tmp_path / name, made(0, base, 64), ran(), changed(0, 8, pointers)))
    assert compare(*sides).is_same


def test_a_pointer_to_another_place_differs(tmp_path: Path) -> None:
    sides = []
    for name, base, offset in (("a", HERE, 16), ("b", THERE, 24)):
        pointer = struct.pack("<Q", base + offset)
        sides.append(file(tmp_path / name, made(0, base, 64), ran(), changed(0, 8, pointer)))
    assert not compare(*sides).is_same


def test_a_word_that_differs_is_named_by_launch_allocation_and_offset(tmp_path: Path) -> None:
    sides = []
    for name, last in (("a", 3.0), ("b", 4.0)):
        first = [ran("first"), changed(1, 0, floats(7, 7))]
        second = [ran("second"), changed(1, 16, floats(1, 2, last))]
        records = [made(0, HERE, 8), made(1, HERE + 4096, 256), *first, *second]
        sides.append(file(tmp_path / name, *records, launches=2))
    (one,) = compare(*sides).differences
    assert (one.launch, one.allocation, one.offset, one.words) == (1, 1, 24, 1)
    assert one.kernel.startswith("second grid 4x1x1 block 64x1x1")
    assert "3.0 and 4.0 as float32" in one.what


def test_a_word_that_only_one_side_changed_differs(tmp_path: Path) -> None:
    a = file(tmp_path / "a", made(0, HERE, 64), ran(), changed(0, 4, floats(5)))
    b = file(tmp_path / "b", made(0, HERE, 64), ran())
    assert [one.offset for one in compare(a, b).differences] == [4]


def test_what_memory_held_before_the_program_wrote_to_it_is_no_result(tmp_path: Path) -> None:
    a = file(
        tmp_path / "a",
        made(0, HERE, 64),
        changed(0, 0, b"\xaa" * 64, "HELD"),
        ran(),
        changed(0, 0, floats(5)),
    )
    b = file(tmp_path / "b", made(0, HERE, 64), ran(), changed(0, 0, floats(5)))
    assert compare(a, b).is_same


def test_writing_what_memory_held_already_is_the_same_as_writing_it(tmp_path: Path) -> None:
    a = file(tmp_path / "a", made(0, HERE, 4), changed(0, 0, floats(5), "HELD"), ran())
    b = file(tmp_path / "b", made(0, HERE, 4), ran(), changed(0, 0, floats(5)))
    assert compare(a, b).is_same


def test_a_difference_is_said_at_the_launch_that_made_it_and_not_again(tmp_path: Path) -> None:
    sides = []
    for name, value in (("a", 1.0), ("b", 2.0)):
        records = [made(0, HERE, 64), ran(), changed(0, 0, floats(value)), ran(), changed(0, 8, floats(9))]
        sides.append(file(tmp_path / name, *records, launches=2))
    assert [one.launch for one in compare(*sides).differences] == [0]


def test_floats_within_the_units_in_the_last_place_are_near(tmp_path: Path) -> None:
    bits = struct.unpack("<I", floats(1.0))[0]
    negative = struct.unpack("<I", floats(-0.0))[0]
    a = file(tmp_path / "a", made(0, HERE, 8), ran(), changed(0, 0, struct.pack("<2I", bits, negative + 1)))
    b = file(tmp_path / "b", made(0, HERE, 8), ran(), changed(0, 0, struct.pack("<2I", bits + 2, 1)))
    assert len(compare(a, b, ulps=1).differences) == 1
    near = compare(a, b, ulps=2)
    assert near.is_same
    assert near.near == 2


def test_nan_is_near_to_nothing(tmp_path: Path) -> None:
    a = file(tmp_path / "a", made(0, HERE, 4), ran(), changed(0, 0, struct.pack("<I", 0x7FC00000)))
    b = file(tmp_path / "b", made(0, HERE, 4), ran(), changed(0, 0, struct.pack("<I", 0x7FC00001)))
    assert not compare(a, b, ulps=1000).is_same


def test_another_launch_ends_the_comparison(tmp_path: Path) -> None:
    a = file(tmp_path / "a", ran("one"), ran("two"), launches=2)
    b = file(tmp_path / "b", ran("one"), ran("other"), launches=2)
    (one,) = compare(a, b).differences
    assert one.launch == 1
    assert "other" in one.what


def test_launches_that_one_side_lacks_are_a_difference(tmp_path: Path) -> None:
    a = file(tmp_path / "a", ran(), ran("last"), launches=2)
    b = file(tmp_path / "b", ran())
    (one,) = compare(a, b).differences
    assert (one.launch, one.what) == (1, "only in the first, which has 1 kernel more")


def test_an_error_of_the_device_is_a_difference(tmp_path: Path) -> None:
    a, b = file(tmp_path / "a", ran(error=700)), file(tmp_path / "b", ran())
    (one,) = compare(a, b).differences
    assert "hipError_t 700" in one.what


def test_a_record_that_breaks_off_is_compared_up_to_there_and_says_so(tmp_path: Path) -> None:
    whole = file(tmp_path / "a", made(0, HERE, 64), ran(), changed(0, 0, floats(1, 2)), launches=None)
    cut = tmp_path / "b"
    cut.write_bytes(whole.read_bytes() + ran()[:9])
    result = compare(cut, cut)
    assert result.is_same
    assert result.launches == 1
    assert "did not come to its end" in result.notes[0]


@pytest.mark.parametrize(
    "body",
    [
        made(1, HERE, 64),
        made(0, HERE, 64)[:-8].replace(struct.pack("<Q", 24), struct.pack("<Q", 16)),
        changed(0, 0, b"1234"),
        made(0, HERE, 64) + changed(0, 0, b"1234"),
        made(0, HERE, 64) + ran() + changed(0, 62, b"1234"),
        made(0, HERE, 64) + ran() + changed(0, 2**63, b"1234"),
        record("GONE", struct.pack("<Q", 3)),
        record("WHAT", b""),
    ],
    ids=["order", "short", "not live", "no launch", "beyond", "far beyond", "gone", "unknown"],
)
def test_a_broken_record_is_refused_and_its_place_named(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(UsageError, match=r"at byte .* is broken"):
        kernel_memory.read(file(tmp_path / "a", body))


def test_diff_compares_records_of_memory_as_it_compares_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = file(tmp_path / "a", made(0, HERE, 64), ran(), changed(0, 0, floats(1)))
    b = file(tmp_path / "b", made(0, HERE, 64), ran(), changed(0, 0, floats(2)))
    assert hcq_trace.main(["diff", str(a), str(a)]) == 0
    assert "same memory: 1 kernel, 1 changed word" in capsys.readouterr().out
    assert hcq_trace.main(["diff", str(a), str(b)]) == 1
    assert "launch 0 scale" in capsys.readouterr().out
    assert hcq_trace.main(["diff", str(a), __file__]) == 2
    assert "is no record of kernel memory" in capsys.readouterr().err
