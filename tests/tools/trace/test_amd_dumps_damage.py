"""umr's, RADV's and ROCm's texts that are cut, mixed or damaged: what decode says is bounded, and nothing raises."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from hcq.tools.trace import amd_texts, radv, readers, rocm, umr
from hcq.tools.trace.color import Color
from hcq.tools.trace.waves import MOST_WAVES, SHOWN_GROUPS
from tests.tools.trace import test_radv, test_rocm, test_umr
from tests.tools.trace.test_kernel_log import GFX11
from tests.tools.trace.test_kernel_log_damage import ODD

UMR = (
    test_umr.ring(test_umr.words_of(*test_umr.LAUNCH) * 3, 5)
    + "Dumping IB at (gfxhub) VMID:0 0xf500447000 of 2 words from ring[0]\n"
    + "IB[0@0xf500447000 + 0x0   ] = 0xc0032200 ... PKT3\nIB[0@0xf500447000 + 0x4   ] = 0x00400060 ... |---+\n"
    + test_umr.STREAM
    + test_umr.GFX12_WAVE
    + test_umr.OLD_BITS.format(wave=1, status="08012000")
    + test_umr.TABLE
    + "Pipe 0  Queue 2  VMID 9\n  PQ BASE 0x7e9311a00000  RPTR 0x4f2e0  WPTR 0x4f730  RPTR_ADDR 0x7e936ba8a080\n"
    + "  MQD 0xd88200  DEQ_REQ 0x0  AQL_CONTROL 0x1\nME 1 Pipe 0: INSTR_PTR 0x91cd (ASM 0x24734)\n"
    + "navi31.gfx1100.regGRBM_STATUS == 0x80000001\n\t.GUI_ACTIVE[31:31] ==        1 (0x00000001)\n"
)
ROCM = (
    "\n".join(text for text, _, _ in test_rocm.FAULTS)
    + "\n"
    + test_rocm.AGENT
    + test_rocm.OLD_AGENT
    + test_rocm.GDB
    + test_rocm.LANES
    + test_rocm.PACKET
    + test_rocm.WRAPPED
)
RADV = "========== RADV GPU hang report ==========\n" + "".join(
    f"========== {name} ==========\n{text}\n" for name, text in test_radv.FILES.items()
)


def _umr(text: str) -> readers.Reading:
    found = umr.read(text.split("\n"))
    return readers.Reading(lambda color: umr.lines(found, color), lambda: umr.as_json(found))


def _rocm(text: str) -> readers.Reading:
    found = rocm.read(text.split("\n"))
    return readers.Reading(lambda color: iter([*rocm.lines(found, color), ""]), lambda: rocm.as_json(found))


def _mixed(text: str) -> readers.Reading:
    found = amd_texts.read(text.encode())
    return readers.Reading(
        lambda color: iter([*amd_texts.lines(found, color, ""), ""]), lambda: amd_texts.as_json(found, "")
    )


KINDS: dict[str, tuple[str, Callable[[str], readers.Reading]]] = {
    "umr": (UMR, _umr),
    "rocm": (ROCM, _rocm),
    "mixed": (UMR + GFX11 + ROCM, _mixed),
    "radv": (RADV, lambda text: readers._read_radv(text.encode(), readers.Wanted())),
}
FOREIGN = [line for text in (UMR, ROCM, RADV) for line in text.splitlines()]
MOST_GROWTH, MOST_ADDED = 40, 40_000


def damaged(rng: random.Random, text: str) -> str:
    """A text with some harm: cuts, swaps, joined and foreign lines, strange characters, flipped bits, other numbers."""
    lines = text.splitlines()
    for _ in range(rng.randrange(1, 40)):
        at = rng.randrange(len(lines))
        line = lines[at]
        cut = rng.randrange(len(line) + 1)
        kind = rng.randrange(9)
        if kind == 0:
            lines[at] = line[:cut]
        elif kind == 1:
            lines[at] = line[cut:]
        elif kind == 2:
            lines[at] = line[:cut] + rng.choice(ODD) + line[cut:]
        elif kind == 3:
            lines[at] = line[:cut] + rng.choice(FOREIGN)
        elif kind == 4:
            lines.insert(at, rng.choice(FOREIGN))
        elif kind == 5:
            lines[at : at + 1] = [line[:cut], line[cut:]]
        elif kind == 6:
            lines[at] = "".join(
                chr(ord(char) ^ (1 << rng.randrange(7))) if rng.random() < 0.03 else char for char in line
            )
        elif kind == 7:
            lines[at] = "".join(
                rng.choice("0123456789abcdef") if char in "0123456789abcdef" and rng.random() < 0.2 else char
                for char in line
            )
        elif len(lines) > 2:
            del lines[at : at + rng.randrange(1, 6)]
    return "\n".join(lines)


def holds(reading: readers.Reading, text: str) -> None:
    shown = list(reading.lines(Color(False)))
    assert shown
    assert sum(map(len, shown)) <= MOST_GROWTH * len(text) + MOST_ADDED
    assert not any(ord(char) < 32 and char != "\t" for line in shown for char in line)
    json.loads(json.dumps(reading.as_json()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_text_is_told_within_bounds_and_never_raises(kind: str, seed: int) -> None:
    text, read = KINDS[kind]
    harmed = damaged(random.Random(seed), text)
    holds(read(harmed), harmed)
    found = readers.find(harmed.encode("utf-8", "replace"), readers.Wanted())
    if found is not None:
        holds(found, harmed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(20))
def test_a_text_that_ends_anywhere_is_told_as_far_as_it_goes(kind: str, seed: int) -> None:
    text, read = KINDS[kind]
    cut = text[: random.Random(seed).randrange(1, len(text))]
    holds(read(cut), cut)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_any_kind_are_read(kind: str) -> None:
    rng = random.Random(7)
    for _ in range(20):
        content = rng.randbytes(3000).decode("latin-1")
        KINDS[kind][1](content).as_json()


def test_thousands_of_waves_are_shown_in_few_lines() -> None:
    rng = random.Random(1)
    waves = "".join(
        f"wave_{number}: pc=0x7f{rng.randrange(1 << 24):06x}00 (stopped, reason: MEMORY_VIOLATION)\n\n"
        for number in range(5000)
    )
    found = rocm.read(waves.split("\n"))
    shown = list(rocm.lines(found, Color(False)))
    assert len(found.waves) == 5000 <= MOST_WAVES and len(shown) < 10 * SHOWN_GROUPS


def test_lines_and_numbers_without_end_are_cut() -> None:
    long = "9" * 1_000_000
    for text in (
        f"navi31.gfx.ring[{long}] == 0x1 r..\n",
        f"navi31.gfx.ring[1] == 0x{long}\n",
        f"IB[{long}] = 0x1\n",
        f"se0.sa0.wgp0.simd0.wave0\nixSQ_WAVE_PC_LO: {long} |\nSGPRS:\n[0..3] = {{ {long} }}\n",
        f"[0x1@0x1 + 0x{long}] [0x1] Opcode\n",
    ):
        assert not umr.read(text.split("\n")).is_full
    assert (
        len(
            "".join(
                rocm.lines(rocm.read([f"wave_1: pc=0x{long}", f"Queue error (HSA_{long})"]), Color(False))
            )
        )
        < 9000
    )
    report = radv.read(f"Trace ID: {long}\nTrace point ID: {long}\nGRBM_STATUS <- A = {long}\n".encode())
    assert len("".join(radv.lines(report, Color(False)))) < 9000


@pytest.mark.parametrize("filler", [" ", " 1", "x", "x "])
def test_a_row_of_a_table_that_goes_on_without_end_is_read_once(filler: str) -> None:
    """With an expression that tries every pair of spaces these take half a minute."""
    rest = filler * (1400 // len(filler)) + "y"
    queue, agent = f"  1 AMDGPU Queue 1:1 (QID 0) H{rest}", f"  1 AMDGPU Agent (GPUID 64146) gfx90a x{rest}"
    found = rocm.read([queue, agent] * 1000)
    assert not found.queues and all(one["arch"] == "gfx90a" for one in found.agents)


@pytest.mark.parametrize("digit", ["\u00b2", "\u0663", "\u2460"])  # a superscript, of Arabic, in a circle
def test_digits_that_are_no_numbers_are_text(digit: str) -> None:
    umr.read(["SE SH CU SIMD WAVE# WAVE_STATUS PC_HI PC_LO", f"{digit} 0 0 0 0 00000000 00000000 00000000"])
    agent = f"* 1 A AMDGPU Agent (GPUID 64146) gfx{digit}90 MI 416 3328 29:00.0"
    assert rocm.read([agent, "wave_1: pc=0x10 (running)"]).waves
    for row in (
        f"Kernel Name: {digit}",
        f"VGPU=0x1 SWq=0x1, HWq=0x1, id={digit}",
        f"rptr={digit}, wptr={digit}",
    ):
        list(rocm.lines(rocm.read(["Kernel Name: k", row]), Color(False)))


def test_a_packet_that_claims_many_words_takes_no_memory() -> None:
    header = "[0x3@0x80010005ad00 + 0x{at:04x}]\t[ 0xffff7600]\tOpcode 0x76 [PKT3_SET_SH_REG] (16384 words)"
    dump = umr.read([header.format(at=8 * at) for at in range(200)])
    assert len(list(umr.lines(dump, Color(False)))) < 300


def test_the_work_grows_with_the_text_and_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in packets that are decoded: a ring around its read pointer is walked three times at most."""
    from hcq.tools.trace import ring_window

    words = 0
    whole = ring_window.pieces

    def counting(*given):  # type: ignore[no-untyped-def]
        nonlocal words
        words += len(given[0])
        return whole(*given)

    monkeypatch.setattr(ring_window, "pieces", counting)
    many = test_umr.words_of(*test_umr.LAUNCH) * 500
    list(umr.lines(umr.read(test_umr.ring(many, 7).split("\n")), Color(False)))
    assert words <= 3 * len(many)
