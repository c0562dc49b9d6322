"""What strangers paste: the same material in the envelopes and the spellings of other tools, versions and people.

The samples are of our own making, after public formats; numbers and names are invented. Each kind comes at least twice.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import pytest

from hcq.amd.abi import mqd, pm4, sdma
from hcq.tools.trace import readers
from hcq.tools.trace.color import Color

PM4 = [
    *pm4.SetShReg(reg_offset=0x2E0C, registers=(0x1234, 0)).words,
    *pm4.DispatchDirect(dim_x=4, dim_y=1, dim_z=1, compute_shader_en=1).words,
    *pm4.WaitRegMem(function=3, mem_space=1, address=0x1000, reference=5, mask=0xFFFFFFFF).words,
]
SDMA = [
    *sdma.CopyLinear(count=4095, src_addr=0x1000, dst_addr=0x2000).words,
    *sdma.Fence(address=0x3000, data=1).words,
    *sdma.Trap(int_context=1).words,
]


def said(text: str | bytes) -> str:
    """What decode prints of a text."""
    content = text.encode() if isinstance(text, str) else text
    reading = readers.find(content, readers.Wanted())
    assert reading is not None, content[:200]
    json.dumps(reading.as_json())
    return "\n".join(reading.lines(Color(False)))


def quoted(text: str) -> str:
    return "Hi,\r\n\r\n" + "".join(f"> {line}\r\n" for line in text.splitlines()) + "\r\nany ideas?\r\n"


def fenced(text: str) -> str:
    return f"Here is the log:\n\n```text\n{text}```\n\n- ROCm 6.4, kernel 6.14\n"


def of_compose(text: str) -> str:
    return "".join(f"worker-1  | {line}\n" for line in text.splitlines())


def of_docker(text: str) -> str:
    return "".join(f"2026-03-02T11:22:33.{n:09}Z {line}\n" for n, line in enumerate(text.splitlines()))


def in_journal(text: str) -> str:
    return "".join(f"Mär 02 11:22:33 knoten17 kernel: {line}\n" for line in text.splitlines())


def of_kubernetes(text: str) -> str:
    rows = (json.dumps({"log": f"{line}\n", "stream": "stderr"}) for line in text.splitlines())
    return "".join(f"{row}\n" for row in rows)


def as_html(text: str) -> str:
    return f"<pre><code>{text}</code></pre>\n"


def as_it_is(text: str) -> str:
    return text


ENVELOPES = [as_it_is, quoted, fenced, of_compose, of_docker]
LOG_ENVELOPES = [*ENVELOPES, in_journal, of_kubernetes, as_html]

PAGE_FAULT = """\
amdgpu 0000:03:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:40 vmid:8 pasid:32771)
amdgpu 0000:03:00.0: amdgpu:  Process python3 pid 4242 thread python3 pid 4242
amdgpu 0000:03:00.0: amdgpu:   in page starting at address 0x00007f2a40000000 from client 10
amdgpu 0000:03:00.0: amdgpu: GCVM_L2_PROTECTION_FAULT_STATUS:0x00841051
"""
XID = """\
NVRM: Xid (PCI:0000:81:00): 31, pid=99, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS \
GPCCLIENT_T1_5 faulted @ 0x7f12_34567000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ
"""
TIMEOUT = """\
[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.0.1 timeout, signaled seq=41, emitted seq=43
[drm:amdgpu_job_timedout [amdgpu]] *ERROR* Process information: process blender pid 2001 thread blender:cs0 pid 2013
"""
HIP = """\
Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f6c40000000. Reason: Page not present or \
supervisor privilege.
"""
TORCH_HIP = """\
RuntimeError: HIP error: an illegal memory access was encountered
HIP kernel errors might be asynchronously reported at some other API call, so the stacktrace might be incorrect.
"""
TORCH_CUDA = """\
/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [12,0,0], thread: [32,0,0] \
Assertion `srcIndex < srcSelectDimSize` failed.
/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [12,0,0], thread: [33,0,0] \
Assertion `srcIndex < srcSelectDimSize` failed.
RuntimeError: CUDA error: device-side assert triggered
"""
SANITIZER = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at saxpy(int, float *)+0x90 in saxpy.cu:8
=========     by thread (255,0,0) in block (3,0,0)
=========     Address 0x7f1ee2000ffc is out of bounds
"""
LOGS = {
    "a page fault": (PAGE_FAULT, "a write of the page at 0x7f2a40000000 by TCP"),
    "an Xid": (XID, "a read of 0x7f1234567000 by GPCCLIENT_T1_5"),
    "a timeout": (TIMEOUT, "a job on ring comp_1.0.1 did not end in its time"),
    "ROCr's fault": (HIP, "GPU node 1 used 0x7f6c40000000"),
    "PyTorch on HIP": (TORCH_HIP, "a call of HIP returned: an illegal memory access"),
    "PyTorch on CUDA": (TORCH_CUDA, "assertion `srcIndex < srcSelectDimSize` failed"),
    "compute-sanitizer": (
        SANITIZER,
        "an invalid write of 4 bytes in global memory, at saxpy(int, float *)+0x90",
    ),
}


@pytest.mark.parametrize("envelope", LOG_ENVELOPES)
@pytest.mark.parametrize("name", LOGS)
def test_a_log_says_the_same_in_every_envelope(name: str, envelope: Callable[[str], str]) -> None:
    text, says = LOGS[name]
    found = said(envelope(text))
    assert says in found
    if name == "PyTorch on CUDA":
        assert "for 2 threads; the first is thread (32,0,0) of block (12,0,0)" in found


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "Triton Error [HIP]:  Code: 209, Messsage: no kernel image is available for execution",
            "no code for this GPU",
        ),
        ("torch.AcceleratorError: HIP error: invalid device function", "build for it: --offload-arch"),
        ("RuntimeError: Triton Error [CUDA]: misaligned address", "no multiple of its size"),
        ("CUDA error 719 at foo.cu:12: cudaErrorLaunchFailure", "a kernel before this call stopped"),
        ("CUDA runtime error: unspecified launch failure", "a kernel before this call stopped"),
        (
            "[rank3]:[E302 11:22:33.1 x.cpp:14] CUDA error: an illegal memory access was encountered",
            "is not mapped",
        ),
        (
            "foo.hip:3: f: block: [0,0,0], thread: [1,0,0] Assertion `x > 0` failed.\nHIP error: x x x",
            "`x > 0`|x > 0",
        ),
        (
            "amdgpu: sq_intr: error, se 2, data 0x1, sh 0, priv 1, wave_id 3, simd_id 2, cu_id 7, err_type 1",
            "illegal",
        ),
        (
            "[  9.1] [drm:gfx_v10_0_priv_reg_irq] *ERROR* Illegal register access in command stream",
            "register",
        ),
        (
            "[drm:amdgpu_job_timedout] *ERROR* ring sdma0 timeout, signaled seq=9, emitted seq=10",
            "ring sdma0",
        ),
    ],
)
def test_errors_of_frameworks_and_of_older_kernels_are_told(line: str, says: str) -> None:
    assert any(one in said(f"{line}\n") for one in says.split("|"))


