"""decode of AMD's words: PM4, SDMA, AQL and kernel descriptors, in every form that people paste, whole and damaged.

The samples are of our own making: encoded by the driver's structures, printed in the forms of the tools.
"""

from __future__ import annotations

import io
import json
import random
import struct

import pytest

from hcq.amd.abi import aql, other_packets, pm4, sdma
from hcq.amd.abi.descriptor import KernelDescriptor
from hcq.amd.abi.registers import Register, Rsrc1, Rsrc2
from hcq.amd.chip import CHIPS
from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.tools import hcq_trace
from hcq.tools.trace import amd_words, hex_text, readers
from hcq.tools.trace.amd_words import chip_named, guess, pieces
from hcq.tools.trace.color import Color
from hcq.tools.trace.readers import Wanted

LAUNCH: list[Packet] = [
    other_packets.ContextControl(update_load_enables=1, update_shadow_enables=1),
    pm4.SetShReg(reg_offset=Register.COMPUTE_PGM_LO, registers=(0x12345600, 0x7F)),
    pm4.SetShReg(reg_offset=Register.COMPUTE_NUM_THREAD_X, registers=(64, 1)),
    pm4.DispatchDirect(dim_x=4, dim_y=1, dim_z=1),
    pm4.EventWrite(event_type=pm4.Event.CS_PARTIAL_FLUSH, event_index=pm4.EventIndex.CS_PARTIAL_FLUSH),
]
DISPATCH = aql.KernelDispatch(
    workgroup_size_x=64, grid_size_x=256, kernel_object=0x7F0000001000, kernarg_address=0x7F0000002000
)
DESCRIPTOR = KernelDescriptor(
    kernarg_size=24,
    kernel_code_entry_byte_offset=0x1000,
    compute_pgm_rsrc1=Rsrc1(granulated_vgpr_count=3, ieee_mode=1, mem_ordered=1).words[0],
    compute_pgm_rsrc2=Rsrc2(user_sgpr=2, tgid_x_en=1).words[0],
    enable_sgpr_kernarg_segment_ptr=1,
    enable_wavefront_size32=1,
)


def words_of(*packets: Packet) -> list[int]:
    return [word for packet in packets for word in packet.words]


def names(words: list[int], form: str, chip: str = "gfx1100") -> list[str]:
    return [piece.name for piece in pieces(words, form, CHIPS[chip])]


def packed(words: list[int]) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def columns(words: list[int], form: str) -> str:
    """The words as a tool prints them."""
    data = packed(words)
    rows = [data[at : at + 16] for at in range(0, len(data), 16)]
    fours = [words[at : at + 4] for at in range(0, len(words), 4)]
    printed = {
        "plain": lambda: " ".join(f"{word:08x}" for word in words),
        "0x": lambda: "\n".join(f"0x{word:x}" for word in words),
        "C": lambda: "uint32_t ib[] = {\n" + "".join(f"    0x{word:08x}u,\n" for word in words) + "};\n",
        "python": lambda: str([hex(word) for word in words]),
        "hexdump -C": lambda: "".join(
            f"{16 * i:08x}  {row[:8].hex(' ')}  {row[8:].hex(' ')}  |{'.' * len(row)}|\n"
            for i, row in enumerate(rows)
        ),
        "xxd": lambda: "".join(
            f"{16 * i:08x}: {row.hex(' ', 2):39}  {'fade.bad'[: len(row)]}\n" for i, row in enumerate(rows)
        ),
        "od -x": lambda: "".join(
            f"{16 * i:07o} {' '.join(f'{half:04x}' for half in struct.unpack(f'<{len(row) // 2}H', row))}\n"
            for i, row in enumerate(rows)
        ),
        "hexdump of words": lambda: "".join(
            f"{16 * i:08x} {' '.join(f'{word:08x}' for word in four)}\n" for i, four in enumerate(fours)
        ),
        "gdb": lambda: "".join(
            f"0x7ffff7fb{16 * i:04x} <ib+{16 * i}>:\t" + "\t".join(f"0x{word:08x}" for word in four) + "\n"
            for i, four in enumerate(fours)
        ),
        "gdb giants": lambda: "".join(
            f"0x7ffff7fb{8 * i:04x}:\t0x{low | high << 32:016x}\n"
            for i, (low, high) in enumerate(zip(words[::2], words[1::2]))
        ),
        "dmesg": lambda: "".join(
            f"[  105.{i:06}] amdgpu 0000:03:00.0: amdgpu: IB: {16 * i:08x}: {' '.join(f'{w:08x}' for w in four)}\n"
            for i, four in enumerate(fours)
        ),
        "devcoredump": lambda: "".join(f"0x{4 * i:x} \t 0x{word:x}\n" for i, word in enumerate(words)),
        "umr ring": lambda: "".join(
            f"gfx1100.gfx.ring[{i:5}] == 0x{word:08x}    {'rwD' if not i else '...'} \n"
            for i, word in enumerate(words)
        ),
        "umr ib": lambda: "".join(f"IB[{i:5}] = 0x{word:08x} ... \n" for i, word in enumerate(words)),
        "indexed": lambda: "".join(f"[{i:3}] 0x{word:08x}\n" for i, word in enumerate(words)),
        "bytes": lambda: data.hex(" "),
        "one string": lambda: data.hex(),
        "quoted": lambda: "".join(f"> {word:08x}  # a remark\r\n" for word in words),
    }
    return printed[form]()


