"""decode of umr's texts: rings around their read pointers, decoded streams, waves in every form.

The samples are of our own making, after what umr prints: packets are encoded by the driver's
structures, numbers are invented.
"""

from __future__ import annotations

import io
import json
import re

import pytest

from hcq.amd.abi import aql, other_packets, pm4, sdma
from hcq.amd.abi.registers import Register
from hcq.amd.chip import CHIPS
from hcq.layout import Packet
from hcq.tools import hcq_trace
from hcq.tools.trace import readers, umr, wave_state
from hcq.tools.trace.color import Color
from hcq.tools.trace.ring_window import around
from hcq.tools.trace.waves import groups

LAUNCH: list[Packet] = [
    pm4.SetShReg(reg_offset=Register.COMPUTE_PGM_LO, registers=(0x12345600, 0x7F)),
    pm4.DispatchDirect(dim_x=4, dim_y=1, dim_z=1),
    other_packets.CondExec(address=0x7F0000400060, exec_count=0x23),
    pm4.EventWrite(event_type=pm4.Event.CS_PARTIAL_FLUSH, event_index=pm4.EventIndex.CS_PARTIAL_FLUSH),
]
NOP = 0xFFFF1000


def words_of(*packets: Packet) -> list[int]:
    return [word for packet in packets for word in packet.words]


def ring(words: list[int], read: int, name: str = "gfx_0.0.0", asic: str = "navi31", first: int = 0) -> str:
    """What `umr -R` prints; the pointers in words."""
    lines = [
        f"{asic}.{name}.{pointer} == {at}" for pointer, at in (("rptr", read), ("wptr", first + len(words)))
    ]
    lines.append(f"{asic}.{name}.drv_wptr == {first + len(words)}")
    for at, word in enumerate(words, first):
        marks = "r.." if at == read else "..."
        lines.append(f"{asic}.{name}.ring[{at:4}] == 0x{word:08x}    {marks} ")
    return "\n" + "\n".join(lines) + "\n\n"


def coloured(text: str) -> str:
    """As umr prints it to a terminal."""
    return re.sub(r"ring\[( *\d+)\] == (0x\w+)", "ring[\x1b[34m\\1\x1b[0m] == \x1b[33m\\2\x1b[0m", text)