AMD_SMI = """\
GPU: 3
    ASIC:
        MARKET_NAME: AMD Instinct MI300X
        TARGET_GRAPHICS_VERSION: gfx942
    ECC:
        TOTAL_CORRECTABLE_COUNT: {few}
        TOTAL_UNCORRECTABLE_COUNT: {bad}
        TOTAL_DEFERRED_COUNT: 0
"""
ROCM_SMI = """\
============================ ROCm System Management Interface ============================
======================================= RAS Info ==========================================
GPU[0]\t\t: \tRAS INFO
         Block       Status  Correctable Error  Uncorrectable Error
           UMC     ENABLED                  0                    {bad}
           SDMA    ENABLED                  {few}                    0
================================== End of ROCm SMI Log ===================================
"""


@pytest.mark.parametrize("envelope", [as_it_is, quoted, fenced])
def test_counts_of_errors_are_told_of_each_gpu_and_nothing_is_made_of_zeros(
    envelope: Callable[[str], str],
) -> None:
    found = said(envelope(AMD_SMI.format(few=12, bad=3)))
    assert "GPU 3: 3 uncorrectable errors" in found and "notice: GPU 3: 12 correctable errors" in found
    assert "TARGET_GRAPHICS_VERSION gfx942" in found
    assert "GPU 0: 2 uncorrectable errors in block UMC" in said(envelope(ROCM_SMI.format(few=0, bad=2)))
    assert "GPU 0: 5 correctable errors in block SDMA" in said(envelope(ROCM_SMI.format(few=5, bad=0)))
    assert "no error is counted" in said(envelope(AMD_SMI.format(few=0, bad=0)))
    mixed = said(envelope(AMD_SMI.format(few=0, bad=1) + PAGE_FAULT))
    assert "1 uncorrectable error" in mixed and LOGS["a page fault"][1] in mixed