FORMS = (
    "plain",
    "0x",
    "C",
    "python",
    "hexdump -C",
    "xxd",
    "od -x",
    "hexdump of words",
    "gdb",
    "gdb giants",
    "dmesg",
)
FORMS += ("devcoredump", "umr ring", "umr ib", "indexed", "bytes", "one string", "quoted")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "packets", [LAUNCH, [DISPATCH, aql.BarrierAnd(dep_signal_0=0x1000)]], ids=["pm4", "aql"]
)
def test_words_are_read_from_every_form_that_tools_print(form: str, packets: list[Packet]):
    words = words_of(*packets)
    words += [0] * (len(words) % 2)
    assert hex_text.read(columns(words, form).encode()).words == words


def test_bytes_are_words_of_a_binary_file():
    words = words_of(*LAUNCH)
    assert hex_text.read(packed(words)).words == words
    pasted = hex_text.read(packed(words) + b"\1\2")
    assert (pasted.words, pasted.notes) == (words, ["2 bytes at the end are no whole word"])


def test_a_star_of_hexdump_stands_for_repeated_lines():
    text = "00000000  01 00 00 00 02 00 00 00  03 00 00 00 04 00 00 00\n*\n00000030  05 00 00 00\n00000034\n"
    assert hex_text.read(text.encode()).words == [1, 2, 3, 4] * 3 + [5]


def test_how_many_lines_a_star_stands_for_is_not_guessed():
    pasted = hex_text.read(b"0000000 0001 0000 0002 0000 0003 0000 0004 0000\n*\n0000060\n")
    assert pasted.words == [1, 2, 3, 4]
    assert pasted.notes == ["a * stands for repeated lines, and how many cannot be told: they are left out"]


@pytest.mark.parametrize("group", [2, 4])
def test_groups_of_digits_are_bytes_in_their_order_where_numbers_say_nothing(group: int):
    words = words_of(*LAUNCH)
    for wanted in (Wanted(), Wanted("pm4")):
        reading = readers.find(packed(words).hex(" ", group).encode(), wanted)
        assert reading is not None
        told = reading.as_json()
        assert told["packets"][0]["packet"] == "ContextControl"
        assert "bytes in the order of memory" in told["notes"][0]


def test_the_words_around_a_ring_are_none_of_its_words():
    text = (
        "ring name: comp_1.0.1\nRptr: 0x0 Wptr: 0x10 RB mask: 7ff\nRing size in dwords: 2048\nRing contents\n"
        "Offset \t Value\n0x0 \t 0xc0012800\n0x4 \t 0x80000000\n0x8 \t 0x80000000\n0xc \t 0x0\n"
    )
    assert hex_text.read(text.encode()).words == [0xC0012800, 0x80000000, 0x80000000, 0]


def test_a_heading_and_marks_of_markdown_do_not_hide_the_words():
    for text in ("```\nc0012800 80000000 80000000\n```\n", "my IB:\nc0012800 80000000\n80000000\n"):
        reading = readers.find(text.encode(), Wanted())
        assert reading is not None
        assert reading.as_json()["form"] == "pm4"


