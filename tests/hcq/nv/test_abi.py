"""The kernel interface: sizes are exact, releases differ where the headers do, answers are put into words."""

from __future__ import annotations

import errno
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.errors import DriverError, UsageError
from hcq.layout import Ioctl
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.args import NO_FD, Args
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.ioctls import abi_for
from hcq.nv.abi.names import table
from hcq.nv.abi.status import BENIGN, NvStatus, describe_status, describe_xid, name_of
from hcq.nv.abi.structures import declared_layouts, structure
from hcq.nv.ioctl import call

STRUCTURES = [*declared_layouts()]


class Kernel:
    """A port whose kernel writes a status into the structure, or refuses the call."""

    def __init__(self, status: int = 0, at: int = 0, number: int = 0) -> None:
        self.status, self.at, self.number = status, at, number
        self.calls: list[tuple[int, int, int]] = []

    def ioctl(self, fd: int, request: int, argument: bytearray) -> int:
        self.calls.append((fd, request, len(argument)))
        if self.number:
            error = DriverError("refused")
            error.errno = self.number
            raise error
        argument[self.at : self.at + 4] = self.status.to_bytes(4, "little")
        return 0


@pytest.mark.parametrize("layout", STRUCTURES, ids=lambda layout: layout.__name__)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_structure_decodes_to_what_was_encoded(layout: type[Args], seed: int) -> None:
    drawn = Random(seed)
    values = {name: drawn.getrandbits(field.width) for name, field in layout.fields.items()}
    made = layout(**values)
    assert len(made.to_bytes()) == layout.size_bytes
    assert layout.from_bytes(made.to_bytes()).values == values
    assert max(field.high for field in layout.fields.values()) < 8 * layout.size_bytes


@pytest.mark.parametrize(
    ("ioctl", "request_number"),
    [
        (abi.RM_ALLOC, 0xC030462B),
        (abi.RM_CONTROL, 0xC020462A),
        (abi.RM_FREE, 0xC0104629),
        (abi.RM_MAP_MEMORY, 0xC038464E),
        (abi.RM_UNMAP_MEMORY, 0xC020464F),
        (abi.RM_ALLOC_MEMORY, 0xC0384627),
        (abi.REGISTER_FD, 0xC00446C9),
        (abi.CARD_INFO, 0xC90046C8),
        (abi.CHECK_VERSION_STR, 0xC04846D2),
        (abi.SYS_PARAMS, 0xC00846D6),
    ],
)
def test_a_request_is_the_number_that_the_kernel_knows(ioctl: Ioctl, request_number: int) -> None:
    assert ioctl.request == request_number


def test_a_release_between_tables_takes_the_older_one_and_a_newer_one_the_newest_and_both_say_so() -> None:
    assert (abi_for("580.142").release, abi_for("580.142").note) == (580, "")
    assert abi_for("575.51.03").release == 575
    assert (
        abi_for("585.10").note
        == "Driver 585.10 has no table of its own: the one of 580 is taken, and may not fit."
    )
    newer = abi_for("620.10")
    assert newer.release == 610
    assert newer.note == "Driver 620.10 has no table of its own: the one of 610 is taken, and may not fit."


def test_a_driver_older_than_all_tables_and_text_that_is_no_version_are_refused() -> None:
    with pytest.raises(DriverError, match=r"535\.54 is older than 550"):
        abi_for("535.54")
    with pytest.raises(UsageError, match="not a driver version"):
        abi_for("newest")


def test_a_field_that_a_release_has_not_is_refused() -> None:
    assert abi_for("580.1").make("GpfifoSchedule", benable=1, bskipenable=1).to_bytes() == b"\1\0\1"
    with pytest.raises(UsageError, match="has no field 'bskipenable'"):
        abi_for("570.1").make("GpfifoSchedule", benable=1, bskipenable=1)
    with pytest.raises(UsageError, match="has no field 'length'"):
        abi_for("590.1").make("UvmFree", base=0, length=4096)
    with pytest.raises(UsageError, match="no such structure"):
        abi_for("590.1").make("UvmNothing")


@pytest.mark.parametrize("release", abi.RELEASES)
def test_every_control_and_every_class_names_a_structure_that_there_is(release: int) -> None:
    here = abi_for(f"{release}.1")
    for name in (*abi.CONTROLS.values(), *abi.ALLOCATIONS.values()):
        assert here.layout(name).size_bytes > 0
    for each in vars(abi).values():
        if isinstance(each, Ioctl):
            assert here.of(each).size_bytes > 0


