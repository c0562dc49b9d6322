"""decode of RADV's hang reports: a folder, the same as one text, each of its files alone.

The samples are of our own making, after what Mesa prints: packets are encoded by the driver's
structures, numbers are invented.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hcq.amd.abi import pm4
from hcq.amd.abi.registers import Register
from hcq.errors import UsageError
from hcq.tools import hcq_trace
from hcq.tools.trace import folder, radv, readers
from hcq.tools.trace.color import Color
from tests.tools.trace.test_umr import GFX12_WAVE, LAUNCH, STREAM, ring, words_of


def ib_lines(name: str, words: tuple[int, ...], said: tuple[str, ...] = ()) -> list[str]:
    """A packet as ac_parse_ib prints it: the word, then what Mesa says of it."""
    lines = [f"{words[0]:08x} \x1b[1;32m{name}\x1b[0m:"]
    for index, word in enumerate(words[1:]):
        lines.append(f"{word:08x}         {said[index] if index < len(said) else ''}")
    return lines


def point(number: int, last: int) -> list[str]:
    state = (
        "This trace point was reached by the CP."
        if number < last
        else "!!!!! This is the last trace point that was reached by the CP !!!!!"
        if number == last
        else "!!!!! This trace point was NOT reached by the CP !!!!!"
    )
    lines = ib_lines("NOP", (0xC0001000, 0xCAFE0000 | number), (f"\x1b[31mTrace point ID: {number}\x1b[0m",))
    return [*lines, f"                 \x1b[31m{state}\x1b[0m"]


SET = pm4.SetShReg(reg_offset=Register.COMPUTE_PGM_LO, registers=(0x12345600, 0x7F))
DISPATCH = pm4.DispatchDirect(dim_x=4, dim_y=2, dim_z=1)


def trace(last: int, points: int = 4) -> str:
    """A trace with a dispatch behind each trace point."""
    lines = [f"Trace ID: {last:x}", "------------------ main IB begin - GFX ------------------"]
    for number in range(1, points + 1):
        lines += point(number, last)
        lines += ib_lines("SET_SH_REG", tuple(SET.words))
        lines += ib_lines("DISPATCH_DIRECT", tuple(DISPATCH.words), (f"COMPUTE_DIM_X <- {number}",))
    return "\n".join([*lines, "------------------- main IB end - GFX -------------------", ""])


OLD_TRACE = """\
Trace ID: 1
------------------ IB2: Init config begin ------------------
CONTEXT_CONTROL:
        0x80000000
        0x80000000
NOP:
        Trace point ID: 1
        !!!!! This is the last trace point that was reached by the CP !!!!!
DRAW_INDEX_AUTO:
        VGT_NUM_INDICES <- 3
NOP:
        Trace point ID: 2
        !!!!! This is the first trace point that was NOT been reached by the CP !!!!!
------------------- IB2: Init config end -------------------
"""
PIPELINE = """\
AMD_IP_COMPUTE:
Pipeline hash: 1234abcd5678
Compute Shader:

SPIRV (see 0123456789abcdef0123456789abcdef01234567.spv)

DISASM:
\ts_mov_b32 s0, 0                            ; be800080