STREAM = """\
Decoding IB at 0x3@0x80010005ad00 from 0x0@0x28 of 176 words (type 4)
[0x3@0x80010005ad00 + 0x0000]\t[        0xc0012800]\tOpcode 0x28 [PKT3_CONTEXT_CONTROL] (2 words, type: 3, hdr: 0xc0012800)
[0x3@0x80010005ad00 + 0x0004]\t[        0x80000000]\t|---> LOAD_EN=1, LOAD_CS=0
[0x3@0x80010005ad00 + 0x0008]\t[        0x80000000]\t|---> SHADOW_EN=1, SHADOW_CS=0
[0x3@0x80010005ad00 + 0x000c]\t[        0xc0027600]\tOpcode 0x76 [PKT3_SET_SH_REG] (3 words, type: 3, hdr: 0xc0027600)
[0x3@0x80010005ad00 + 0x0014]\t[        0x12345600]\t|---> gfx1100.regCOMPUTE_PGM_LO=0x12345600
[0x3@0x80010005ad00 + 0x0018]\t[        0x0000007f]\t|---> gfx1100.regCOMPUTE_PGM_HI=0x7f
[0x3@0x80010005ad00 + 0x001c]\t[        0xc0017900]\tOpcode 0x79 [PKT3_SET_UCONFIG_REG] (2 words, type: 3, hdr: 0xc0017900)
[0x3@0x80010005ad00 + 0x0024]\t[        0x00000001]\t|---> gfx1100.regVGT_SOMETHING=0x1
Done decoding IB
"""  # noqa: E501
GFX12_WAVE = """\
$ umr --user-queue client=20,queue=0 -O halt_waves --waves uq
------------------------------------------------------
se1.sa0.wgp0.simd0.wave0


Main Registers:
        ixSQ_WAVE_STATUS: 10010040 |      ixSQ_WAVE_PC_LO: 44aa5604 |      ixSQ_WAVE_PC_HI: 00007a09 |    ixSQ_WAVE_EXEC_LO: 00000001 |
        ixSQ_WAVE_EXEC_HI: 00000000 |     ixSQ_WAVE_HW_ID1: 20040000 |     ixSQ_WAVE_HW_ID2: 08000112 |  ixSQ_WAVE_STATE_PRIV: 00004000 |

>SGPRS[0..3] = { 7944dbed, ccb6f62e, 38c88f11, 8411930d }
>SGPRS[4..7] = { 00000001, 00000002, 00000003, 00000004 }
>TTMP[0..3] = { 0000000a, 0000000b, 0000000c, 0000000d }

VGPRS:        t00      (t01)    (t02)    (t03)
    [  0] = { 53402807 d0e0d0b2 3f66456e ca6c7fd8 }
    [  1] = { 00000001 00000002 00000003 00000004 }


PGM_MEM: (found shader at: 0@0x7a0944aa5600 of 12 bytes)
   Shader registers:
      gfx1201.regCOMPUTE_PGM_RSRC1(0@0x7a0944aa4540) == 0xe00f0000

    pgm[8@0x7a0944aa5600 + 0x0   ] = 0xbeea007e         s_mov_b32 vcc_lo, exec_lo
  * pgm[8@0x7a0944aa5600 + 0x4   ] = 0xbfa4ffff         s_cbranch_vccnz 65535
    pgm[8@0x7a0944aa5600 + 0x8   ] = 0xbfb00000         s_endpgm
End of disassembly.
"""  # noqa: E501
OLD_BITS = """\
------------------------------------------------------
se0.sh0.cu2.simd0.wave{wave}


Main Registers:
\t               pc_hi: 00008000 |                pc_lo: 00202128 |        wave_inst_dw0: bf8c0071 |        wave_inst_dw1: 0a0a0217 |
\t             exec_hi: 855382fa |              exec_lo: a5ca57c8 |

Wave_Status[{status}]:
\t                 scc:        0 |                execz:        0 |

IB_STS[00000002]:
\t              vm_cnt: 00000002 |              exp_cnt: 00000000 |             lgkm_cnt: 00000003 |


SGPRS:
\t[   0..   3] = {{ 00000010, 00000011, 00000012, 00000013 }}
"""  # noqa: E501
TABLE = """\
SE SA WGP SIMD WAVE# WAVE_STATUS    PC_HI    PC_LO INST_DW0  EXEC_HI  EXEC_LO   HW_ID1
 0  0   1    2     3    00011000 00007f00 12340010 bf8c0071 00000000 ffffffff 00000000
 0  0   1    2     4    00011000 00007f00 12340010 bf8c0071 00000000 0000000f 00000000
 1  1   0    0     0    00012200 00007f00 12340020 bf8c3f70 00000000 00000000 00000000
"""


def read(text: str) -> umr.Dump:
    return umr.read(text.split("\n"))


def said(text: str, chip: str = "") -> str:
    reading = readers.find(text.encode(), readers.Wanted(chip=chip))
    assert reading is not None
    return "\n".join(reading.lines(Color(False)))


def data(text: str, chip: str = "") -> dict[str, object]:
    reading = readers.find(text.encode(), readers.Wanted(chip=chip))
    assert reading is not None
    found = json.loads(json.dumps(reading.as_json()))
    assert isinstance(found, dict)
    return found


# ------------------------------------------------------------ rings


@pytest.mark.parametrize("stands", range(4))
@pytest.mark.parametrize("form", [str, coloured, lambda text: text.replace("\n", "\r\n")])
def test_the_packet_at_the_read_pointer_of_a_ring_is_marked(stands: int, form) -> None:  # type: ignore[no-untyped-def]
    words = [NOP] * 3 + words_of(*LAUNCH)
    at = 3 + len(words_of(*LAUNCH[:stands]))
    packets = data(form(ring(words, at)))["rings"][0]["packets"]  # type: ignore[index]
    marked = [packet for packet in packets if packet["is_at_read_pointer"]]
    assert [packet["packet"] for packet in marked] == [type(LAUNCH[stands]).__name__]
    assert marked[0]["at"] == at
    shown = [line for line in said(form(ring(words, at))).split("\n") if line.startswith("=>")]
    assert len(shown) == 1 and type(LAUNCH[stands]).__name__ in shown[0]


def test_a_ring_that_begins_in_the_middle_of_a_packet_is_read_from_the_read_pointer_on() -> None:
    words = words_of(*LAUNCH)[2:]
    at = len(words_of(*LAUNCH[:2])) - 2
    packets = data(ring(words, at))["rings"][0]["packets"]  # type: ignore[index]
    assert next(one["packet"] for one in packets if one["is_at_read_pointer"]) == "CondExec"


def test_a_read_pointer_inside_a_packet_marks_that_packet() -> None:
    words = words_of(*LAUNCH)
    window = around(words, 1, "pm4", CHIPS["gfx1100"])
    assert window.stands == 0 and "in the middle" in window.note