def test_umrs_decoded_stream_which_leaves_words_out_is_not_taken_for_words():
    pasted = hex_text.read(b"[0x0@0x800000 + 0x0000]\t[        0xc0032200]\tOpcode 0x22 [PKT3_COND_EXEC]\n")
    assert (pasted.words, pasted.is_clean) == ([], False)
    assert "umr -R has all" in pasted.notes[0]


def test_what_is_no_word_is_said():
    pasted = hex_text.read(b"here it is:\nc0012800 80000000 8000zz00\nthanks\n")
    assert pasted.words == [0xC0012800, 0x80000000]
    assert not pasted.is_clean
    assert pasted.notes == [
        "line 2 has something that is no word, and is read up to there",
        "2 lines without words are passed over",
    ]


def test_pm4_packets_have_their_registers_by_name():
    told = [piece.line() for piece in pieces(words_of(*LAUNCH), "pm4", CHIPS["gfx1100"])]
    assert told == [
        "ContextControl(update_load_enables=1, update_shadow_enables=1)",
        "SetShReg(COMPUTE_PGM_LO=0x12345600, COMPUTE_PGM_HI=0x7f)",
        "SetShReg(COMPUTE_NUM_THREAD_X(num_thread_full=64), COMPUTE_NUM_THREAD_Y(num_thread_full=1))",
        "DispatchDirect(dim_x=4, dim_y=1, dim_z=1, compute_shader_en=1, force_start_at_000=1)",
        "EventWrite(event_type=CS_PARTIAL_FLUSH, event_index=CS_PARTIAL_FLUSH)",
    ]


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_every_packet_of_a_generation_is_named(chip: str):
    row = CHIPS[chip]
    for layout in {
        *row.packets.values(),
        *(one for several in other_packets.PM4.values() for one in several),
    }:
        packet = layout(mem_space=1) if issubclass(layout, pm4.WaitRegMem) else layout()
        assert names(words_of(packet), "pm4", chip) == [layout.__name__]
    assert names(words_of(row.acquire(), row.release(address=0x1000, data=1)), "pm4", chip) == [
        type(row.acquire()).__name__,
        type(row.release()).__name__,
    ]


def test_the_generation_decides_what_a_cache_packet_is():
    words = words_of(CHIPS["gfx942"].acquire())
    assert names(words, "pm4", "gfx942") == ["AcquireMemGfx9"]
    (piece,) = pieces(words, "pm4", CHIPS["gfx1100"])
    assert (piece.is_known, piece.note) == (False, "7 words; it has 8 on gfx1100")
    assert amd_words.best_chip(words, "pm4").family == 9


def test_what_nobody_knows_is_shown_with_its_words_and_the_walk_goes_on():
    words = [0xC001FE00, 1, 2, *words_of(LAUNCH[0]), 0x12345, 0x678, *words_of(LAUNCH[3])]
    told = [piece.line() for piece in pieces(words, "pm4", CHIPS["gfx1100"])]
    assert told[0] == "unknown opcode 0xfe: c001fe00 00000001 00000002  [3 words]"
    assert told[1].startswith("ContextControl(")
    assert told[2] == "unknown: 00012345 00000678  [no packet]"
    assert told[3].startswith("DispatchDirect(")


def test_a_packet_known_by_name_alone_is_named():
    words = [0xC0012500, 1, 2, 0xC003A200, 1, 2, 3, 4]
    assert [piece.line() for piece in pieces(words, "pm4", CHIPS["gfx1100"])] == [
        "DRAW_INDEX_INDIRECT: c0012500 00000001 00000002  [3 words, no layout here]",
        "MAP_QUEUES: c003a200 00000001 00000002 00000003 00000004  [5 words, no layout here]",
    ]


def test_a_packet_that_is_cut_off_says_so():
    words = words_of(LAUNCH[3])[:3]
    (piece,) = pieces(words, "pm4", CHIPS["gfx1100"])
    assert (piece.name, piece.is_known, piece.note) == ("DispatchDirect", False, "cut off: 3 of 5 words")
    (piece,) = pieces(words_of(DISPATCH)[:5], "aql", CHIPS["gfx1100"])
    assert (piece.name, piece.note) == ("KernelDispatch", "cut off: 20 of 64 bytes")


