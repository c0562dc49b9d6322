"""decode of amdgpu's devcoredumps: those that emulated GPUs write, and texts of our own making in every older form.

The writer (hcq/emu/amd/devcoredump.py) and the reader share no code: each tests the other.
"""

from __future__ import annotations

import io
import json
import random

import pytest

from hcq.amd.abi import other_packets, pm4, sdma
from hcq.amd.abi.page_fault import ProtectionFaultStatus
from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.tools.trace import capsule, devcoredump, readers
from hcq.tools.trace.capsule_replay import replay
from hcq.tools.trace.color import Color
from hcq.tools.trace.devcoredump import dump as dump_text
from hcq.trace.file import Trace
from tests.tools.trace.hanging import (
    ARCHITECTURES,
    BUFFER,
    DATA,
    HANGS,
    UNMAPPED,
    WAIT,
    WRITE,
    hang,
    words_of,
)

FENCE = pm4.ReleaseMem(
    event_type=pm4.Event.CACHE_FLUSH_AND_INV_TS_EVENT, event_index=5, address=0x7000, data=9
)


def decoded(text: bytes, chip: str = "") -> dict:
    return devcoredump.as_json(devcoredump.read(text), chip)


def lines(text: bytes, chip: str = "") -> str:
    return "\n".join(devcoredump.lines(devcoredump.read(text), Color(False), chip))


def registers(*rows: tuple[str, int]) -> str:
    return "".join(f"{name:<50} \t 0x{value:08x}\n" for name, value in rows)


def ring(name: str, packets: list[Packet], rptr: int, wptr: int, size: int = 64, begin: int = 0) -> str:
    words = [0xFFFF1000] * size
    for at, word in enumerate(words_of(packets)):
        words[(begin + at) % size] = word
    rows = "".join(f"0x{4 * at:x} \t 0x{word:x}\n" for at, word in enumerate(words))
    pointers = f"Rptr: 0x{rptr:x} Wptr: 0x{wptr:x} RB mask: {size - 1:x}\nRing size in dwords: {size}\n"
    return f"ring name: {name}\n{pointers}Ring contents\nOffset \t Value\n{rows}"


HEAD = (
    "**** AMDGPU Device Coredump ****\nversion: 1\nkernel: 6.12.1\nmodule: amdgpu\ntime: 812.000000345\n"
    "process_name: game PID: 4711\n\nSOC Information\nSOC Device id: 29772\nSOC PCI Revision id: 200\n"
    "\nSOC Memory Information\nreal vram size: 25753026560\nvisible vram size: 25753026560\n"
    "visible vram size: 16777216\n\nGDS Config\ngds: total size: 0\n"
    "\nHW IP Version Information\nHWIP: GC[1][0]: v11.0.0.0.0\nHWIP: SDMA0[14][0]: v6.0.0.0.0\n"
    "\nIP Firmwares\nVCE feature version: 0, fw version: 0x00000000\nMEC feature version: 32, fw version: 0x00000205\n"
    "SMC feature version: 0, program: 0, fw version: 0x004e7e00 (78.126.0)\n"
    "SDMA0 feature version: 60, firmware version: 0x00000015\n"
    "\nVBIOS Information\nvbios name       : NAVI31\nvbios pn         : 113-X\n"
)
NO_FAULT = (
    "\n[gfxhub] Page fault observed\nFaulty page starting at address: 0x0000000000000000\n"
    "Protection fault status register: 0x0\n"
)


def kernel_ring_dump() -> str:
    """A graphics ring of the kernel whose buffer hangs: the last headers say where in it."""
    inside = [pm4.WriteData(address=0x8000, data=(1, 2)), WAIT, FENCE]
    outside: list[Packet] = [
        other_packets.ContextControl(),
        pm4.IndirectBuffer(ib_base=0x123000, ib_size=len(words_of(inside))),
        FENCE,
    ]
    words = words_of(inside)
    last = [("regCP_ME_HEADER_DUMP", 0)] * 6
    last += [("regCP_ME_HEADER_DUMP", one.words[0]) for one in inside[:2]]
    done = len(words_of(outside[:2]))
    return (
        HEAD
        + "\nRing timed out details\nIP Type: 0 Ring Name: gfx_0.0.0\n"
        + NO_FAULT
        + "\nIP Dump\nIP: gfx_v11_0\n"
        + registers(("regGRBM_STATUS", 0xA0003028), ("regCP_IB1_BASE_LO", 0x123000), *last)
        + "num_mec: 1 num_pipe: 4 num_queue: 4\nmec 0, pipe 0, queue 0\n"
        + registers(("regCP_HQD_VMID", 0))
        + "\nRing buffer information\n"
        + ring("gfx_0.0.0", outside, 0x1000 + done, 0x1000 + len(words_of(outside)))
        + ring("sdma0", [sdma.Fence(address=0x40, data=1)], 4, 4)
        + ring("vcn_unified_0", [WRITE], 0, 4)
        + "VRAM is lost due to GPU reset!\n"
        + f"\nIB #0 0x123000 {len(words)} dw\n"
        + "".join(f"0x{word:08x}\n" for word in words)
    )


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", HANGS)
def test_the_packet_that_an_emulated_gpu_stands_at_is_the_one_that_is_marked(name, arch):
    made = hang(name, arch)
    found = decoded(made.text)
    assert found["chip"] == found["decoded_as"] == arch
    stuck = found["stuck"]
    assert stuck["packet"]["packet"].startswith(HANGS[name])
    queue = made.queue
    if "buffer" in name:
        frame = queue.engine.frames[-1]
        assert (stuck["buffer_va"], stuck["buffer_at"]) == (BUFFER, frame.at)
    else:
        assert stuck["buffer"] is None
        assert stuck["at"] == queue.rptr * queue.unit_bytes // 4 % (queue.ring_bytes // 4)
    text = lines(made.text)
    (marked,) = (line for line in text.splitlines() if line.startswith("=> "))
    assert HANGS[name] in marked
    assert found["notes"] == []
    assert found["unknown_lines"] == 0