def test_every_read_pointer_is_in_the_packet_that_is_marked() -> None:
    words = [NOP] * 2 + words_of(*LAUNCH, *LAUNCH) + [0x1234, 0x80000000]
    for at in range(len(words)):
        window = around(words, at, "pm4", CHIPS["gfx1100"])
        assert window.stands is not None
        one = window.pieces[window.stands]
        assert one.at <= at < one.at + len(one.words) * one.times
        assert sum(len(piece.words) * piece.times for piece in window.pieces) == len(words)


def test_a_ring_that_goes_round_is_one_run_of_words() -> None:
    words = words_of(*LAUNCH)
    text = ring(words[:5], 1019, first=1019) + "\n".join(
        f"navi31.gfx_0.0.0.ring[{at:4}] == 0x{word:08x}    ... " for at, word in enumerate(words[5:])
    )
    packets = data(text)["rings"][0]["packets"]  # type: ignore[index]
    assert [one["packet"] for one in packets] == [type(packet).__name__ for packet in LAUNCH]


def test_sdma_and_compute_rings_are_read_in_their_languages_and_others_are_not_guessed() -> None:
    copy = sdma.CopyLinear(count=64, src_addr=0x1000, dst_addr=0x2000)
    assert "CopyLinear" in said(ring(words_of(copy), 0, "sdma0"))
    assert "DispatchDirect" in said(ring(words_of(LAUNCH[1]), 0, "comp_1.0.0"))
    assert "a language that is not known here" in said(ring([1, 2, 3], 0, "vcn_unified_0"))


def test_pointers_that_are_equal_are_told_as_idle() -> None:
    assert "idle: everything was read" in said(ring([NOP] * 4, 4))


def test_umrs_own_words_stand_beside_ours_and_for_packets_without_a_layout() -> None:
    text = """\
polaris11.gfx.rptr == 512
polaris11.gfx.wptr == 520
polaris11.gfx.ring[ 512] == 0xc0032200    r.. PKT3, COUNT:4, PREDICATE:0, SHADER_TYPE:0, OPCODE:22[PKT3_COND_EXEC]
polaris11.gfx.ring[ 513] == 0x00400060    ... |---+ PKT3 OPCODE 0x22, word 0: GPU_ADDR_LO32: 0x00400060
polaris11.gfx.ring[ 514] == 0x00000000    ... |---+ PKT3 OPCODE 0x22, word 1: GPU_ADDR_HI32: 0x00000000
polaris11.gfx.ring[ 515] == 0x00000000    ... |---+ PKT3 OPCODE 0x22, word 2: TEST_VALUE: 0x00000000
polaris11.gfx.ring[ 516] == 0x00000023    ... \\---+ PKT3 OPCODE 0x22, word 3: PATCH_VALUE: 0x00000023
polaris11.gfx.ring[ 517] == 0xc001fe00    ... PKT3, COUNT:2, OPCODE:fe[PKT3_ODD]
polaris11.gfx.ring[ 518] == 0x00000007    ... |---+ PKT3 OPCODE 0xfe, word 0: DATA: 7
polaris11.gfx.ring[ 519] == 0x00000008    ... \\---+ PKT3 OPCODE 0xfe, word 1: DATA: 8
"""
    shown = said(text)
    assert "=>   512  CondExec(" in shown and "umr: PKT3_COND_EXEC" in shown
    assert "umr: \\---+ PKT3 OPCODE 0xfe, word 1: DATA: 8" in shown
    assert "polaris11 has packets that are not known" in shown
    assert "--chip overrules" not in said(text, "gfx9")


@pytest.mark.parametrize("index", ["0@0xf500447000 + 0x{bytes:<4x}", "{words:4}"])
def test_buffers_that_umr_dumps_are_decoded(index: str) -> None:
    lines = ["Dumping IB at (gfxhub) VMID:0 0xf500447000 of 8 words from ring[0]"]
    for at, word in enumerate(words_of(*LAUNCH)):
        lines.append(f"IB[{index.format(bytes=4 * at, words=at)}] = 0x{word:08x} ... ")
    shown = said("\n".join([*lines, "End of IB"]))
    assert "buffer 0@0xf500447000" in shown
    assert all(type(packet).__name__ in shown for packet in LAUNCH)


# ------------------------------------------------------------ streams


def test_a_stream_is_decoded_by_us_and_the_word_that_umr_leaves_out_is_concluded() -> None:
    shown = said(STREAM)
    assert "ContextControl(update_load_enables=1" in shown
    assert "SetShReg(COMPUTE_PGM_LO=0x12345600, COMPUTE_PGM_HI=0x7f)" in shown


