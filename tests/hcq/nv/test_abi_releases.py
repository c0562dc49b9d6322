"""The kernel interface against the headers of every public driver release, and drivers that have no table."""

from __future__ import annotations

import re

import pytest

from hcq.errors import DriverError, UsageError
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi import structures
from hcq.nv.abi.args import Args
from hcq.nv.abi.ioctls import Abi, abi_for
from hcq.nv.abi.status import NvStatus
from hcq.nv.abi.structures import declared_layouts, history, names, releases, structure
from hcq.nv.ioctl import CallRefused, call, call_with

# structures that have changed: from which release on, and how many bytes it then has
CHANGED = {
    "VaspaceAlloc": {550: 48, 580: 56},
    "ChannelAlloc": {550: 360, 570: 368, 610: 376},
    "GpuGetClasslistV2": {550: 700, 555: 404, 580: 804},
    "FbGetInfoV2": {550: 444, 560: 460, 580: 1028},
    "GpfifoSchedule": {550: 2, 575: 3},
    "GpuGetNameString": {550: 132, 595: 68},
    "UvmUnregisterChannel": {550: 28, 590: 12},
    "UvmFree": {550: 24, 590: 16},
    "MapMemoryDma": {550: 56, 580: 64},
    "BuildVersionV2": {550: 776, 570: 1032},
}
# of which we declare the beginning of an array, or which end in one of bytes
OPEN_ENDED = ("UvmMapExternalAllocation", "DebugReadAllSmErrorStates", "GpuGetNameString")


def test_the_headers_of_a_hundred_releases_were_read() -> None:
    assert len(releases()) == len(set(releases())) == 100
    assert (releases()[0], releases()[-1]) == ("550.40.53", "595.45.04")
    assert abi.RELEASES == (550, 555, 560, 565, 570, 575, 580, 590, 595, 610)


@pytest.mark.parametrize("name", names())
def test_a_release_has_the_newest_layout_that_began_before_it(name: str) -> None:
    sizes = CHANGED.get(name, {550: structure(name).size_bytes})
    assert [layout.size_bytes for layout in history(name)] == [*sizes.values()]
    for release in abi.RELEASES:
        began = max(first for first in sizes if first <= release)
        assert abi_for(f"{release}.1").layout(name).size_bytes == sizes[began]
        assert abi_for(f"{release}.1").layout(name) is structure(name, began)


@pytest.mark.parametrize("layout", [*declared_layouts()], ids=lambda layout: layout.__name__)
def test_a_structure_is_laid_out_as_a_compiler_lays_it_out(layout: type[Args]) -> None:
    """Numbers stand at multiples of their size, and no bytes at the end are left that no field explains."""
    for name, field in layout.fields.items():
        assert field.low % 8 == 0 and field.width % 8 == 0, name
        if field.width in (16, 32, 64):
            assert field.low % field.width == 0, name
    last = max(field.high for field in layout.fields.values()) // 8 + 1
    assert 0 <= layout.size_bytes - last < 8 or layout.__name__ in OPEN_ENDED