@pytest.mark.parametrize("pasid", ["32771", "0x8003"])
@pytest.mark.parametrize("envelope", [as_it_is, quoted])
def test_mqds_of_queues_are_told(pasid: str, envelope: Callable[[str], str]) -> None:
    image = mqd.ComputeMqd11(header=mqd.HEADER, cp_hqd_pq_control=0x50F, cp_hqd_pq_rptr=7, cp_hqd_pq_wptr=9)
    words = image.words
    rows = [
        f"    {4 * at:08x}: {' '.join(f'{word:08x}' for word in words[at : at + 8])}\n"
        for at in range(0, len(words), 8)
    ]
    text = f"Process 4711 PASID {pasid}:\n  Compute queue on device 5a3c\n{''.join(rows)}"
    found = said(envelope(text))
    assert "Compute queue of process 4711 on gpu_id 0x5a3c" in found
    assert "read to word 7, written to 9" in found


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            "Graphics SM Warp Exception on (GPC 4, TPC 1, SM 1): Out Of Range Address",
            "a warp on GPC 4, TPC 1, SM 1",
        ),
        ("Graphics Exception: ESR 0x505730=0xc04000e 0x505734=0x4", "warp 4: out of range address"),
    ],
)
def test_an_event_of_windows_is_an_xid_13(message: str, says: str) -> None:
    text = f"Source: nvlddmkm\r\nEvent ID: 13\r\n\\Device\\Video3\r\n{message}\r\n"
    assert says in said(text) and "Xid 13" in said(text)


def hexdump_c(data: bytes) -> str:
    rows = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        text = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        cells = f"{' '.join(f'{one:02x}' for one in row[:8])}  {' '.join(f'{one:02x}' for one in row[8:])}"
        rows.append(f"{at:08x}  {cells:<48}  |{text}|\n")
    return "".join(rows) + f"{len(data):08x}\n"


def gdb(data: bytes, size: int, letter: str) -> str:
    count = 8 if size < 4 else 16 // size
    rows = [f"(gdb) x/{len(data) // size}x{letter} ring\n"]
    numbers = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    for at in range(0, len(numbers), count):
        cells = "\t".join(f"0x{one:0{2 * size}x}" for one in numbers[at : at + count])
        rows.append(f"0x{0x7FFF0000 + at * size:x} <ring+{at * size}>:\t{cells}\n")
    return "".join(rows)