def test_a_call_returns_what_the_kernel_left() -> None:
    kernel = Kernel(status=0xC1D00001, at=8)
    got = call(abi_for("580.142"), kernel, 5, abi.RM_ALLOC, hclass=ClassId.NV01_ROOT_CLIENT)  # type: ignore[arg-type]
    assert got.values["hobjectnew"] == 0xC1D00001
    assert kernel.calls == [(5, 0xC030462B, 48)]


def test_a_status_is_described_with_the_call_its_arguments_and_the_usual_cause() -> None:
    kernel = Kernel(status=NvStatus.NV_ERR_INVALID_CLASS, at=40)
    with pytest.raises(DriverError) as caught:
        call(abi_for("580.142"), kernel, 5, abi.RM_ALLOC, hclass=0xC7C0, hobjectparent=0x5C000002)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "NV_ESC_RM_ALLOC(hclass=0xc7c0 AMPERE_COMPUTE_B, hobjectparent=0x5c000002, paramssize=0x0) -> "
        "NV_ERR_INVALID_CLASS (0x22: class id not supported on this GPU: read the class list (0x800292) first). "
        "Driver 580.142."
    )


def test_a_call_that_the_kernel_refuses_is_described_with_its_errno() -> None:
    with pytest.raises(DriverError, match=r"NV_ESC_REGISTER_FD\(ctl_fd=0x3\) -> EINVAL") as caught:
        call(abi_for("580.1"), Kernel(number=errno.EINVAL), 5, abi.REGISTER_FD, ctl_fd=3)  # type: ignore[arg-type]
    assert caught.value.errno == errno.EINVAL


def test_the_status_is_found_where_the_release_keeps_it() -> None:
    failed = NvStatus.NV_ERR_INVALID_ADDRESS
    with pytest.raises(DriverError, match="NV_ERR_INVALID_ADDRESS"):
        call(abi_for("590.1"), Kernel(failed, at=8), 5, abi.UVM_FREE, base=0)  # type: ignore[arg-type]
    with pytest.raises(DriverError, match="NV_ERR_INVALID_ADDRESS"):
        call(abi_for("580.1"), Kernel(failed, at=16), 5, abi.UVM_FREE, base=0, length=1)  # type: ignore[arg-type]


def test_nothing_to_do_is_success() -> None:
    kernel = Kernel(NvStatus.NV_WARN_NOTHING_TO_DO, at=4)
    assert call(abi_for("580.1"), kernel, 5, abi.UVM_MM_INITIALIZE, uvmfd=4).values["uvmfd"] == 4  # type: ignore[arg-type]
    assert BENIGN == {0, 0x10006}


def test_cards_are_asked_for_as_an_array() -> None:
    kernel = Kernel()
    call(abi_for("580.1"), kernel, 5, abi.CARD_INFO)  # type: ignore[arg-type]
    assert kernel.calls == [(5, 0xC90046C8, 0x900)]


def test_a_file_descriptor_of_none_is_minus_one_in_memory() -> None:
    made = structure("RmAllocMemoryArgs")(fd=NO_FD)
    assert made.to_bytes()[48:52] == (-1).to_bytes(4, "little", signed=True)


@given(st.integers(0, 2**32 - 1))
def test_any_status_and_any_channel_error_can_be_described(number: int) -> None:
    assert f"{number:#x}" in describe_status(number)
    assert str(number) in describe_xid(number)


def test_a_status_that_a_release_renumbered_has_that_releases_name() -> None:
    assert name_of(0x8B, 580) == "NV_ERR_DMA_XFER_FAILED"
    assert name_of(0x8B, 595) == "NV_ERR_OPERATION_ABORTED"
    assert name_of(0x8C, 595) == "NV_ERR_DMA_XFER_FAILED"
    assert name_of(0x7777) == "status 0x7777"


def test_a_fault_is_described_with_its_usual_cause() -> None:
    assert describe_xid(31).startswith("Xid 31 (ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT: MMU fault: bad VA")
    assert describe_xid(2) == "Xid 2 (no name in the headers)"
    assert all(cause == cause.strip() for _, cause in (*table("statuses").values(), *table("xids").values()))


def test_the_files_of_names_have_every_number_that_code_asks_for() -> None:
    for numbers, file in ((NvStatus, "statuses"), (ClassId, "classes"), (ControlId, "controls")):
        assert [each.name for each in numbers] == [table(file)[each][0] for each in numbers]
    names = [name for name, _ in table("statuses").values()]
    assert (len(names), len(set(names)), names[0]) == (150, 150, "NV_OK")
