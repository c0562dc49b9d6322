"""debugfs of amdgpu: rings and MQDs are read from files, whole and damaged, and what is in the way is said."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from hcq import __main__ as program
from hcq.amd import debugfs
from hcq.amd.abi import mqd, pm4, sdma
from hcq.errors import DriverError, UsageError

NAME = "amdgpu dev=0000:03:00.0 unique=0000:03:00.0\n"
NOP = 0xFFFF1000  # a packet of one word
PROPERTIES = "location_id 768\ndomain 0\ngfx_target_version {version}\n"


def hex_dump(data: bytes, indent: str = "    ") -> str:
    """As seq_hex_dump writes it: an offset, then eight words."""
    words = memoryview(data).cast("I")
    lines = []
    for at in range(0, len(words), 8):
        lines.append(f"{indent}{4 * at:08x}: " + " ".join(f"{word:08x}" for word in words[at : at + 8]))
    return "\n".join(lines) + "\n"


def ring_file(words: list[int], get: int, put: int, written: int | None = None) -> bytes:
    own = [get, put, put if written is None else written, *words]
    return struct.pack(f"<{len(own)}I", *own)


def wait_packet(address: int) -> list[int]:
    return list(pm4.WaitRegMem(mem_space=1, address=address, reference=5, mask=0xFFFFFFFF).words)


def compute_mqd(**fields: int) -> bytes:
    return mqd.ComputeMqd11(header=mqd.HEADER, cp_hqd_pq_control=0x50F, **fields).to_bytes()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a gfx1100 shows that hangs in a wait."""
    debug = tmp_path / "sys/kernel/debug"
    dri, kfd = debug / "dri/0", debug / "kfd"
    node = tmp_path / "sys/devices/virtual/kfd/kfd/topology/nodes/1"
    for folder in (dri, kfd, node):
        folder.mkdir(parents=True)
    (dri / "name").write_text(NAME)
    words = [NOP] * 256
    words[8:15] = wait_packet(0x1000)
    words[15:22] = wait_packet(0x2000)
    (dri / "amdgpu_ring_comp_1.0.0").write_bytes(ring_file(words, get=15, put=22, written=24))
    copies = [0] * 64
    copies[60:64] = sdma.Fence(address=0x4000, data=9).words
    copies[0:2] = sdma.Trap(int_context=1).words
    (dri / "amdgpu_ring_sdma0").write_bytes(ring_file(copies, get=60, put=2))
    (dri / "amdgpu_ring_vcn_unified_0").write_bytes(b"must not be read")
    (dri / "amdgpu_ring_mes_3.0.0").write_bytes(ring_file([1, 2, 3, 4] * 16, get=0, put=4))
    (node / "gpu_id").write_text("23100\n")
    (node / "properties").write_text(PROPERTIES.format(version=110000))
    text = "Process 4711 PASID 0x8001:\n  Compute queue on device 5a3c\n"
    text += hex_dump(
        compute_mqd(cp_hqd_pq_base=0x7F0000001000, cp_hqd_pq_rptr=7, cp_hqd_pq_wptr=9, cp_hqd_active=1)
    )
    text += "  SDMA queue on device 5a3c\n"
    text += hex_dump(mqd.SdmaMqd11(sdmax_rlcx_rb_base=0x7F0000100000, sdmax_rlcx_rb_cntl=0x25).to_bytes())
    text += "  Compute queue on device 1234\n" + hex_dump(compute_mqd())
    (kfd / "mqds").write_text(text)
    (kfd / "rls").write_text("Node 1, gpu_id 5a3c:\n  No active runlist\n")
    (kfd / "hqds").write_text("must not be read")
    return tmp_path