def test_a_packet_of_which_a_word_is_missing_is_shown_in_umrs_words() -> None:
    packets = data(STREAM)["streams"][0]["packets"]  # type: ignore[index]
    assert [one["known"] for one in packets] == [True, True, False]
    assert packets[2]["said"] == ["gfx1100.regVGT_SOMETHING=0x1"]


def test_a_stream_from_the_read_pointer_on_marks_its_first_packet() -> None:
    assert "=>" not in said(STREAM)
    shown = [line for line in said("$ umr -RS gfx_0.0.0[.]\n" + STREAM).split("\n") if line.startswith("=>")]
    assert len(shown) == 1 and "ContextControl" in shown[0]


def test_a_stream_of_aql_packets_is_put_together_from_fields_of_any_width() -> None:
    packet = aql.KernelDispatch(
        dimensions=3,
        workgroup_size_x=64,
        workgroup_size_y=1,
        workgroup_size_z=1,
        grid_size_x=256,
        grid_size_y=1,
        grid_size_z=1,
        kernel_object=0x7A0944AA4540,
        kernarg_address=0x7A0821E00000,
    )
    raw = b"".join(word.to_bytes(4, "little") for word in packet.words)
    base = "[0x0@0x7a0823e00000 + "
    lines = [
        f"{base}0x0000]   [        0x{packet.words[0] & 0xFFFF:08x}]    Opcode 0x2 [HSA_KERNEL_DISPATCH] (32 words)"
    ]
    widths = [2] * 5 + [4] * 5 + [8] * 4
    at = 2
    for width in widths:
        value = int.from_bytes(raw[at : at + width], "little")
        lines.append(f"{base}0x{at:04x}]   [0x{value:0{2 * width}x}]    |---> field=1")
        at += width
    packets = data("\n".join(lines))["streams"][0]["packets"]  # type: ignore[index]
    assert packets[0]["packet"] == "KernelDispatch"
    assert packets[0]["fields"]["kernel_object"] == 0x7A0944AA4540
    assert packets[0]["fields"]["grid_size_x"] == 256


# ------------------------------------------------------------ waves


def test_a_wave_of_gfx12_says_where_it_is_and_what_it_does() -> None:
    (wave,) = read(GFX12_WAVE).waves
    assert (wave.place, wave.pc, wave.exec) == ("se1.sa0.wgp0.simd0.wave0", 0x7A0944AA5604, 1)
    assert wave.instruction == "s_cbranch_vccnz 65535"
    assert wave.waits_for.startswith("nothing: it branches to itself")
    assert wave.state == ["halted"]
    assert wave.scalars[4] == 1 and len(wave.scalars) == 8  # and not those of the trap handler
    assert wave.vectors[1] == [1, 2, 3, 4]
    assert wave.code[1] == "=> 0x7a0944aa5604  s_cbranch_vccnz 65535"


def test_waves_of_old_versions_with_bits_are_read_and_alike_ones_stand_together() -> None:
    text = "".join(OLD_BITS.format(wave=wave, status="08012000") for wave in range(3))
    text += OLD_BITS.format(wave=7, status="08013000")
    waves = read(text).waves
    assert [wave.pc for wave in waves] == [0x800000202128] * 4
    assert waves[0].exec == 0x855382FAA5CA57C8
    assert waves[0].instruction.startswith("s_waitcnt") and waves[0].under_way == {"vmcnt": 2, "lgkmcnt": 3}
    assert [len(group.waves) for group in groups(waves)] == [3, 1]
    assert waves[3].waits_for.startswith("the barrier")
    assert waves[0].scalars == {0: 0x10, 1: 0x11, 2: 0x12, 3: 0x13}


def test_the_table_of_waves_is_read_by_its_head() -> None:
    waves = read(TABLE).waves
    assert [wave.place for wave in waves] == [
        "se0.sa0.wgp1.simd2.wave3",
        "se0.sa0.wgp1.simd2.wave4",
        "se1.sa1.wgp0.simd0.wave0",
    ]
    assert waves[0].state == ["at a barrier"] and waves[2].state == ["no lane is on", "halted"]
    shown = said(TABLE)
    assert "2 waves alike" in shown and "2 masks in all" in shown


def test_a_wave_that_ended_while_it_was_read_says_so() -> None:
    text = GFX12_WAVE.replace(
        "ixSQ_WAVE_STATE_PRIV: 00004000", "ixSQ_WAVE_TRAPSTS: 101ebcef | ixSQ_WAVE_MODE: bebebeef"
    )
    (wave,) = read(text).waves
    assert wave.state == ["it ended while it was read"] and "trapsts" not in wave.registers
    assert wave.pc == 0x7A0944AA5604


