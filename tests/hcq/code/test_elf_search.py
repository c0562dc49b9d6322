"""Objects are found in the memory of another process, wherever they lie there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hcq.amd.foreign.images import WANTED
from hcq.code.elf_search import HEADER, SECTION, objects_in

# argument 1: a file; what else is done is said by the others. Prints a line once the memory is there, and waits.
PROGRAM = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
touched = memory[0]
if "forgotten" in sys.argv:
    memory.madvise(mmap.MADV_DONTNEED)
if "heap" in sys.argv:
    kept = memory[:]
print("ready", flush=True)
sys.stdin.read()
"""


def an_object() -> bytes:
    sections = SECTION.pack(*(0,) * 10)
    fields = (
        WANTED.signature.ljust(16, b"\0"),
        3,
        WANTED.machine,
        1,
        0,
        0,
        HEADER.size,
        0,
        64,
        0,
        0,
        64,
        1,
        0,
    )
    return HEADER.pack(*fields) + sections


@pytest.mark.parametrize("how", ["mapped", "forgotten", "heap"])
def test_an_object_is_found_also_where_the_kernel_has_taken_its_pages_back(tmp_path: Path, how: str) -> None:
    path = tmp_path / "object"
    path.write_bytes(bytes(4096) + an_object() + bytes(4096))
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None and program.stdout.readline() == b"ready\n"
        found = [data[at : at + len(an_object())] for data, at in objects_in(program.pid, WANTED)]
        program.communicate()
    assert an_object() in found