def test_rings_are_shown_with_the_packet_at_the_read_pointer_marked(tree: Path) -> None:
    found = debugfs.host(str(tree), 0, "", ["rings"])
    assert found["chip"] == "gfx1100" and found["gpu_id"] == 0x5A3C
    rings = {ring["name"]: ring for ring in found["rings"]}
    compute = rings["comp_1.0.0"]
    marked = [one for one in compute["packets"] if one["is_at_get"]]
    assert [one["at"] for one in marked] == [15]
    assert marked[0]["packet"].startswith("WaitRegMem(") and "0x2000" in marked[0]["packet"]
    assert compute["packets"][-2]["at"] == 8 and "0x1000" in compute["packets"][-2]["packet"]
    assert "written up to 24" in compute["note"]
    around_the_end = rings["sdma0"]["packets"]
    assert [one["packet"].partition("(")[0] for one in around_the_end if not one["is_read"]] == [
        "Fence",
        "Trap",
    ]
    assert [one["at"] for one in around_the_end if not one["is_read"]] == [60, 0]
    assert rings["mes_3.0.0"]["packets"][0]["packet"].startswith("Unknown")


def test_files_that_read_registers_are_left_alone(tree: Path) -> None:
    read: list[str] = []
    real = os.open

    def opened(path: Any, *rest: Any, **more: Any) -> int:
        read.append(str(path))
        return real(path, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(debugfs.os, "open", opened)
        found = debugfs.host(str(tree), 0, "", ["rings", "queues"])
    assert not [path for path in read if "vcn" in path or "hqds" in path or "regs" in path]
    assert any("vcn_unified_0" in note for note in found["notes"])


def test_queues_are_those_of_this_gpu_with_fields_by_name(tree: Path) -> None:
    found = debugfs.host(str(tree), 0, "", ["queues"])["queues"]
    assert [one["kind"] for one in found] == ["Compute", "SDMA", "runlist"]
    compute, copy, runlist = found
    assert compute["pid"] == 4711
    assert compute["fields"]["cp_hqd_pq_base"] == 0x7F0000001000
    assert compute["notes"] == [
        "PM4 ring of 262144 bytes at 0x7f0000001000, read to word 7, written to 9, doorbell 0"
    ]
    assert copy["fields"]["sdmax_rlcx_rb_base"] == 0x7F0000100000
    assert "MES" in runlist["notes"][0]


def test_a_runlist_is_shown_as_packets() -> None:
    text = "Node 1, gpu_id 5a3c:\n" + hex_dump(struct.pack("<16I", *([NOP] * 16)), "  ")
    (found,) = debugfs.runlists(text, {0x5A3C: "gfx90a"})
    assert len(found["notes"]) == 16 and found["notes"][0].startswith("Nop")


def test_older_kernels_write_the_pasid_in_decimals(tree: Path) -> None:
    text = "Process 12 PASID 32769:\n  Compute queue on device ab\n" + hex_dump(compute_mqd())
    assert [one["pid"] for one in debugfs.mqds(text, {})] == [12]


def test_each_die_of_a_gpu_has_an_mqd_of_its_own() -> None:
    text = "Process 12 PASID 0x1:\n  Compute queue on device ab\n" + hex_dump(compute_mqd()) * 6
    assert len(debugfs.mqds(text, {0xAB: "gfx942"})) == 6


def test_a_chip_may_be_named_where_the_topology_does_not_say_it(tree: Path) -> None:
    (tree / "sys/devices/virtual/kfd/kfd/topology/nodes/1/properties").write_text("location_id 512\n")
    unknown = debugfs.host(str(tree), 0, "", ["rings"])
    assert unknown["chip"] == "" and any("--chip" in note for note in unknown["notes"])
    assert unknown["rings"][0]["packets"][0]["packet"].startswith("Unknown")
    named = debugfs.host(str(tree), 0, "gfx1100", ["rings"])
    assert named["rings"][0]["packets"][0]["packet"].startswith(("Nop", "WaitRegMem"))
    with pytest.raises(UsageError, match="Known: gfx"):
        debugfs.host(str(tree), 0, "gfx1", ["rings"])


def test_what_is_in_the_way_is_said_with_the_fix(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"no such DRM device; .* has 0"):
        debugfs.host(str(tree), 7, "", ["rings"])
    with pytest.raises(DriverError, match="mount -t debugfs"):
        debugfs.host(str(tree / "nowhere"), 0, "", ["rings"])
    (tree / "sys/kernel/debug/dri/0/name").write_text("i915 dev=0000:00:02.0\n")
    with pytest.raises(UsageError, match="not amdgpu"):
        debugfs.host(str(tree), 0, "", ["rings"])

    def refuse(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(debugfs.os, "listdir", refuse)
    with pytest.raises(DriverError, match="sudo python -m hcq inspect"):
        debugfs.host(str(tree), 0, "", ["rings"])


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tree: Path) -> None:
    place = tree / "sys/kernel/debug/dri/0/amdgpu_ring_gfx_0.0.0"
    os.mkfifo(place)
    assert any("no plain file" in note for note in debugfs.host(str(tree), 0, "", ["rings"])["notes"])


def test_the_command_shows_a_gpu(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["inspect", "--gpu", "0", "--root", str(tree)]) == 0
    page = capsys.readouterr().out
    assert "->      0xf  WaitRegMem(" in page
    assert "cp_hqd_pq_base = 0x7f0000001000" in page
    assert program.main(["inspect", "--gpu", "3", "--root", str(tree)]) == 2
    assert "no such DRM device" in capsys.readouterr().err


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Cut, flipped, mixed with itself, or other bytes altogether."""
    kind = draw.randrange(5)
    if kind == 0:
        return data[: draw.randrange(len(data) + 1)]
    if kind == 1:
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 20)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        return bytes(changed)
    if kind == 2:
        at, to = sorted(draw.randrange(len(data)) for _ in range(2))
        return data[to:] + data[at:to] + data[:at]
    if kind == 3:
        lines = data.splitlines(keepends=True)
        draw.shuffle(lines)
        return b"".join(lines)
    return draw.randbytes(draw.randrange(400))


def test_damaged_rings_are_shown_or_refused_in_words(tree: Path) -> None:
    draw = random.Random(1)
    for name in ("comp_1.0.0", "sdma0"):
        data = (tree / f"sys/kernel/debug/dri/0/amdgpu_ring_{name}").read_bytes()
        for _ in range(150):
            found = debugfs.ring(name, damaged(data, draw), draw.choice(["gfx1100", "gfx90a", ""]))
            assert len(found["packets"]) <= 12


def test_damaged_dumps_of_queues_are_bounded(tree: Path) -> None:
    draw = random.Random(2)
    data = (tree / "sys/kernel/debug/kfd/mqds").read_bytes()
    for _ in range(150):
        text = damaged(data, draw).decode("ascii", "replace")
        assert len(debugfs.mqds(text, {0x5A3C: "gfx1100"})) <= debugfs.MOST_QUEUES
        debugfs.runlists(text.replace("Process", "Node 1, gpu_id 5a3c:\n"), {0x5A3C: "gfx1100"})


def test_a_dump_with_a_line_less_says_that_it_is_damaged(tree: Path) -> None:
    lines = (tree / "sys/kernel/debug/kfd/mqds").read_text().splitlines()
    text = "\n".join(lines[:10] + lines[11:])
    assert "damaged" in debugfs.mqds(text, {})[0]["notes"][-1]


# ------------------------------------------------------------ waves

SHAPE = (
    "array_count 4\nsimd_arrays_per_engine 2\nmax_waves_per_simd 8\n"
    "cu_per_simd_array {units}\nsimd_per_cu {simds}\n"
)


def wave_slot(family: int, engine: int, sh: int, unit: int, simd: int, wave: int) -> int:
    """Where a slot is in the file: bits 14:7 engine, 22:15 array, 30:23 unit, 36:31 wave, 44:37 SIMD."""
    if family >= 10:
        unit, simd = unit * 4 + simd, 0
    return engine * 2**7 + sh * 2**15 + unit * 2**23 + wave * 2**31 + simd * 2**37


@pytest.mark.parametrize(
    ("chip", "version", "kind"), [("gfx90a", 90010, 1), ("gfx1100", 110000, 3), ("gfx1201", 120001, 4)]
)
def test_waves_are_read_slot_by_slot_and_those_alike_are_together(
    chip: str, version: int, kind: int, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family = version // 10000
    node = tree / "sys/devices/virtual/kfd/kfd/topology/nodes/1"
    shape = SHAPE.format(units=4, simds=4 if family == 9 else 2)
    (node / "properties").write_text(PROPERTIES.format(version=version) + shape)
    status = 1 << 16 | (1 << 12 if family < 12 else 0)
    rest = {1: 10, 3: 10, 4: 15}[kind]
    with (tree / "sys/kernel/debug/dri/0/amdgpu_wave").open("wb") as file:
        for engine, sh, unit, simd, wave, pc in (
            (0, 0, 0, 0, 0, 0x1000),
            (1, 1, 1, 3, 7, 0x1000),
            (1, 0, 0, 1, 2, 0x2040),
        ):
            file.seek(wave_slot(family, engine, sh, unit, simd, wave))
            words = [kind, status, pc, 0x7F, 0xFFFF, 0, *range(rest)]
            file.write(struct.pack(f"<{len(words)}I", *words).ljust(128, b"\0"))
    found = debugfs.host(str(tree), 0, "", ["waves"])
    assert found["chip"] == chip and not found["rings"]
    first, second = found["waves"]
    last = "se1.sh1.cu1.simd3.wave7" if family == 9 else "se1.sa1.wgp1.simd3.wave7"
    assert (first["many"], first["pc"], first["places"][1]) == (2, 0x7F00001000, last)
    assert second["pc"] == 0x7F00002040 and second["active"] == "exec 0xffff, 16 lanes"
    assert first["registers"]["mode"] == {1: 9, 3: 9, 4: 8}[kind]
    assert ("at a barrier" in first["state"]) == (family < 12)
    assert program.main(["inspect", "--gpu", "0", "--root", str(tree), "--waves"]) == 0
    said = capsys.readouterr().out
    assert (
        f"waves     2 waves of se0.{'sh0.cu0' if family == 9 else 'sa0.wgp0'}.simd0.wave0, {last} at 0x7f00001000"
        in said
    )


def test_waves_that_cannot_be_read_say_why(tree: Path) -> None:
    assert "does not say how many units" in str(debugfs.host(str(tree), 0, "", ["waves"])["notes"])
    node = tree / "sys/devices/virtual/kfd/kfd/topology/nodes/1"
    (node / "properties").write_text(PROPERTIES.format(version=110000) + SHAPE.format(units=4, simds=2))
    with pytest.raises(DriverError, match="amdgpu_wave"):
        debugfs.host(str(tree), 0, "", ["waves"])
    (tree / "sys/kernel/debug/dri/0/amdgpu_wave").write_bytes(b"\xff" * 4096)
    assert debugfs.host(str(tree), 0, "", ["waves"])["waves"] == []


def test_registers_of_a_copy_of_files_are_not_made_up(tree: Path) -> None:
    found = debugfs.host(str(tree), 0, "", ["registers"])
    assert "registers" not in found and debugfs.COPIED in found["notes"]


def test_waves_are_not_read_while_gfxoff_is_allowed(tree: Path) -> None:
    dri = tree / "sys/kernel/debug/dri/0"
    (dri / "amdgpu_wave").write_bytes(b"must not be read")
    (dri / "amdgpu_gfxoff").write_bytes(struct.pack("<I", 1))
    found = debugfs.host(str(tree), 0, "", ["waves"])
    assert "waves" not in found
    assert any("waves are registers" in note and "GFXOFF is allowed" in note for note in found["notes"])
    (dri / "amdgpu_gfxoff").write_bytes(bytes(4))
    assert "waves" in debugfs.host(str(tree), 0, "", ["waves"])
