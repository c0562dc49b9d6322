"""What compute-sanitizer and cuda-gdb print: one event each, alike ones together. The samples are made here."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hcq.tools.trace import kernel_log
from hcq.tools.trace.color import Color
from hcq.tools.trace.cuda import tables, text
from hcq.tools.trace.kernel_log.event import Event
from tests.tools.trace.conftest import Done


def access(thread: int, address: int, kernel: str = "scale(float *, int)", size: int = 4) -> str:
    return f"""========= Invalid __global__ write of size {size} bytes
=========     at {kernel}+0x70 in scale.cu:12
=========     by thread ({thread},0,0) in block (3,0,0)
=========     Address {address:#x} is out of bounds
=========     and is {address - 0x7F0000001000 + 1} bytes after the nearest allocation at 0x7f000000 of size 4,096 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x9f9a] in run
=========
"""


SANITIZER = (
    "========= COMPUTE-SANITIZER\n"
    + "".join(access(thread, 0x7F0000001000 + 4 * thread) for thread in range(5))
    + access(0, 0x7F0000009000, "other(int)", 8)
    + """========= Program hit cudaErrorIllegalAddress (error 700) due to "an illegal memory access was encountered" \
on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 7 errors
"""
)
OLD = """========= CUDA-MEMCHECK
========= Invalid __shared__ read of size 16
=========     at 0x00000130 in tile.cu:19:tile_kernel(void)
=========     by thread (1,0,0) in block (0,0,0)
=========     Address 0x00000082 is misaligned
=========
========= ERROR SUMMARY: 1 error
"""
OTHERS = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at sum(int *)+0x90
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f0000000200
=========
========= Error: Race reported between Write access at reduce(float *)+0x5a0 in r.cu:9
=========     and Read access at reduce(float *)+0x6b0 in r.cu:11 [96 hazards]
=========
========= Barrier error detected. Divergent thread(s) in block.
=========     at half(int)+0x40 in half.cu:5
=========     by thread (32,0,0) in block (0,0,0)
=========
========= Leaked 1,024 bytes at 0x7f0000000000
=========     Saved host backtrace up to driver entry point at allocation time
=========
"""
GDB = """CUDA Exception: Warp Illegal Address
The exception was triggered at PC 0x555555c08620 (scale.cu:17)

Thread 1 "run" received signal CUDA_EXCEPTION_14, Warp Illegal Address.
[Switching focus to CUDA kernel 0, grid 1, block (0,0,0), thread (32,0,0), device 0, sm 5, warp 3, lane 0]
0x0000555555c08fb0 in scale<<<(8,1,1),(64,1,1)>>> (data=0x7fffccc00000) at scale.cu:50
50  }
"""
GDB_OLD = """Program received signal CUDA_EXCEPTION_6, Warp Misaligned Address.
[Switching focus to CUDA kernel 0, grid 3, block (1,0,0), thread (7,0,0), device 0, sm 1, warp 2, lane 7]
0x0000000000a1f8b8 in wide(float4*)<<<(4,1,1),(32,1,1)>>> ()
"""
TABLES = """(cuda-gdb) info cuda kernels
  Kernel Parent Dev Grid Status   SMs Mask   GridDim  BlockDim      Name Args
*      0      -   0    2 Active 0x00ffffff (240,1,1) (128,1,1) acos_main parms=...
       1      -   0    3 Sleeping 0x0000000f (8,1,1) (64,1,1) scale data=0x7fff
(cuda-gdb) info cuda warps
Wp Active Lanes Mask Divergent Lanes Mask Active Physical PC Kernel BlockIdx First Active ThreadIdx
Device 0 SM 0
* 0    0xffffffff    0x00000000 0x000000000000001c      0    (0,0,0)    (0,0,0)
  1    0xffffffff    0x00000000 0x000000000000001c      0    (0,0,0)   (32,0,0)
  2    0x0000ffff    0x00000000 0x0000000000000038      0    (0,0,0)   (64,0,0)
(cuda-gdb) info cuda threads
  BlockIdx ThreadIdx To BlockIdx ThreadIdx Count         Virtual PC    Filename  Line
Kernel 1
*  (0,0,0)   (0,0,0)     (0,0,0) (255,0,0)   256 0x0000000000866400 bitreverse.cu     9
"""
TORCH = """Traceback (most recent call last):
  File "t.py", line 3, in <module>
RuntimeError: CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call
RuntimeError: CUDA error: device-side assert triggered
"""


def events(words: str) -> list[Event]:
    return text.events(words.split("\n"))


def kinds(words: str) -> list[str]:
    return [event.kind for event in events(words)]


def test_reports_of_many_threads_at_one_place_are_one_event() -> None:
    first, other, call, summary = events(SANITIZER)
    assert first.fields["count"] == 5 and other.fields["count"] == 1
    assert (
        "5 threads with an invalid write of 4 bytes in global memory, at scale(float *, int)+0x70 in scale.cu:12"
        in first.sentence
    )
    assert "thread (0,0,0) of block (3,0,0)" in first.sentence
    assert "address 0x7f0000001000 to 0x7f0000001010 is out of bounds" in first.sentence
    assert "1 bytes after the allocation at 0x7f000000 of 4,096 bytes" in first.sentence
    assert first.meaning and first.advice and first.fields["frames"] == ["main [0x9f9a] in run"]
    assert (
        "cudaDeviceSynchronize returned cudaErrorIllegalAddress (700)" in call.sentence
        and "not who did it" in call.advice
    )
    assert summary.role == "notice"