def test_fillers_in_a_row_are_one_piece():
    words = [0xFFFF1000] * 1000 + [0x80000000] * 3 + [0] * 50 + words_of(LAUNCH[0])
    found = pieces(words, "pm4", CHIPS["gfx1100"])
    assert [(piece.name, piece.times) for piece in found] == [
        ("NopWord", 1000),
        ("filler", 3),
        ("zeros", 50),
        ("ContextControl", 1),
    ]
    assert found[3].at == 1053


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_sdma_packets_are_those_of_the_generation(chip: str):
    row = CHIPS[chip].copies
    sent = [
        row.copy(count=4095, src_addr=0x1000, dst_addr=0x2000),
        row.fence(address=0x3000, data=7),
        row.poll(address=0x3000, value=7, mask=0xFFFFFFFF, func=3),
        sdma.Trap(int_context=5),
        row.write(dst_addr=0x4000, count=1, data=(1, 2)),
        other_packets.CopyBroadcastLinear(count=255, src_addr=1, dst_addr=2, second_dst_addr=3),
        other_packets.CondExe(address=0x40, exec_count=3),
    ]
    assert names(words_of(*sent), "sdma", chip) == [type(one).__name__ for one in sent]


# words as other drivers' headers make them, by hand: shifts and masks are facts of the headers
OTHER_PM4 = [
    ([0xC0012800, 1 << 31 | 1 << 24 | 1 << 16 | 1 << 15 | 2, 1 << 31 | 1], "ContextControl"),
    ([0xC0009000, 1 << 28 | 1], "FrameControl"),
    ([0xC0032200, 0x1000, 0x2, 3 << 25, 0x3FFF], "CondExec"),
    ([0xC0021600, 0x1000, 0x2, 1], "DispatchIndirect"),
    ([0xC0011600, 0x10, 1], "DispatchIndirectGraphics"),
    ([0xC0071E00, 0x2F | 1 << 8 | 1 << 25 | 1 << 30, 0x1000, 0, 5, 0, 6, 0, 0x1FFF], "AtomicMem"),
    ([0xC0035D00, 7 | 1 << 3 | 1 << 30, 0x1000, 0x2, 0x3FFF], "PrimeUtcl2"),
    ([0xC0009800, 1 | 1 << 3 | 0x8001 << 5 | 2 << 25 | 3 << 29], "InvalidateTlbs"),
    ([0xC0005900, 1 << 31 | 1 << 24], "Rewind"),
    ([0xC0024600, 0x38 | 1 << 8, 0x1000, 0x2], "EventWriteAddress"),
]


def test_packets_of_other_drivers_have_the_fields_of_the_headers():
    fields = {}
    for words, name in OTHER_PM4:
        (piece,) = pieces(words, "pm4", CHIPS["gfx1030"])
        assert piece.name == name, words
        fields[name] = {key: value for key, value in piece.fields.items() if value}
    loads = {"load_per_context_state", "load_global_uconfig", "load_gfx_sh_regs", "load_cs_sh_regs"}
    updates = {"update_load_enables", "update_shadow_enables"}
    assert set(fields["ContextControl"]) == loads | updates | {"shadow_global_config"}
    assert fields["FrameControl"] == {"tmz": 1, "command": 1}
    assert fields["CondExec"] == {"address": 0x200001000, "cache_policy": 3, "exec_count": 0x3FFF}
    assert fields["DispatchIndirect"] == {"address": 0x200001000, "dispatch_initiator": 1}
    assert fields["DispatchIndirectGraphics"] == {"data_offset": 0x10, "dispatch_initiator": 1}
    atomic = fields["AtomicMem"]
    assert (atomic["atomic"], atomic["command"], atomic["cache_policy"], atomic["engine_sel"]) == (
        0x2F,
        1,
        1,
        1,
    )
    assert (atomic["address"], atomic["src_data"], atomic["cmp_data"]) == (0x1000, 5, 6)
    assert atomic["loop_interval"] == 0x1FFF
    assert fields["PrimeUtcl2"] == {
        "cache_perm": 7,
        "prime_mode": 1,
        "engine_sel": 1,
        "address": 0x200001000,
        "requested_pages": 0x3FFF,
    }
    assert fields["InvalidateTlbs"] == {
        "invalidate_sel": 1,
        "mmhub_invalidate_sel": 1,
        "pasid": 0x8001,
        "mmhub_flush_type": 2,
        "gfx_flush_type": 3,
    }
    assert fields["Rewind"] == {"offload_enable": 1, "valid": 1}
    assert fields["EventWriteAddress"]["address"] == 0x200001000


