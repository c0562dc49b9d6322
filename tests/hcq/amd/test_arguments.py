"""What an object says of its kernels' arguments is kept: by the kernel's symbol, in any order that makes sense."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from hcq.amd.device import AmdDevice
from hcq.errors import UsageError
from tests.hcq.amd.edited import with_metadata, without_metadata
from tests.hcq.amd.kernels import compile_ir
from tests.hcq.amd.kernels import image as amd_image

Open = Callable[..., AmdDevice]
KERNEL = r"""
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @four(ptr addrspace(1) %out, i32 %a, i32 %b, i64 %c) "amdgpu-no-implicitarg-ptr" {
  store i32 %a, ptr addrspace(1) %out
  %second = getelementptr i32, ptr addrspace(1) %out, i32 1
  store i32 %b, ptr addrspace(1) %second
  %third = getelementptr i32, ptr addrspace(1) %out, i32 2
  store i64 %c, ptr addrspace(1) %third, align 4
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @each(ptr addrspace(1) %out) "amdgpu-flat-work-group-size"="1,256" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %t, ptr addrspace(1) %p
  ret void
}
"""
OUT = {".offset": 0, ".size": 8, ".value_kind": "global_buffer", ".address_space": "global"}
A, B = ({".offset": at, ".size": 4, ".value_kind": "by_value"} for at in (8, 12))
C = {".offset": 16, ".size": 8, ".value_kind": "by_value"}


def table(*args: dict[str, Any], **others: Any) -> Callable[[dict[str, dict[str, Any]]], None]:
    def change(kernels: dict[str, dict[str, Any]]) -> None:
        kernels["four"][".args"] = list(args)
        kernels["four"].update({f".{name}": value for name, value in others.items()})

    return change


def run(amd: AmdDevice, image: bytes, args: list[Any], entry: str = "four", grid: int = 1) -> tuple[int, ...]:
    out = amd.alloc(64)
    out.write(bytes(64))
    given = [out if arg == "out" else arg for arg in args]
    amd.run(amd.load(image, entry), given, grid=(grid, 1, 1))
    return struct.unpack_from("<IIq", out.read())


@pytest.fixture(params=["pm4", "aql"])
def gfx1100(request: pytest.FixtureRequest, open_amd: Open) -> AmdDevice:
    return open_amd("gfx1100", queue=request.param)


def test_metadata_is_found_by_the_kernels_symbol_whatever_its_name_is(gfx1100: AmdDevice) -> None:
    def change(kernels: dict[str, dict[str, Any]]) -> None:
        four, each = kernels["four"], kernels["each"]
        four[".name"], each[".name"] = "each", "four"

    image = with_metadata(compile_ir(KERNEL, "gfx1100"), change)
    assert run(gfx1100, image, ["out", 1, 2, 3]) == (1, 2, 3)
    bits = struct.unpack("<I", struct.pack("<f", 1.5))[0]
    assert run(gfx1100, image, ["out", 1.5, 2, 3]) == (bits, 2, 3)  # four bytes, as the table says


def test_arguments_lie_where_the_table_says_in_whatever_order_it_has_them(gfx1100: AmdDevice) -> None:
    image = compile_ir(KERNEL, "gfx1100")
    args = [("out", OUT), (11, A), (22, B), (33, C)]
    draw = random.Random(5)
    for _ in range(6):
        draw.shuffle(args)
        edited = with_metadata(image, table(*(where for _, where in args)))
        assert run(gfx1100, edited, [value for value, _ in args]) == (11, 22, 33)


def test_an_argument_behind_or_between_hidden_ones_keeps_its_value(gfx1100: AmdDevice) -> None:
    image = compile_ir(KERNEL, "gfx1100")
    hidden = {".offset": 8, ".size": 4, ".value_kind": "hidden_block_count_x"}
    assert run(gfx1100, with_metadata(image, table(OUT, hidden, B, C)), ["out", 5, 6], grid=3) == (3, 5, 6)
    between = {**hidden, ".offset": 12}
    assert run(gfx1100, with_metadata(image, table(OUT, A, between, C)), ["out", 5, 6], grid=4) == (5, 4, 6)
    first = {".offset": 0, ".size": 8, ".value_kind": "hidden_none"}
    with pytest.raises(UsageError, match="takes 3 arguments"):
        run(gfx1100, with_metadata(image, table(first, A, B, C)), ["out", 1, 2, 3])


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([OUT, {**A, ".offset": 4}], r"argument 1 of 'four' at 4 overlaps argument 0, which ends at 8"),
        ([{**C, ".offset": 12}, B, OUT], r"overlaps"),
        ([OUT, {**C, ".offset": 20}], r"argument 1 of 'four' ends at 28 of 24 bytes"),
        ([OUT, {**C, ".offset": -1}], r"\.offset is -1"),
        ([OUT, {**C, ".size": "8"}], r"\.size is '8'"),
        ([OUT, {".offset": 8, ".size": 4}], r"\.value_kind"),
        ([OUT, 7], r"metadata makes no sense"),
    ],
)
def test_a_table_that_cannot_be_is_refused_in_a_sentence(
    gfx1100: AmdDevice, args: list[Any], why: str
) -> None:
    image = with_metadata(compile_ir(KERNEL, "gfx1100"), table(*args))
    with pytest.raises(UsageError, match=rf"^load\('four'\): its metadata makes no sense \(.*{why}|{why}"):
        gfx1100.load(image, "four")


def test_tables_at_random_are_packed_as_they_say_or_refused(open_amd: Open) -> None:
    """Seed 1 meets disordered, overlapping and hidden ones."""
    amd, image, draw = open_amd("gfx1100"), compile_ir(KERNEL, "gfx1100"), random.Random(1)
    ran = refused = 0
    for _ in range(60):
        places = [(A, 4), (B, 4), (C, 8)]
        args: list[Any] = [OUT]
        for where, _ in places:
            kind = draw.choice(["by_value", "by_value", "hidden_block_count_x"])
            args.append(
                {**where, ".value_kind": kind, ".offset": where[".offset"] + draw.choice([0, 0, 0, -4])}
            )
        draw.shuffle(args)
        values = [
            "out" if one[".value_kind"] == "global_buffer" else draw.randrange(1, 2**31) for one in args
        ]
        seen = bytearray(24)
        for one, value in zip(args, values):
            if value != "out":
                value = 2 if one[".value_kind"].startswith("hidden") else value
                seen[one[".offset"] : one[".offset"] + one[".size"]] = value.to_bytes(one[".size"], "little")
        given = [value for one, value in zip(args, values) if not one[".value_kind"].startswith("hidden")]
        try:
            found = run(amd, with_metadata(image, table(*args)), given, grid=2)
        except UsageError as error:
            assert "overlaps" in str(error)
            refused += 1
            continue
        ran += 1
        assert found == struct.unpack_from("<IIq", seen, 8)
    assert ran > 10
    assert refused > 10


def test_without_a_table_arguments_have_to_fill_the_segment(gfx1100: AmdDevice) -> None:
    image = without_metadata(compile_ir(KERNEL, "gfx1100"))
    assert run(gfx1100, image, ["out", 1 | 2 << 32, 3]) == (1, 2, 3)
    assert run(gfx1100, image, ["out", struct.pack("<IIq", 4, 5, 6)]) == (4, 5, 6)
    for args in (["out"], ["out", 1], ["out", 1, 2, 3], ["out", 1, 2, 3, 4], []):
        with pytest.raises(
            UsageError, match=rf"argument segment has 24 bytes, and {len(args)} arguments take"
        ):
            run(gfx1100, image, args)
    program = gfx1100.load(image, "four", args=("buffer", "int", "int"))
    with pytest.raises(UsageError, match="takes 3 arguments, got 4"):
        gfx1100.run(program, [gfx1100.alloc(64), 1, 2, 3])


def test_hidden_arguments_are_given_without_a_table_too(gfx1100: AmdDevice) -> None:
    image = without_metadata(amd_image("gfx1100"))
    out = gfx1100.alloc(12)
    sizes = gfx1100.load(image, "sizes")
    gfx1100.run(sizes, [out], grid=(5, 1, 1), block=(48, 1, 1))
    assert struct.unpack("<3I", out.read()) == (5, 48, 240)
    hidden = struct.pack("<IIIH", 7, 1, 1, 9).ljust(256, b"\0")
    gfx1100.run(sizes, [out, hidden], grid=(5, 1, 1), block=(48, 1, 1))
    assert struct.unpack("<3I", out.read()) == (7, 9, 240)
    with pytest.raises(
        UsageError, match="has 264 bytes, 256 of them hidden arguments, and 2 arguments take 16"
    ):
        gfx1100.run(sizes, [out, 1])


def test_metadata_without_a_table_is_as_none(gfx1100: AmdDevice) -> None:
    image = with_metadata(compile_ir(KERNEL, "gfx1100"), table())
    assert run(gfx1100, image, ["out", 1 | 2 << 32, 3]) == (1, 2, 3)
    with pytest.raises(UsageError, match="argument segment has 24 bytes, and 1 arguments take 8"):
        run(gfx1100, image, ["out"])


def test_a_kernel_is_only_launched_in_the_workgroups_it_was_compiled_for(gfx1100: AmdDevice) -> None:
    def change(kernels: dict[str, dict[str, Any]]) -> None:
        kernels["each"][".reqd_workgroup_size"] = [16, 4, 1]
        kernels["four"][".max_num_workgroups_x"] = 2

    image = with_metadata(compile_ir(KERNEL, "gfx1100"), change)
    out = gfx1100.alloc(4096)
    each = gfx1100.load(image, "each")
    gfx1100.run(each, [out], block=(16, 4, 1))
    gfx1100.run(each, [out], block=[16, 4, 1])  # type: ignore[arg-type]
    for block in ((64, 1, 1), (16, 4, 2), (1, 1, 1)):
        with pytest.raises(UsageError, match=r"block=.*; the kernel was compiled for exactly \(16, 4, 1\)"):
            gfx1100.run(each, [out], block=block)
    with pytest.raises(UsageError, match=r"has 512 threads; the kernel was compiled for at most 256"):
        gfx1100.run(gfx1100.load(compile_ir(KERNEL, "gfx1100"), "each"), [out], block=(512, 1, 1))
    with pytest.raises(UsageError, match=r"grid=\(3, 1, 1\); the kernel was compiled for at most \(2, "):
        run(gfx1100, image, ["out", 1, 2, 3], grid=3)


@pytest.mark.parametrize("size", [[64, 1], [64, 0, 1], "64", [64, 1, 2**40], [1.0, 1, 1]])
def test_a_size_of_workgroups_that_cannot_be_is_refused(gfx1100: AmdDevice, size: Any) -> None:
    image = with_metadata(compile_ir(KERNEL, "gfx1100"), table(OUT, A, B, C, reqd_workgroup_size=size))
    with pytest.raises(UsageError, match=r"\.reqd_workgroup_size is"):
        gfx1100.load(image, "four")
