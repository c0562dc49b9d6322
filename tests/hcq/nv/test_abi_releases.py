"""The kernel interface against the headers of every public driver release, and drivers that have no table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq.errors import DriverError
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.args import Args
from hcq.nv.abi.ioctls import HISTORY, Abi, abi_for
from hcq.nv.abi.status import NvStatus
from hcq.nv.ioctl import CallRefused, call, call_with

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "nv" / "abi_layouts.json").read_text())
STRUCTURES: dict[str, Any] = VECTORS["structures"]
# a union of 64 characters and 64 wide ones, of which we read the characters
PARTS = {("GpuGetNameString", "gpunamestring"): 64}


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every structure with the layout it has from its release on."""
    for name, entry in STRUCTURES.items():
        for row in entry["layouts"]:
            yield name, row


def releases_of(name: str, row: dict[str, Any]) -> list[str]:
    """The releases that have this layout."""
    order = VECTORS["releases"]
    starts = [order.index(other["from"]) for other in STRUCTURES[name]["layouts"]]
    first = order.index(row["from"])
    last = min((start for start in starts if start > first), default=len(order))
    return order[first:last]


@pytest.mark.parametrize(
    ("name", "row"), [*rows()], ids=lambda value: value if isinstance(value, str) else value["from"]
)
def test_a_structure_is_laid_out_as_the_headers_of_each_release_say(name: str, row: dict[str, Any]) -> None:
    for release in releases_of(name, row):
        layout = abi_for(release).layout(name)
        assert layout.size_bytes == row["size"], release
        for field, bits in layout.fields.items():
            offset, size = row["fields"][field]
            size = PARTS.get((name, field), size)
            assert (bits.low // 8, bits.width // 8) == (offset, size), (release, field)


def test_every_structure_is_compared() -> None:
    assert set(abi_for("580.142").layouts) == set(STRUCTURES)
    assert len(VECTORS["releases"]) == 100


def test_a_structure_that_a_call_takes_has_no_bytes_that_no_field_or_gap_explains() -> None:
    """A driver that reads a field we do not declare reads zero there: none may lie beyond the last one by 8 bytes."""
    for name, row in rows():
        ends = [offset + size for offset, size in row["fields"].values()]
        if name not in ("UvmMapExternalAllocation", "DebugReadAllSmErrorStates"):
            assert row["size"] - max(ends) < 8, (name, row["from"])


def test_structures_that_changed_are_those_that_the_history_has() -> None:
    changed = {name for name, entry in STRUCTURES.items() if len(entry["layouts"]) > 1}
    assert changed == set(HISTORY)
    for name in changed:
        declared = [first for first, _ in HISTORY[name] if first < 610]
        seen = [int(row["from"].partition(".")[0]) for row in STRUCTURES[name]["layouts"]]
        assert declared == seen


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
