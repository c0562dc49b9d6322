"""python -m hcq abi: what it prints, for people and for programs, and how it refuses what makes no sense."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.__main__ import main
from hcq.atlas import breaks, command
from hcq.atlas.command import atlases


def test_a_difference_names_each_field_and_the_calls_that_take_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["abi", "diff", "nv", "570.86", "580.142"]) == 0
    said = capsys.readouterr()
    assert said.err == "note: nv 570.86: 570.86.16 is taken, the newest of 570.86.\n"
    assert said.out.startswith("nv 570.86.16 -> 580.142: structures: 5 changed\n")
    assert "\n~ MapMemoryDma (struct NVOS46_PARAMETERS): 56 -> 64 bytes\n" in said.out
    assert "\n  + flags2        new: byte 36, 4 bytes\n" in said.out
    assert "\n  ~ dmaoffset     moved: byte 40 -> 48, 8 bytes\n" in said.out
    assert "\n    taken by NV_ESC_RM_MAP_MEMORY_DMA\n" in said.out


def test_a_difference_of_the_kfd_has_values_and_what_each_version_added(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["abi", "diff", "amd", "1.14", "1.17"]) == 0
    said = capsys.readouterr().out
    assert "  + sdma_engine_id  new: byte 88, 4 bytes" in said
    assert "  + CreateQueueArgs.queue_type: SDMA_BY_ENG_ID = 0x4" in said
    assert [line.split()[0] for line in said.splitlines() if line.startswith("  1.")] == [
        "1.15",
        "1.16",
        "1.17",
    ]


def test_a_difference_as_json_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["abi", "diff", "kfd", "1.17", "1.14", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (queue,) = data["structures"]
    assert (queue["name"], queue["bytes_before"], queue["bytes_after"]) == ("CreateQueueArgs", 96, 88)
    assert queue["taken_by"] == ["CREATE_QUEUE"]
    assert [field["kind"] for field in queue["fields"]] == ["removed", "removed"]
    assert {value["kind"] for value in data["values"]} == {"removed"}
    assert data["notes"] == []


def test_a_structure_is_printed_as_c_with_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["abi", "show", "nv", "580.142", "RmAllocArgs"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "/* nv 580.142: RmAllocArgs, in this layout since 550 */"
    assert said[2] == "struct NVOS64_PARAMETERS {"
    assert said[7] == "    /*   16 */ uint64_t pallocparms;"
    assert said[-1] == "}; /* 48 bytes */"
    assert main(["abi", "show", "kfd", "1.22", "kfd_ioctl_create_queue_args", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["fields"][-1] == {
        "name": "metadata_ring_size",
        "offset": 92,
        "size_bytes": 4,
        "entries": 1,
        "step": 4,
    }


def test_without_a_name_all_structures_of_a_release_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["abi", "show", "kfd", "1.11"]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) == len(atlases()["kfd"].at("1.11").structures)
    assert "RuntimeEnableArgs" not in said
    assert main(["abi", "show", "kfd", "1.13", "--json"]) == 0
    assert "RuntimeEnableArgs" in {one["name"] for one in json.loads(capsys.readouterr().out)["structures"]}


def test_releases_are_listed_with_what_there_is_to_say_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["abi", "releases"]) == 0
    said = capsys.readouterr().out
    assert "\n  580.142\n" in said
    assert "\n  1.12  call EXPORT_DMABUF\n" in said
    assert main(["abi", "releases", "nv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"nv": list(atlases()["nv"].releases())}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["diff", "intel", "1", "2"], "'intel': no driver whose releases are known. Known: kfd, nv."),
        (["diff", "cpu", "1", "2"], "'cpu': no driver whose releases are known."),
        (
            ["diff", "nv", "470.1", "580"],
            "nv 470.1: older than 550.40.53, the oldest known. Known: 550.40.53, ",
        ),
        (["diff", "kfd", "1.14", "new"], "kfd 'new': no release. Write numbers with points, as 1.23."),
        (["show", "nv", "580.142", "Nothing"], "'Nothing': 580.142 has no such structure. Known: "),
        (["diff", "kfd", "1.14", "1.17", "--trace", "/nowhere"], "/nowhere: No such file"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_there_is(
    capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert main(["abi", *words]) == 2
    assert capsys.readouterr().err.startswith(f"hcq abi: {why}")


def test_a_trace_of_a_driver_older_than_all_is_noted_and_judged_all_the_same() -> None:
    recorded = breaks.Recorded([], "1.6", "")
    (note,) = command._trace_notes(Path("run"), command.atlas_of("kfd"), recorded, "1.14")
    assert note.startswith("run was recorded on kfd 1.6, and is judged as one of 1.14")
    assert not command._trace_notes(
        Path("run"), command.atlas_of("kfd"), recorded._replace(release=""), "1.14"
    )


def test_the_help_teaches_by_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["abi"]) == 0
    said = capsys.readouterr().out
    assert "python -m hcq abi diff nv 570.86 580.142" in said
    assert "nv: NVIDIA's kernel modules" in said


def test_a_trace_whose_calls_break_is_told_and_the_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.hcqtrace"
    environment = {**os.environ, "HCQ_EMULATE": "nv:sm_90", "HCQ_TRACE": str(path)}
    program = "import hcq; hcq.open('NV').close()"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
    asked = ["abi", "diff", "nv", "580.142", "550.40.53", "--trace", str(path)]
    assert main(asked) == 1
    said = capsys.readouterr().out
    assert "  ! FERMI_VASPACE_A (NV_VASPACE_ALLOCATION_PARAMETERS), once: 56 bytes become 48\n" in said
    path.write_bytes(path.read_bytes()[:-3])
    assert main([*asked, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in data["trace"]["breaks"]} >= {"FERMI_VASPACE_A"}
    assert any("cut off" in note for note in data["notes"])
    assert main(["abi", "diff", "nv", "580.142", "580.142", "--trace", str(path)]) == 0
    assert "was recorded on" not in capsys.readouterr().err
    assert main(["abi", "diff", "nv", "570.86", "570.86", "--trace", str(path)]) == 0
    assert "was recorded on nv 580.142, and is judged as one of 570.86.16" in capsys.readouterr().err