def test_the_older_form_is_read() -> None:
    event = events(OLD)[0]
    assert (
        "invalid read of 16 bytes in shared memory, at tile.cu:19:tile_kernel(void)+0x00000130"
        in event.sentence
    )
    assert "address 0x82 is misaligned" in event.sentence


def test_races_uninitialised_reads_barriers_and_leaks_are_told() -> None:
    read, race, barrier, leak = events(OTHERS)
    assert (read.kind, race.kind, barrier.kind, leak.kind) == (
        "Uninitialised read",
        "Race",
        "Barrier error",
        "Leak",
    )
    assert (
        "write at reduce(float *)+0x5a0 in r.cu:9 and read at reduce(float *)+0x6b0 in r.cu:11"
        in race.sentence
    )
    assert "half.cu:5" in barrier.sentence and "1,024 bytes" in leak.sentence
    assert all(event.meaning and event.advice for event in (read, race, barrier, leak))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (GDB, r"_14 \(Warp Illegal Address\) in scale, .*: thread \(32,0,0\) of .*, SM 5, .* at 0x555555c08620 \(sca"),
        (GDB_OLD, r"_6 \(Warp Misaligned Address\) in wide\(float4\*\), .* the PC is 0x0000000000a1f8b8, w"),
        ("CUDA Exception: Warp Assert", r"CUDA_EXCEPTION_12 \(Warp Assert\)"),
        ("Thread 1 received signal CUDA_EXCEPTION_77, Something New.", "exception 77, which decode does not know"),
    ],
)  # fmt: skip
def test_a_stop_of_cuda_gdb_is_one_event(words: str, said: str) -> None:
    (event,) = events(words)
    assert re.search(said, event.sentence), event.sentence
    assert event.kind == "CUDA exception" and event.role == "fault"


def test_tables_of_cuda_gdb_are_told_alike_rows_together() -> None:
    found = events(TABLES)
    assert [event.kind for event in found] == ["kernel", "kernel", "warps", "warps", "threads"]
    assert "2 warps of kernel 0 at 0x000000000000001c" in found[2].sentence
    assert "256 threads at 0x0000000000866400 (bitreverse.cu:9)" in found[4].sentence


def test_errors_of_calls_are_told_with_what_they_mean() -> None:
    first, second = events(TORCH)
    assert (
        "an illegal memory access was encountered" in first.sentence and "before this call" in first.meaning
    )
    assert "assert" in second.meaning and first.role == "consequence"
    assert set(text.API_WORDS.values()) <= tables.errors().keys()


def test_a_kernel_log_beside_it_is_read_too() -> None:
    log = (
        "[ 12.5] NVRM: Xid (PCI:0000:0a:00): 31, pid=1, name=a, Ch 00000010, intr 0. MMU Fault: ENGINE CE2\n"
    )
    assert kinds(log + GDB) == ["Xid", "CUDA exception"]


def test_quotes_and_carriage_returns_around_it_do_not_matter() -> None:
    quoted = "".join(f"> {line}\r\n" for line in SANITIZER.splitlines())
    assert [event.sentence for event in events(quoted)] == [event.sentence for event in events(SANITIZER)]


def test_decode_recognises_them(trace: Callable[..., Done], tmp_path: Path) -> None:
    path = tmp_path / "pasted.txt"
    for words in (SANITIZER, OLD, OTHERS, GDB, GDB_OLD, TABLES, TORCH):
        path.write_text(words)
        done = trace("decode", path)
        assert done.status == 0 and "line " in done.out
        assert len(json.loads(trace("decode", path, "--json").out)) == len(events(words))


WHOLE = SANITIZER + OLD + OTHERS + GDB + GDB_OLD + TABLES + TORCH


@pytest.mark.parametrize("seed", range(100))
def test_a_damaged_text_is_told_within_bounds_and_never_raises(seed: int) -> None:
    rng = random.Random(seed)
    lines = WHOLE.split("\n")
    for _ in range(rng.randrange(1, 80)):
        at = rng.randrange(len(lines))
        line, cut = lines[at], rng.randrange(len(lines[at]) + 1)
        odd = rng.choice(("\0", "9" * 500, "(", "=========", "\x1b[", "{0}", "0x", "{count}"))
        lines[at] = rng.choice(
            (line[:cut], line[cut:], line[:cut] + odd + line[cut:], line[:cut] + rng.choice(lines), "")
        )
        if rng.random() < 0.2:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
    del lines[rng.randrange(len(lines)) :]
    found = text.events(lines)
    assert all(event.sentence and 1 <= event.line <= len(lines) for event in found)
    shown = list(kernel_log.lines(found, Color(False)))
    assert sum(map(len, shown)) < 40 * len(WHOLE)
    assert not any(ord(char) < 32 and char != "\t" for line in shown for char in line)
    json.loads(json.dumps(kernel_log.json(found)))


def test_a_text_of_very_many_reports_is_bounded() -> None:
    many = "".join(access(0, 0x7F0000001000, f"kernel{number}(int)") for number in range(8000))
    assert len(events(many)) <= text.MAX_EVENTS + 1