def test_a_page_fault_is_that_of_the_gpu_and_none_is_none():
    fault = decoded(hang("a fault", "gfx1100").text)["fault"]
    assert fault["address"] == UNMAPPED
    assert fault["fields"]["rw"] == 1
    assert fault["client"] == "CPC"
    assert "the page is not mapped" in fault["sentence"]
    assert decoded(hang("a wait", "gfx1100").text)["fault"] is None
    assert "page fault: none" in lines(hang("a wait", "gfx1100").text)


def test_a_dump_of_the_kernels_rings_is_read_with_every_section():
    text = kernel_ring_dump().encode()
    found = decoded(text)
    assert (found["chip"], found["timed_out"], found["vram"]) == ("gfx1100", "gfx_0.0.0", "lost")
    assert found["soc"]["device id"] == 0x744C
    assert found["soc"]["gtt size"] == 16777216  # under the wrong name in the first versions
    assert found["firmware"]["SMC"] == 0x4E7E00
    assert found["firmware"]["SDMA0"] == 0x15
    assert (
        found["stuck"]["packet"]["packet"] == "ReleaseMem"
    )  # where the ring is read: the buffer is behind that
    assert found["unknown_lines"] == 0
    shown = lines(text)
    assert "0x744c" in shown
    assert "regCP_ME_HEADER_DUMP: the last headers are those up to" not in shown  # two are too few
    assert "packets of this ring are not decoded" in shown  # of video
    assert "the contents of VRAM were lost" in shown
    assert "idle" in next(line for line in shown.splitlines() if line.startswith("ring sdma0"))
    assert "NopWord" not in shown.partition("ring gfx_0.0.0")[0]


def test_the_last_headers_of_an_engine_say_where_in_a_buffer_it_is():
    inside = [WRITE, FENCE, pm4.AcquireMem(), WAIT, WRITE]
    text = kernel_ring_dump()
    head, _, _ = text.partition("\nIB #0")
    rows = [line for line in head.splitlines() if not line.startswith("regCP_ME_HEADER_DUMP")]
    dumped = [("regCP_ME_HEADER_DUMP", word) for word in [0, 0, 0, 0, *(one.words[0] for one in inside[:4])]]
    at = next(n for n, line in enumerate(rows) if line.startswith("regCP_IB1_BASE_LO"))
    rows.insert(at + 1, registers(*dumped).rstrip("\n"))
    words = words_of(inside)
    text = (
        "\n".join(rows) + f"\n\nIB #0 0x123000 {len(words)} dw\n" + "".join(f"0x{one:08x}\n" for one in words)
    )
    shown = lines(text.encode())
    assert f"word {len(words_of(inside[:3]))} of IB #0" in shown
    assert "WRITE_DATA, RELEASE_MEM, ACQUIRE_MEM, WAIT_REG_MEM" in shown


def test_the_first_form_with_a_list_of_registers_by_address_is_read():
    text = (
        "**** AMDGPU Device Coredump ****\nkernel: 6.1\nmodule: amdgpu\ntime: 1.000000002\n"
        "process_name: x PID: 3\nAMDGPU register dumps:\nOffset:     Value:\n0x00002004: 0x00000001\n"
    )
    found = decoded(text.encode())
    assert found["registers"][0]["registers"] == [{"name": "", "at": 0x2004, "value": 1, "fields": {}}]
    assert found["stuck"] is None
    assert "the text has no rings" in lines(text.encode())


def test_fields_of_registers_are_decoded_where_they_are_declared():
    word = ProtectionFaultStatus(permission_faults=3, cid=8, vmid=5).words[0]
    text = HEAD + "\nIP Dump\nIP: gfx_v11_0\n" + registers(("regGCVM_L2_PROTECTION_FAULT_STATUS", word))
    (group,) = decoded(text.encode())["registers"]
    assert group["registers"][0]["fields"]["vmid"] == 5
    assert "permission_faults=3" in lines(text.encode())