def test_a_name_and_a_release_that_are_not_known_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'UvmNothing': no such structure\. Known: Bind, BuildVersionV2, "):
        structure("UvmNothing")
    with pytest.raises(UsageError, match=r"UvmFree of release 535: not known\. The oldest known is 550\."):
        structure("UvmFree", 535)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ("base@0", "'base@0' is not name@offset:size"),
        ("base@-8:8", "'base@-8:8' is not name@offset:size"),
        ("base@8:0", "base@8:0 is not within its 12 bytes"),
        ("base@8:8", "base@8:8 is not within its 12 bytes"),
        ("each_{i}@0:4*4", "is not within its 12 bytes"),
        ("each_{i}@0:4*2/9", "is not within its 12 bytes"),
        ("base@0:8 length@4:8", "bit 32 already belongs to base"),
    ],
)
def test_a_damaged_line_of_the_file_is_refused(
    fields: str, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = structures.Row("Odd", "ODD_PARAMS", 550, 12, fields, "")
    monkeypatch.setattr(structures, "_file", lambda: ((), {"Odd": (row,)}))
    with pytest.raises(UsageError, match=re.escape(refusal)):
        structure("Odd")


def test_the_structure_that_610_is_known_to_have_changed() -> None:
    here = abi_for("610.43.02")
    fields = here.layout("ChannelAlloc").fields
    assert here.layout("ChannelAlloc").size_bytes == 376
    assert [fields[name].low // 8 for name in ("hhandlevaspace", "huserdmemory_0", "userdoffset_0", "enginetype")] == [
        32, 36, 72, 136,
    ]  # fmt: skip
    assert "of 610 only the channel's structure was read" in here.note


# -- drivers without a table of their own


class Newer:
    """A driver that takes one size of a structure."""

    def __init__(self, size_bytes: int, status: int = 0) -> None:
        self.size_bytes, self.status, self.tries = size_bytes, status, 0

    def __call__(self, made: Args) -> int:
        self.tries += 1
        status = self.status if made.size_bytes == self.size_bytes else NvStatus.NV_ERR_INVALID_PARAM_STRUCT
        if status:
            refusal = CallRefused(f"try {self.tries}: status {status:#x}")
            refusal.status = status
            raise refusal
        return made.size_bytes


def test_a_driver_without_a_table_is_asked_which_layout_it_takes_and_the_answer_is_kept() -> None:
    here, driver = abi_for("620.10"), Newer(368)
    assert call_with(here, "ChannelAlloc", {"gpfifoentries": 64}, driver) == 368
    assert driver.tries == 2
    assert here.layout("ChannelAlloc").size_bytes == 368
    assert call_with(here, "ChannelAlloc", {"gpfifoentries": 64}, driver) == 368
    assert driver.tries == 3
    assert abi_for("620.10").layout("ChannelAlloc").size_bytes == 376


def test_a_driver_with_a_table_is_not_asked_twice() -> None:
    driver = Newer(376)
    with pytest.raises(DriverError, match="try 1"):
        call_with(abi_for("580.142"), "ChannelAlloc", {"gpfifoentries": 64}, driver)
    assert driver.tries == 1


def test_an_answer_of_another_kind_ends_the_asking() -> None:
    driver = Newer(376, NvStatus.NV_ERR_NO_MEMORY)
    with pytest.raises(DriverError, match="try 1"):
        call_with(abi_for("620.10"), "ChannelAlloc", {}, driver)
    driver = Newer(368, NvStatus.NV_ERR_NO_MEMORY)
    with pytest.raises(DriverError, match="try 2"):
        call_with(abi_for("620.10"), "ChannelAlloc", {}, driver)


def test_where_no_layout_is_taken_the_first_answer_is_raised() -> None:
    driver = Newer(9999)
    with pytest.raises(DriverError, match="try 1"):
        call_with(abi_for("620.10"), "ChannelAlloc", {"gpfifoentries": 64}, driver)
    assert driver.tries == 3  # the three it has had


def test_a_layout_that_lacks_a_field_of_the_call_is_not_tried() -> None:
    driver = Newer(2)
    with pytest.raises(DriverError, match="try 1"):
        call_with(abi_for("620.10"), "GpfifoSchedule", {"benable": 1, "bskipenable": 1}, driver)
    assert driver.tries == 1


def test_a_call_carries_its_status_for_programs() -> None:
    class Kernel:
        def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
            argument[12:16] = int(NvStatus.NV_ERR_INVALID_PARAM_STRUCT).to_bytes(4, "little")
            return 0

    with pytest.raises(CallRefused) as caught:
        call(abi_for("580.1"), Kernel(), 5, abi.RM_FREE)  # type: ignore[arg-type]
    assert caught.value.status == NvStatus.NV_ERR_INVALID_PARAM_STRUCT
    assert isinstance(abi_for("580.1"), Abi)
