"""Which calls break: by what changed, by what the call used, and of a whole trace.

In       calls made of bytes; traces of emulated GPUs
Out      what is said of each
Changes  nothing
Next     test_laws.py (differences), test_command.py (the program)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.amd.abi import kfd
from hcq.atlas import breaks
from hcq.atlas.command import atlases
from hcq.errors import UsageError
from hcq.nv.abi import ioctls
from hcq.nv.abi.structures import structure
from hcq.system.abi_atlas import Made

KFD, NV = atlases()["kfd"], atlases()["nv"]


def why(request: int, argument: bytes, before: str, after: str) -> str:
    """Why a call of the KFD breaks."""
    (made,) = KFD.made(request, argument, {})
    return breaks.reason(made, KFD, KFD.at(before), KFD.at(after))


def queue(**fields: int) -> str:
    """Why a queue with these fields, made for 1.17, cannot be made on 1.14."""
    return why(kfd.CREATE_QUEUE.request, kfd.CreateQueueArgs(**fields).to_bytes(), "1.17", "1.14")


def test_a_queue_breaks_on_an_older_kfd_only_if_it_uses_what_is_not_there() -> None:
    assert queue(queue_type=2, ring_size=4096) == ""
    assert queue(sdma_engine_id=1) == "sdma_engine_id is gone"
    assert queue(queue_type=4) == "queue_type is SDMA_BY_ENG_ID, which 1.14 does not know"


def test_a_queue_for_an_older_kfd_breaks_on_no_newer_one() -> None:
    argument = kfd.CreateQueueArgs(queue_type=2).to_bytes()[:88]
    for release in KFD.releases():
        assert why(kfd.CREATE_QUEUE.request, argument, "1.11", release) == ""


def test_padding_that_is_not_0_breaks_where_it_has_got_a_meaning_and_the_other_way_round() -> None:
    argument = kfd.SetMemoryPolicyArgs(gpu_id=1, pad=1).to_bytes()
    request = kfd.SET_MEMORY_POLICY.request
    assert why(request, argument, "1.17", "1.18") == "pad, which is not 0, becomes misc_process_flag"
    assert why(request, argument, "1.18", "1.17") == "misc_process_flag, which is not 0, becomes pad"
    assert why(request, kfd.SetMemoryPolicyArgs(gpu_id=1).to_bytes(), "1.18", "1.17") == ""


def test_a_flag_breaks_where_it_is_not_known_beside_any_others() -> None:
    flags = kfd.AllocFlags.VRAM | kfd.AllocFlags.CONTIGUOUS_BEST_EFFORT
    request = kfd.ALLOC_MEMORY_OF_GPU.request
    said = why(request, kfd.AllocMemoryOfGpuArgs(flags=flags).to_bytes(), "1.16", "1.15")
    assert said == "flags is CONTIGUOUS_BEST_EFFORT, which 1.15 does not know"
    assert why(request, kfd.AllocMemoryOfGpuArgs(flags=1).to_bytes(), "1.16", "1.15") == ""


def test_a_call_that_a_release_has_not_breaks_and_the_newer_one_has_it() -> None:
    argument = kfd.ExportDmabufArgs().to_bytes()
    assert why(kfd.EXPORT_DMABUF.request, argument, "1.12", "1.11") == "1.11 has no such ioctl"
    assert why(kfd.EXPORT_DMABUF.request, argument, "1.11", "1.12") == ""


def test_the_kfds_structures_are_at_1_17_what_this_driver_calls_with() -> None:
    found = KFD.at("1.17")
    for call in kfd.KFD_IOCTLS.values():
        if call is kfd.CREATE_PROCESS:
            assert ("ioctl", call.number) not in found.calls
            continue
        one = found.structures[found.calls["ioctl", call.number].structure]
        assert one.name == call.layout.__name__
        assert one.size_bytes == call.size_bytes
        places = {name: (field.byte_offset, field.width // 8) for name, field in call.layout.fields.items()}
        assert places == {field.name: (field.offset, field.size_bytes) for field in one.fields}


def test_nvidias_structures_are_in_each_release_what_this_driver_calls_with() -> None:
    for release in ("550.40.53", "565.77", "570.211.01", "580.142", "595.45.04"):
        for one in NV.at(release).structures.values():
            layout = structure(one.name, int(release[:3]))
            assert layout.size_bytes == one.size_bytes
            assert len(layout.fields) == sum(field.entries for field in one.fields)


def test_nvidias_driver_takes_no_other_size() -> None:
    was, now = NV.at("580.142"), NV.at("595.45.04")
    free = structure("UvmFree", 580)(base=4096, length=4096).to_bytes()
    (made,) = NV.made(ioctls.UVM_FREE.request, free, {})
    said = breaks.reason(made, NV, was, now)
    assert said == "24 bytes become 16; length is gone; rmstatus moves from byte 16 to 8"
    assert breaks.reason(made, NV, was, NV.at("550.40.53")) == ""


def test_a_call_that_breaks_in_many_ways_names_the_first_of_them() -> None:
    made = Made("class", 0xC86F, bytes(368))
    said = breaks.reason(made, NV, NV.at("595.45.04"), NV.at("610"))
    assert said.startswith("368 bytes become 376; huserdmemory[i] moves from byte 32 to 36; ")
    assert said.endswith("; and 33 more")


def test_a_control_and_an_allocation_are_judged_by_what_they_are_for() -> None:
    argument = structure("RmAllocArgs")(hclass=0x90F1).to_bytes()
    made = NV.made(ioctls.RM_ALLOC.request, argument, {"pallocparms": bytes(56)})
    assert [(one.sort, one.number) for one in made] == [("escape", 0x2B), ("class", 0x90F1)]
    found = breaks.judge(made, NV, NV.at("580.142"), NV.at("570.86.15"))
    assert [(one.name, one.why, one.times) for one in found.breaks] == [
        ("FERMI_VASPACE_A", "56 bytes become 48", 1)
    ]


def test_a_call_that_nobody_declared_is_named_and_not_judged() -> None:
    made = [Made("control", 0x20801234, None), Made("control", 0x20801234, b""), Made("class", 0x41, None)]
    found = breaks.judge(made, NV, NV.at("550.40.53"), NV.at("580.142"))
    assert not found.breaks
    assert [count for _, count in found.unknown] == [2, 1]
    assert found.unknown[1][0] == "NV01_ROOT_CLIENT"


def test_calls_of_other_drivers_are_none_of_an_atlas() -> None:
    drm = 0xC0206440
    assert KFD.made(drm, bytes(32), {}) == ()
    assert NV.made(drm, bytes(32), {}) == ()
    assert NV.made(kfd.CREATE_QUEUE.request, bytes(96), {}) == ()
    assert KFD.made(ioctls.RM_ALLOC.request, bytes(48), {}) == ()


def test_an_argument_that_was_recorded_in_part_is_judged_by_what_there_is() -> None:
    request = kfd.CREATE_QUEUE.request
    for size in range(96):
        assert why(request, bytes(size), "1.17", "1.14") == ""
    assert NV.made(ioctls.RM_CONTROL.request, b"", {})[1].number == 0


@pytest.mark.parametrize(
    ("word", "driver", "before", "after", "broken"),
    [
        ("amd:gfx1100", "kfd", "1.17", "1.14", set()),
        (
            "nv:sm_90",
            "nv",
            "580.142",
            "550.40.53",
            {"FERMI_VASPACE_A", "HOPPER_CHANNEL_GPFIFO_A", "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE"},
        ),
    ],
)
def test_a_trace_of_an_emulated_gpu_is_judged_call_by_call(
    tmp_path: Path, word: str, driver: str, before: str, after: str, broken: set[str]
) -> None:
    path = tmp_path / "run.hcqtrace"
    name = word.partition(":")[0].upper()
    environment = {**os.environ, "HCQ_EMULATE": word, "HCQ_TRACE": str(path)}
    program = f"import hcq; hcq.open({name!r}).close()"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
    atlas = atlases()[driver]
    made, release, damage = breaks.calls_of(path, atlas)
    assert not damage
    assert release == before
    found = breaks.judge(made, atlas, atlas.at(before), atlas.at(after))
    assert found.made == len(made) > 20
    assert broken <= {one.name for one in found.breaks}
    assert bool(broken) == bool(found.breaks)
    same = breaks.judge(made, atlas, atlas.at(before), atlas.at(before))
    assert not same.breaks


def test_what_is_no_trace_is_refused_and_a_cut_one_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    other, cut = tmp_path / "other", tmp_path / "cut"
    other.write_bytes(b"nothing of the kind")
    with pytest.raises(
        UsageError, match=r"other: not a trace; .* HCQ_TRACE=FILE in the environment records one"
    ):
        breaks.calls_of(other, KFD)
    environment = {**os.environ, "HCQ_TRACE": str(cut)}
    subprocess.run(
        [sys.executable, "-c", "import hcq; hcq.open('CPU').close()"],
        env=environment,
        check=True,
        timeout=120,
    )
    cut.write_bytes(cut.read_bytes()[:-3])
    assert breaks.calls_of(cut, KFD) == (
        [],
        "",
        "cut off in the middle of a record, or its length is damaged",
    )