def test_copies_to_two_places_and_conditions_have_the_fields_of_the_headers():
    words = [1 | 1 << 18 | 1 << 27, 255, 0, 0x1000, 1, 0x2000, 2, 0x3000, 3]
    words += [9 | 5 << 24 | 1 << 28, 0x40, 1, 7, 3]
    words += [7 | 1 << 30 | 1 << 31, 0x80, 1]
    copy, condition, semaphore = (
        {key: value for key, value in piece.fields.items() if value}
        for piece in pieces(words, "sdma", CHIPS["gfx1100"])
    )
    assert (copy["tmz"], copy["broadcast"], copy["count"]) == (1, 1, 255)
    assert copy["src_addr"] == 0x100001000
    assert (copy["dst_addr"], copy["second_dst_addr"]) == (0x200002000, 0x300003000)
    assert (condition["cache_policy"], condition["cpv"]) == (5, 1)
    assert (condition["address"], condition["reference"], condition["exec_count"]) == (0x100000040, 7, 3)
    assert (semaphore["signal"], semaphore["mailbox"], semaphore["address"]) == (1, 1, 0x100000080)


def test_sdma_words_that_are_none_are_unknown():
    words = [*words_of(sdma.Trap(int_context=5)), 0xDEADBEEF, 0, 0, *words_of(sdma.Trap(int_context=6))]
    assert names(words, "sdma") == ["Trap", "unknown", "zeros", "Trap"]


def test_aql_slots_are_packets_free_or_unknown():
    words = words_of(DISPATCH, aql.BarrierOr(dep_signal_1=0x40)) + [1] + [0] * 15 + [0x77] + [0] * 15
    assert names(words, "aql") == ["KernelDispatch", "BarrierOr", "Invalid", "unknown"]
    (first, *_) = pieces(words, "aql", CHIPS["gfx942"])
    assert first.fields["kernel_object"] == 0x7F0000001000
    assert first.fields["acquire_fence_scope"] == "SYSTEM"


def test_a_kernel_descriptor_has_all_its_fields():
    (piece,) = pieces(words_of(DESCRIPTOR), "descriptor", CHIPS["gfx1100"])
    line = piece.line()
    assert "kernel_code_entry_byte_offset=0x1000" in line
    assert "compute_pgm_rsrc1(granulated_vgpr_count=3, ieee_mode=1, mem_ordered=1)" in line
    assert "compute_pgm_rsrc2(user_sgpr=2, tgid_x_en=1)" in line
    assert "user_sgprs(kernarg_segment_ptr=s0)" in line
    for name in KernelDescriptor.fields:
        assert f"{name}=" in line or f"{name}(" in line
    assert piece.fields["user_sgprs"] == {"kernarg_segment_ptr": 0}
    assert piece.fields["compute_pgm_rsrc2"]["tgid_x_en"] == 1


def test_a_descriptor_behind_its_code_has_a_negative_offset_and_gfx9_its_own_register():
    words = words_of(
        KernelDescriptor(
            kernel_code_entry_byte_offset=2**64 - 0x400,
            compute_pgm_rsrc3=7,
            compute_pgm_rsrc1=1,
            compute_pgm_rsrc2=2,
        )
    )
    (piece,) = pieces(words, "descriptor", CHIPS["gfx942"])
    assert "kernel_code_entry_byte_offset=-0x400" in piece.line()
    assert "compute_pgm_rsrc3(accum_offset=7)" in piece.line()


@pytest.mark.parametrize(
    "words, form",
    [
        (words_of(*LAUNCH), "pm4"),
        (words_of(CHIPS["gfx942"].acquire(), LAUNCH[3]), "pm4"),
        (words_of(DISPATCH, DISPATCH), "aql"),
        (words_of(aql.BarrierAnd(dep_signal_0=64)), "aql"),
        (words_of(DESCRIPTOR), "descriptor"),
        (words_of(DESCRIPTOR, DESCRIPTOR), "descriptor"),
        (words_of(sdma.CopyLinear(count=4095, src_addr=0x1000, dst_addr=0x2000), sdma.Trap()), "sdma"),
        (words_of(sdma.FenceV4(address=0x1000, data=5), sdma.Trap(int_context=9)), "sdma"),
    ],
)
def test_the_language_is_recognised(words: list[int], form: str):
    assert guess(words)[0].form == form
    for content in (packed(words), columns(words, "xxd").encode()):
        reading = readers.find(content, Wanted())
        assert reading is not None
        assert reading.as_json()["form"] == form


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello\n",
        b"20018000 00001234\n",  # methods of NVIDIA's, perhaps: of no class that is known
        b"00000000 00000000\n",
        b"ioctl(3, 0xc020462a, 0x7ffd) = 0\n",
        b"c0012800 80000000 80000000 and so on\n",
        b"\x7fELF\2\1\1@\0\0\0\0\0\0\0\0\3\0\xe0\0\1\0\0\0",
    ],
)
def test_what_may_be_something_else_is_left_to_others(content: bytes):
    assert readers.find(content, Wanted()) is None