def test_queues_with_work_are_told_from_idle_ones() -> None:
    text = """\
Pipe 0  Queue 1  VMID 0
  PQ BASE 0x457000  RPTR 0x200  WPTR 0x200  RPTR_ADDR 0x401360  CNTL 0xc030890a
  EOP BASE 0x44b000  RPTR 0x40000008  WPTR 0x1ff8008  WPTR_MEM 0x8
  MQD 0x85feade000  DEQ_REQ 0x0  IQ_TIMER 0x0  AQL_CONTROL 0x0

Pipe 0  Queue 2  VMID 9
  PQ BASE 0x7e9311a00000  RPTR 0x4f2e0  WPTR 0x4f730  RPTR_ADDR 0x7e936ba8a080  CNTL 0x8084514
  EOP BASE 0x7e936ba7c000  RPTR 0x400002a8  WPTR 0x3ff82a8  WPTR_MEM 0x2a8
  MQD 0xd88200  DEQ_REQ 0x0  IQ_TIMER 0x8100100  AQL_CONTROL 0x1
  SAVE BASE 0x7e91fe400000  SIZE 0x2bea000  STACK OFFSET 0xa000  SIZE 0xa000

ME 1 Pipe 0: INSTR_PTR 0x91cd (ASM 0x24734)
"""
    shown = said(text)
    assert "me 1, pipe 0, queue 2, VMID 9: AQL, read 0x4f2e0, write 0x4f730: 0x450 words not read" in shown
    assert "1 queue idle" in shown and "no form that is known" not in shown
    assert data(text)["queues"][1]["values"]["SAVE BASE"] == 0x7E91FE400000  # type: ignore[index]


def test_no_waves_and_warnings_are_told() -> None:
    shown = said("[WARNING]: Rings are not halted!\nNo active waves! (or GFXOFF was not disabled)\n")
    assert "umr warns: Rings are not halted!" in shown and "no wave was active" in shown


def test_registers_are_listed_with_their_fields() -> None:
    text = "navi31.gfx1100.regGRBM_STATUS == 0x80000001\n\t.GUI_ACTIVE[31:31] ==        1 (0x00000001)\n"
    assert "regGRBM_STATUS 0x80000001  GUI_ACTIVE=0x1" in said(text)


def test_a_kernel_log_in_the_same_text_is_read_too() -> None:
    log = "[ 1.0] amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3\n"
    assert "did not end in its time" in said(TABLE + log)
    assert len(data(TABLE + log)["kernel_log"]) == 1  # type: ignore[arg-type]


def test_lines_that_are_not_known_are_counted_and_the_first_is_shown() -> None:
    assert "2 lines of no form that is known; line 5: something odd" in said(TABLE + "something odd\nagain\n")


def test_the_command_reads_standard_input_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Input:
        buffer = io.BytesIO(GFX12_WAVE.encode())

    monkeypatch.setattr("sys.stdin", Input)
    assert hcq_trace.main(["decode", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["form"] == "umr" and found["waves"][0]["pc"] == 0x7A0944AA5604


# ------------------------------------------------------------ what a wave waits for


@pytest.mark.parametrize(
    ("instruction", "family", "said"),
    [
        ("s_waitcnt vmcnt(0) lgkmcnt(0)", 9, "vector memory and LDS, scalar loads or messages"),
        (
            "s_waitcnt vmcnt(0) & lgkmcnt(2)",
            11,
            "vector memory and LDS, scalar loads or messages (until 2 are left)",
        ),
        ("s_waitcnt 0x3f70", 10, "vector memory"),
        ("s_waitcnt 0xf70", 9, "vector memory"),
        ("s_waitcnt 0x3f7", 11, "vector memory"),
        ("s_waitcnt_vscnt null, 0x0", 11, "vector stores"),
        ("s_wait_loadcnt 0x0", 12, "vector loads"),
        ("s_wait_kmcnt 0x0", 12, "scalar loads or messages"),
        ("s_wait_loadcnt_dscnt 0x0", 12, "vector loads and LDS"),
        ("s_barrier", 9, wave_state.BARRIER),
        ("v_add_f32 v0, v1, v2", 11, ""),
        ("", 0, ""),
    ],
)
def test_an_instruction_says_what_its_wave_waits_for(instruction: str, family: int, said: str) -> None:
    assert wave_state.waits_for(instruction, family) == said
