"""Which calls break: by what changed, by what the call used, and of a whole trace.

In       calls made of bytes; traces of emulated GPUs
Out      what is said of each
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
    made, release, damage, _ = breaks.calls_of(path, atlas)
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
        0,
    )


# -- logs of other programs


STRACE_NV = """\
openat(AT_FDCWD, "/dev/nvidia-uvm", O_RDWR|O_CLOEXEC) = 9
openat(AT_FDCWD, "/dev/nvidiactl", O_RDWR|O_CLOEXEC) = 15
openat(AT_FDCWD, "/dev/tty", O_RDWR) = 4
ioctl(9, _IOC(_IOC_NONE, 0, 0x22, 0), 0x7ffd23823780) = 0
ioctl(9, _IOC(_IOC_NONE, 0, 0x22, 0), 0x7ffd23823790) = 0
ioctl(15, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x57, 0x40), 0x7ffd23822e40) = 0
ioctl(15, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x2a, 0x20), 0x7ffd23822ba0) = 0
ioctl(4, TCGETS, 0x7ffd23823780) = 0
"""
STRACE_KFD = """\
openat(AT_FDCWD, "/dev/kfd", O_RDWR|O_CLOEXEC) = 3
ioctl(3, AMDKFD_IOC_GET_VERSION, 0x7ffc0) = 0
ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4b, 0x2, 0x60), 0x7ffc0) = 0
ioctl(0, _IOC(_IOC_NONE, 0x4b, 0x33, 0), 0x7ffc0) = 0
"""
GVISOR_NV = """\
I0101 00:00:00.000001 1 strace.go:567] [ 1: 1] app E ioctl(0x44 /dev/nvidiactl, 0xc030462b, 0x7f0000000000)
D0101 00:00:00.000003 1 frontend.go:786] [ 1: 1] nvproxy: allocation class 0x000090f1
I0101 00:00:00.000005 1 strace.go:605] [ 1: 1] app X ioctl(0x44 /dev/nvidiactl, 0xc030462b, 0x7f0000000000) = 0 (0x0)
"""


def broken(
    tmp_path: Path, words: str, driver: str, before: str, after: str
) -> tuple[dict[str, int], int, int]:
    """What breaks of a log and how often, how many calls there are, and how many have no bytes."""
    atlas = atlases()[driver]
    path = tmp_path / "run.log"
    path.write_text(words)
    recorded = breaks.calls_of(path, atlas)
    found = breaks.judge(recorded.calls, atlas, atlas.at(before), atlas.at(after))
    return {one.name: one.times for one in found.breaks}, found.made, recorded.bare


def test_calls_of_a_strace_log_decide_which_changes_matter(tmp_path: Path) -> None:
    assert broken(tmp_path, STRACE_NV, "nv", "580.142", "590.44.01") == ({"UVM_FREE": 2}, 4, 4)
    assert broken(tmp_path, STRACE_NV, "nv", "575.64.05", "580.142") == (
        {"NV_ESC_RM_MAP_MEMORY_DMA": 1},
        4,
        4,
    )


def test_a_log_of_the_kfd_is_judged_and_others_with_its_letter_are_not(tmp_path: Path) -> None:
    assert broken(tmp_path, STRACE_KFD, "kfd", "1.17", "1.14")[0] == {"CREATE_QUEUE": 1}
    assert broken(tmp_path, STRACE_KFD, "kfd", "1.14", "1.17") == ({}, 2, 2)


def test_the_class_that_gvisor_names_is_judged(tmp_path: Path) -> None:
    assert broken(tmp_path, GVISOR_NV, "nv", "575.64.05", "580.142") == ({"FERMI_VASPACE_A": 1}, 2, 1)


def test_bytes_below_a_call_say_what_it_used(tmp_path: Path) -> None:
    request = kfd.CREATE_QUEUE.request

    def log(**fields: int) -> str:
        data = kfd.CreateQueueArgs(queue_type=2, **fields).to_bytes()
        rows = (f"{at:08x}  {data[at : at + 16].hex(' ')}" for at in range(0, len(data), 16))
        return f"ioctl(3</dev/kfd>, {request:#x}, 0x7ffc0) = 0\nbefore:\n" + "\n".join(rows) + "\n"

    assert broken(tmp_path, log(), "kfd", "1.17", "1.14") == ({}, 1, 0)
    assert broken(tmp_path, log(sdma_engine_id=1), "kfd", "1.17", "1.14") == ({"CREATE_QUEUE": 1}, 1, 0)


def test_the_program_notes_calls_without_bytes_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hcq.__main__ import main

    path = tmp_path / "run.log"
    path.write_text(STRACE_NV)
    assert main(["abi", "diff", "nv", "580.142", "590.44.01", "--trace", str(path)]) == 1
    done = capsys.readouterr()
    assert (
        "! UVM_FREE (UVM_FREE_PARAMS), 2 times" in done.out
        and "4 calls are without their argument's bytes" in done.err
    )
    path.write_text("a poem\n")
    assert main(["abi", "diff", "nv", "580.142", "590.44.01", "--trace", str(path)]) == 2
    assert "logs of strace do, too" in capsys.readouterr().err