def test_chips_are_known_by_name_and_by_generation():
    assert chip_named("gfx1100").arch == "gfx1100"
    assert [chip_named(name).family for name in ("gfx9", "gfx906", "gfx10", "gfx11", "gfx1152", "gfx12")] == [
        9,
        9,
        10,
        11,
        11,
        12,
    ]
    with pytest.raises(UsageError, match="--chip navi31: not a GPU whose packets are known"):
        chip_named("navi31")


def test_the_program_prints_words_and_json(tmp_path, capsys):
    text = tmp_path / "words"
    text.write_text(columns(words_of(*LAUNCH), "0x"))
    assert hcq_trace.main(["decode", str(text), "--form", "pm4", "--chip", "gfx942"]) == 0
    out = capsys.readouterr().out
    assert "     0  ContextControl(" in out
    assert "18 words, 0 of them not understood; pm4 of gfx942" in out
    assert hcq_trace.main(["decode", "--json", str(text)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["form"], told["packets"][0]["packet"]) == ("pm4", "ContextControl")


def test_words_that_are_none_are_an_error(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"nothing here\n")))
    assert hcq_trace.main(["decode", "-", "--form", "sdma"]) == hcq_trace.FAILED
    assert "no words in this file" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(25))
def test_damaged_words_are_read_to_their_end_and_every_word_is_accounted_for(seed: int):
    rng = random.Random(seed)
    sound = words_of(*LAUNCH, CHIPS["gfx1100"].acquire(), pm4.WriteData(address=0x1000, data=(1, 2, 3))) * 3
    sound += words_of(sdma.CopyLinear(count=15), sdma.Trap(), DISPATCH, DESCRIPTOR)
    for _ in range(10):
        words = sound[rng.randrange(8) : rng.randrange(20, len(sound))]
        for _ in range(rng.randrange(12)):
            words[rng.randrange(len(words))] = rng.choice((rng.getrandbits(32), 0, 0xFFFFFFFF, 0xC0003700))
        for form in amd_words.FORMS:
            for chip in ("gfx90a", "gfx942", "gfx1030", "gfx1201"):
                found = pieces(words, form, CHIPS[chip])
                assert [word for piece in found for word in list(piece.words) * piece.times] == words
                assert [piece.at for piece in found] == sorted({piece.at for piece in found})
                json.dumps([piece.as_json() for piece in found])
                assert all(len(piece.line()) < 200_000 for piece in found)
        guess(words)


@pytest.mark.parametrize("seed", range(25))
def test_damaged_text_is_read_as_far_as_it_goes(seed: int):
    rng = random.Random(seed)
    words = words_of(*LAUNCH, DISPATCH)
    for form in ("plain", "C", "hexdump -C", "xxd", "od -x", "gdb", "dmesg", "devcoredump", "umr ring"):
        damaged = bytearray(columns(words, form).encode())
        for _ in range(rng.randrange(1, 40)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        content = bytes(damaged[: rng.randrange(1, len(damaged) + 1)])
        assert len(hex_text.read(content).words) <= len(content)
        for wanted in (Wanted(), Wanted("pm4"), Wanted("sdma", "gfx9"), Wanted("aql"), Wanted("descriptor")):
            try:
                reading = readers.find(content, wanted)
            except UsageError as error:
                assert "no words" in str(error)
                continue
            if reading is not None:
                assert list(reading.lines(Color(False)))
                json.dumps(reading.as_json())


def test_long_texts_of_one_line_are_read_in_bounds():
    for content in (
        b"c" * (1 << 20),
        b"0 " * (1 << 19),
        b"0x" * (1 << 19),
        b"00000000: " * (1 << 17),
        b"*\n" * 10**5,
    ):
        assert len(hex_text.read(content).words) <= len(content)