def test_a_text_without_its_head_says_that_the_gpu_is_not_known_and_takes_one_by_name():
    made = hang("a wait", "gfx1100").text
    tail = made[made.index(b"Ring buffer information") :]
    found = decoded(tail)
    assert found["chip"] == ""
    assert "--chip overrules" in found["notes"][0]
    assert found["stuck"]["packet"]["packet"] == "WaitRegMem"
    assert decoded(tail, "gfx942")["decoded_as"] == "gfx942"
    with pytest.raises(UsageError, match="gfx7"):
        decoded(tail, "gfx700")


def test_quoted_and_coloured_dumps_with_other_line_ends_say_the_same():
    text = hang("a wait in a buffer", "gfx1100").text.decode()
    plain = decoded(text.encode())
    assert decoded(text.replace("\n", "\r\n").encode()) == plain
    assert decoded("".join(f"> {line}\n" for line in text.splitlines()).encode()) == plain


@pytest.mark.parametrize("content", [kernel_ring_dump().encode(), hang("a copy queue", "gfx942").text])
def test_decode_recognises_a_dump_by_itself(content, monkeypatch, trace):
    class Standard:
        buffer = io.BytesIO(content)

    reading = readers.find(content, readers.Wanted())
    assert reading is not None and reading.as_json()["kind"] == "amdgpu devcoredump"
    monkeypatch.setattr("sys.stdin", Standard)
    done = trace("decode", "-", "--json")
    assert done.status == 0
    assert json.loads(done.out)["kind"] == "amdgpu devcoredump"


def test_a_kernel_log_that_speaks_of_a_dump_is_none():
    log = b"[  812.1] amdgpu 0000:03:00.0: amdgpu: AMDGPU device coredump file has been created\n"
    assert not devcoredump.recognises(log)
    assert not devcoredump.recognises(b"ring name: x\n")


def test_holes_in_a_ring_are_said_and_not_guessed():
    text = hang("a wait", "gfx1100").text.decode().splitlines(keepends=True)
    first = next(n for n, line in enumerate(text) if line.startswith("0x0 "))
    queue_at = 7  # the word of the wait
    cut = [*text[: first + queue_at], *text[first + queue_at + 5 :]]
    found = decoded("".join(cut).encode())
    assert any("5 of its 1024 words are not in the text" in note for note in found["notes"])
    assert found["rings"][0]["packets"] == []
    assert "are not in the text" in found["rings"][0]["note"]


def damaged(text: bytes, rng: random.Random) -> bytes:
    how = rng.randrange(5)
    if how == 0:
        return text[: rng.randrange(len(text))]
    if how == 1:
        return text[rng.randrange(len(text)) :]
    if how == 2:
        flipped = bytearray(text)
        for _ in range(rng.randrange(1, 60)):
            flipped[rng.randrange(min(len(flipped), rng.choice((3000, len(flipped)))))] = rng.randrange(256)
        return bytes(flipped)
    rows = text.split(b"\n")
    if how == 3:
        for _ in range(rng.randrange(1, 20)):
            a, b = rng.randrange(len(rows)), rng.randrange(len(rows))
            rows[a], rows[b] = rows[b], rows[a]
        return b"\n".join(rows)
    return b"\n".join(row for row in rows if rng.random() > 0.02)


def survives(text: bytes) -> None:
    """Everything that people do with a dump ends, with a result or one sentence."""
    if readers.find(text, readers.Wanted()) is None or not devcoredump.recognises(text):
        return
    json.dumps(decoded(text))
    assert lines(text)
    try:
        made = capsule.capsule(text)
        trace = Trace.parse(made.content)
        replay(trace)
    except UsageError as error:
        assert str(error)


@pytest.mark.parametrize("name", ["a wait in a buffer", "a copy queue", "a barrier of AQL"])
def test_a_damaged_dump_is_never_a_traceback(name):
    text = hang(name, "gfx1100").text
    rng = random.Random(name)
    for _ in range(25):
        survives(damaged(text, rng))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(40))
def test_many_damaged_dumps_are_never_a_traceback(seed):
    rng = random.Random(seed)
    texts = [hang(name, rng.choice(ARCHITECTURES)).text for name in HANGS]
    texts.append(kernel_ring_dump().encode())
    for _ in range(40):
        text = damaged(rng.choice(texts), rng)
        if rng.random() < 0.3:
            text = damaged(text + rng.choice(texts), rng)
        if text:
            survives(text)


def test_numbers_of_strangers_take_no_memory():
    text = (
        "Ring buffer information\nring name: gfx_0.0.0\nRptr: 0x0 Wptr: 0xffffffffffffffff RB mask: ffffffffffffffff\n"
        "Ring size in dwords: 4000000000\nRing contents\n0xfffffff0 \t 0x1\n0x0 \t 0xc0001000\n"
        "\nIB #0 0xffffffffffffffff 4294967295 dw\n0x00000001\n"
    )
    read = dump_text.read(text.encode())
    assert sum(len(one.words) for one in read.rings) < 4
    assert len(lines(text.encode())) < 10_000


def test_what_is_beside_a_wait_in_memory_is_not_claimed():
    assert f"{DATA + 64:#x}" in lines(hang("a wait", "gfx1100").text)