SPELLINGS: dict[str, Callable[[list[int]], str]] = {
    "words in a row": lambda words: " ".join(f"{word:08x}" for word in words),
    "upper case, one a line": lambda words: "".join(f"{word:08X}\r\n" for word in words),
    "an array of C": lambda words: (
        f"const u32 ib[] = {{\n{''.join(f'  0x{word:08X}u,{chr(10)}' for word in words)}}};\n"
    ),
    "a list of Python": lambda words: f"ib = [{', '.join(map(hex, words))}]\n",
    "decimal": lambda words: f"words = {words}\n",
    "decimal, unnamed": lambda words: "[\n" + ",\n".join(f"  {word}" for word in words) + "\n]\n",
    "hexdump -C": lambda words: hexdump_c(packed(words)),
    "od -x": lambda words: od(packed(words)),
    "gdb, words": lambda words: gdb(packed(words), 4, "w"),
    "gdb, bytes": lambda words: gdb(packed(words), 1, "b"),
    "gdb, halves": lambda words: gdb(packed(words), 2, "h"),
    "gdb, giants": lambda words: gdb(packed(words + [0] * (len(words) % 2)), 8, "g"),
    "od -t x4": lambda words: "".join(
        f"{4 * at:07o} {' '.join(f'{word:08x}' for word in words[at : at + 4])}\n"
        for at in range(0, len(words), 4)
    ),
    "an array of Rust": lambda words: (
        f"let ib: [u32; {len(words)}] = ["
        + ", ".join(f"0x{word >> 16:04x}_{word & 65535:04x}_u32" for word in words)
        + "];\n"
    ),
    "bytes of Python": lambda words: f"ib = bytes.fromhex('{packed(words).hex()}')\n",
    "NumPy": lambda words: f"array([{', '.join(map(hex, words))}], dtype=uint32)\n",
    "NumPy, decimal": lambda words: f"array([{', '.join(map(str, words))}], dtype=uint32)\n",
    "WinDbg": lambda words: "".join(
        f"00000000`{0x1000 + 4 * at:08x}  {' '.join(f'{word:08x}' for word in words[at : at + 4])}\n"
        for at in range(0, len(words), 4)
    ),
    "numbered": lambda words: "".join(f"dw{at}: 0x{word:08x}\n" for at, word in enumerate(words)),
    "numbered, with h": lambda words: "".join(f"DW {at:2}  {word:08X}h\n" for at, word in enumerate(words)),
    "CSV": lambda words: "index,value\n" + "".join(f"{at},0x{word:08x}\n" for at, word in enumerate(words)),
    "devmem": lambda words: "".join(
        f"0x{0x1000 + 4 * at:x}: 0x{word:08x}\n" for at, word in enumerate(words)
    ),
}


def packed(words: list[int]) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def od(data: bytes) -> str:
    rows = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        halves = struct.unpack(f"<{len(row) // 2}H", row)
        rows.append(f"{at:07o} {' '.join(f'{one:04x}' for one in halves)}\n")
    return "".join(rows) + f"{len(data):07o}\n"


@pytest.mark.parametrize("envelope", [as_it_is, quoted])
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(
    ("words", "says"), [(PM4, "DispatchDirect(dim_x=4"), (SDMA, "CopyLinear(count=4095")]
)
def test_words_say_the_same_in_every_spelling(
    words: list[int], says: str, spelling: str, envelope: Callable[[str], str]
) -> None:
    if "decimal" in spelling and (envelope is quoted or words is SDMA):
        pytest.skip("a mail around it, or numbers that may be hex: those are not taken for decimal")
    found = said(envelope(SPELLINGS[spelling](words)))
    assert says in found and " 0 of them not understood" in found


@pytest.mark.parametrize("cut", range(0, 260, 13))
def test_a_text_that_breaks_off_is_safe(cut: int) -> None:
    for text, _ in LOGS.values():
        reading = readers.find(text[:cut].encode(), readers.Wanted())
        if reading is not None:
            list(reading.lines(Color(False)))


def test_a_file_with_everything_in_it_loses_nothing() -> None:
    amd = said(of_compose(TORCH_HIP) + in_journal(PAGE_FAULT + TIMEOUT) + HIP)
    for name in ("a page fault", "a timeout", "ROCr's fault", "PyTorch on HIP"):
        assert LOGS[name][1] in amd
    nvidia = said(of_docker(TORCH_CUDA) + in_journal(XID) + SANITIZER)
    for name in ("an Xid", "PyTorch on CUDA", "compute-sanitizer"):
        assert LOGS[name][1] in nvidia