\x1b[1;36mThe number of active waves = 3\x1b[0m

\x1b[1;33mCompute Shader - annotated disassembly:\x1b[0m
\ts_mov_b32 s0, 0                            ; be800080 [PC=0x7f12345600, off=0, size=4]
\tglobal_load_b32 v0, v0, s[0:1]             ; dc520000 00000000 [PC=0x7f12345604, off=4, size=8]
\ts_waitcnt vmcnt(0)                         ; bf8903f7 [PC=0x7f1234560c, off=12, size=4]
          \x1b[1;32m^ SE0 SH0 CU1 SIMD0 WAVE1  EXEC=00000000ffffffff  INST32=BF8903F7\x1b[0m
          \x1b[1;32m^ SE0 SH0 CU1 SIMD1 WAVE1  EXEC=000000000000ffff  INST32=BF8903F7\x1b[0m


Waves not executing currently-bound shaders:
    SE1 SH0 CU1 SIMD1 WAVE1  EXEC=00000000ffffffff  INST=BF8903F7 00000000  PC=7f00000000
"""
REGISTERS = """\
Memory-mapped registers:
        \x1b[1;33mGRBM_STATUS\x1b[0m <- ME0PIPE0_CMDFIFO_AVAIL = 8
                       SPI_BUSY = 1
                       CB_BUSY = 0
                       GUI_ACTIVE = 1
        CP_STAT <- 0
        CP_STALLED_STAT1 <- RBIU_TO_DMA_NOT_RDY_TO_RCV = 0
                            ME_STALLED_ON_ATOMIC_RTN_DATA = 1
"""
VM_FAULT = """\
VM fault report.

Failing VM page: 0x800012345000
GCVM_L2_PROTECTION_FAULT_STATUS: 0x00801031
\t CLIENT_ID: (TCP) 0x8
\t MORE_FAULTS: 1
\t WALKER_ERROR: 0
"""
FILES = {
    "trace.log": trace(2),
    "pipeline.log": PIPELINE,
    "registers.log": REGISTERS,
    "vm_fault.log": VM_FAULT,
    "bo_history.log": (
        "timestamp=1, VA=ffff800012340000-ffff800012350000, destroyed=0, is_virtual=0\n"
        "timestamp=2, VA=ffff800012340000-ffff800012350000, destroyed=1, is_virtual=0\n"
    ),
    "bo_ranges.log": "  VA=ffff800012300000-ffff800012340000, handle=3\n",
    "gpu_info.log": "Device name: AMD Radeon RX 7900 XTX (RADV NAVI31) (DRM 3.57.0 / 6.9.1)\n\nDevice info:\n",
    "app_info.log": "Application name: game\nApplication version: 1\nEngine name: vkd3d\nEngine version: 2\n",
    "umr_waves.log": f"\nUMR GFX waves:\n\n{GFX12_WAVE}",
    "umr_ring.log": f"\nUMR GFX ring:\n\n{STREAM}",
    "dmesg.log": (
        "\nLast 60 lines of dmesg:\n\n"
        "[ 1.0] amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3\n"
    ),
}


@pytest.fixture
def dumped(tmp_path: Path) -> Path:
    made = tmp_path / "radv_dumps_4711_2026.01.02_03.04.05"
    made.mkdir()
    for name, text in FILES.items():
        (made / name).write_text(text)
    (made / "0123456789abcdef0123456789abcdef01234567.spv").write_bytes(b"\3\2#\7\0\0\1\0")
    return made


def said(content: bytes) -> str:
    reading = readers.find(content, readers.Wanted())
    assert reading is not None
    return "\n".join(reading.lines(Color(False)))


def data(content: bytes) -> dict[str, Any]:
    reading = readers.find(content, readers.Wanted())
    assert reading is not None
    found = json.loads(json.dumps(reading.as_json()))
    assert isinstance(found, dict)
    return found


def test_a_folder_is_summarised_first_and_then_shown_part_by_part(
    dumped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hcq_trace.main(["decode", str(dumped)]) == 0
    shown = capsys.readouterr().out
    summary = shown.split("\n\n")[0]
    assert summary.startswith("RADV: a hang of AMD Radeon RX 7900 XTX (RADV NAVI31)")
    assert "game, vkd3d" in summary
    assert "page fault: a read of the page at 0x800012345000 by TCP" in summary
    assert "bo_history: the page was in a buffer that is gone: used after it was freed" in summary
    assert "bo_ranges: in no buffer; 0x5000 bytes behind" in summary
    assert (
        "trace point 2 of 4 was the last that was reached; after it: DispatchDirect(dim_x=4, dim_y=2"
        in summary
    )
    assert "pipeline 1234abcd5678 was bound (compute); waves in Compute Shader; 3 waves active" in summary
    assert "busy      GRBM_STATUS: SPI_BUSY, GUI_ACTIVE" in summary and "ME_STALLED_ON" in summary
    assert "kernel    a job on ring gfx_0.0.0 did not end in its time" in summary
    assert "SetShReg(COMPUTE_PGM_LO=0x12345600, COMPUTE_PGM_HI=0x7f)" in shown
    assert "s_cbranch_vccnz 65535" in shown  # of umr_waves.log


def test_the_same_in_one_text_is_the_same_report(dumped: Path) -> None:
    text = "========== RADV GPU hang report ==========\n" + "".join(
        f"========== {name.removesuffix('.log')} ==========\n{part}\n" for name, part in FILES.items()
    )
    one, other = data(text.encode()), data(folder.content(str(dumped)) or b"")
    for key in ("trace", "waves", "registers", "busy", "fault", "pipeline", "kernel_log", "umr_ring", "gpu"):
        assert [*one[key]] == [*other[key]]
    assert other["others"].keys() == {"0123456789abcdef0123456789abcdef01234567.spv"}


@pytest.mark.parametrize("last", range(1, 5))
def test_the_packets_behind_the_last_trace_point_that_was_reached_may_hang(last: int) -> None:
    found = data(trace(last).encode())["trace"]
    assert found["packets"][found["last"]]["trace_point"] == last
    suspects = [one for one in found["packets"] if one["may_hang"]]
    assert [one["packet"] for one in suspects] == ["DispatchDirect"]
    assert suspects[0]["said"] == [f"COMPUTE_DIM_X <- {last}"]
    shown = said(trace(last).encode())
    assert (
        len([line for line in shown.split("\n") if line.startswith("=>") and f"trace point {last}:" in line])
        == 1
    )


def test_trace_points_are_found_by_their_words_where_mesas_lines_are_missing() -> None:
    text = "\n".join(
        line for line in trace(3).split("\n") if "race point" not in line or "Trace point" in line
    )
    assert (
        data(text.replace("Trace point ID", "").encode())["trace"]["last"]
        == data(trace(3).encode())["trace"]["last"]
    )


def test_a_trace_without_words_is_shown_in_mesas_words() -> None:
    found = data(OLD_TRACE.encode())["trace"]
    assert [one["name"] for one in found["packets"]] == ["CONTEXT_CONTROL", "NOP", "DRAW_INDEX_AUTO", "NOP"]
    assert [one["may_hang"] for one in found["packets"]] == [False, False, True, False]
    assert "after it: DRAW_INDEX_AUTO" in said(OLD_TRACE.encode())


def test_waves_of_the_pipeline_stand_at_their_instruction() -> None:
    waves = data(PIPELINE.encode())["waves"]
    assert [wave["pc"] for wave in waves] == [0x7F1234560C, 0x7F1234560C, 0x7F00000000]
    assert waves[0]["kernel"] == "Compute Shader of pipeline 1234abcd5678"
    assert waves[0]["waits_for"] == "vector memory"
    assert waves[2]["kernel"] == "a shader that is not bound"
    assert data(PIPELINE.encode())["groups"] == [[0, 1], [2]]


def test_waves_of_umr_have_the_names_of_the_pipeline() -> None:
    joined = (
        "========== pipeline ==========\n"
        + PIPELINE.replace("7f1234560c", "7a0944aa5604")
        + "\n========== umr_waves ==========\n"
        + GFX12_WAVE
    )
    (wave,) = data(joined.encode())["waves"]
    assert wave["kernel"] == "Compute Shader of pipeline 1234abcd5678" and wave["scalars"]


@pytest.mark.parametrize("name", FILES)
def test_every_file_of_a_report_is_read_alone(name: str) -> None:
    shown = said(FILES[name].encode())
    assert "nothing here says what hangs" not in shown or name in (
        "gpu_info.log",
        "app_info.log",
        "bo_history.log",
        "bo_ranges.log",
    )


def test_other_files_of_a_folder_are_read_by_who_knows_them(tmp_path: Path) -> None:
    (tmp_path / "kern.log").write_text(FILES["dmesg.log"])
    (tmp_path / "notes.txt").write_text("hello\n")
    (tmp_path / "link").symlink_to("/dev/zero")
    shown = said(folder.content(str(tmp_path)) or b"")
    assert "2 files" in shown and "did not end in its time" in shown
    assert "notes.txt" in shown and "of no form that is known: hello" in shown and "link" not in shown


def test_a_line_of_a_report_in_another_file_hides_nothing_of_that_file(tmp_path: Path) -> None:
    text = ring(words_of(*LAUNCH), 0)
    (tmp_path / "notes.txt").write_text(f"{text}GRBM_STATUS <- GUI_ACTIVE = 1\nTrace ID: 1\n")
    (tmp_path / "odd.txt").write_text("one\ntwo\x1b[2J\n")
    reading = readers.find(folder.content(str(tmp_path)) or b"", readers.Wanted())
    assert reading is not None
    shown = list(reading.lines(Color(False)))
    assert [line for line in shown if line.startswith("=>")]
    assert not any("\n" in line or "\x1b" in line for line in shown)


def test_the_summary_says_at_which_packet_each_ring_stands(tmp_path: Path) -> None:
    (tmp_path / "vm_fault.log").write_text("VM fault report.\n\nFailing VM page: 0x80001000\n")
    for read, stands in ((0, 1), (5, 1), (10_000, 0)):
        (tmp_path / "umr_ring.log").write_text(ring(words_of(*LAUNCH), read))
        summary = said(folder.content(str(tmp_path)) or b"").split("\n\n")[0].split("\n")
        rows = [line for line in summary if line.startswith("  ring ")]
        assert len(rows) == stands and all(f" at {read}: " in row and "(" in row for row in rows)


def test_links_to_folders_are_not_followed_and_folders_that_are_too_deep_are_named(tmp_path: Path) -> None:
    secret, dump = tmp_path / "secret", tmp_path / "dump"
    deep = dump.joinpath(*"abcd")
    for made in (secret, deep):
        made.mkdir(parents=True)
        (made / "kern.log").write_text(FILES["dmesg.log"])
    (dump / "a" / "b" / "note.txt").write_text("hello\n")
    (dump / "link").symlink_to(secret)
    (dump / "a" / "again").symlink_to(dump)
    content = (folder.content(str(dump)) or b"").decode()
    titles = [line for line in content.split("\n") if line.startswith("========== ")]
    assert titles[1:] == ["========== a/b/note.txt ==========", "========== (left out) =========="]
    assert content.rstrip().endswith("not looked into: a/b/c/d") and "amdgpu" not in content


def test_a_folder_with_many_files_and_folders_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("MOST_ENTRIES", 20), ("MOST_FOLDERS", 3), ("MOST_FILES", 5)):
        monkeypatch.setattr(folder, name, most)
    for number in range(30):
        (tmp_path / f"f{number:02}").mkdir()
        (tmp_path / f"f{number:02}" / "one.txt").write_text("x")
        (tmp_path / f"{number:02}.txt").write_text("x")
    content = folder.content(str(tmp_path)) or b""
    assert content.count(b".txt ==========") <= 5 and b"(left out)" in content


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a folder without files"):
        folder.content(str(tmp_path))
    assert folder.content(str(tmp_path / "none")) is None


def test_a_report_is_recognised_and_other_texts_are_not() -> None:
    assert radv.recognises(trace(1).encode())
    assert not radv.recognises(b"hello\nDevice name: something\nRegister <- 1\n")


TRAPPED = """\
m0: 0x00000000
exec_lo: 0x0000ffff
exec_hi: 0x00000000
s[0-3] = { 0x80000100, 0xffff8000, 0x00000040, 0x00000001 }
VGPRS:
[0] = { 00000000 00000001 00000002 00000003 }
lds[0-7] = { 00000000, 00000001, 00000002, 00000003, 00000004, 00000005, 00000006, 00000007 }

Hardware registers:
        SQ_WAVE_STATUS <- SCC = 0
                          IN_BARRIER = 0
                          HALT = 1
        SQ_WAVE_TRAPSTS <- EXCP = 0
                           MEM_VIOL = 1
                           ILLEGAL_INST = 0

Faulty shader found VA=[0x8000012300-0x80000123c0], instr_offset=28
	s_load_dwordx4 s[0:3], s[2:3], 0x0

!!! Faulty instruction below !!!
	buffer_load_dword v1, v0, s[0:3], 0 offen

	s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("form", ["{}", "quoted", "\x1b[0m{}", "RADV: something else\n{}"])
def test_the_wave_that_the_trap_handler_stopped_is_told_with_its_instruction(form: str) -> None:
    text = (
        "".join(f"> {line}\r\n" for line in TRAPPED.splitlines())
        if form == "quoted"
        else form.format(TRAPPED)
    )
    (wave,) = data(text.encode())["waves"]
    assert wave["pc"] == 0x8000012300 + 28 and wave["exec"] == 0xFFFF
    assert wave["instruction"] == "buffer_load_dword v1, v0, s[0:3], 0 offen"
    assert wave["reason"] == "memory violation" and "halted" in wave["state"]
    assert wave["registers"]["trapsts"] == 1 << 8 and wave["scalars"]["1"] == 0xFFFF8000
    assert wave["vectors"]["0"] == [0, 1, 2, 3] and wave["code"][1].startswith("=> buffer_load")


def test_a_folder_with_the_trap_handlers_log_names_the_wave_first(tmp_path: Path) -> None:
    (tmp_path / "trap_handler.log").write_text(TRAPPED)
    (tmp_path / "pipeline.log").write_text(PIPELINE)
    first, *others = data(folder.content(str(tmp_path)) or b"")["waves"]
    assert first["reason"] == "memory violation" and len(others) == 3
