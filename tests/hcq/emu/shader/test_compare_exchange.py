"""Compare and exchange in memory that others change, too."""

from __future__ import annotations

import platform
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcq.emu.amd.shader.memory import AddressSpace, SharedRange, aligned_words
from hcq.emu.shader import compare_exchange as module
from hcq.emu.shader.compare_exchange import add, exchange


@pytest.mark.parametrize("way", ["code", "one by one"])
@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.float32, np.uint64, np.float64])
def test_what_is_still_there_is_replaced_and_what_is_not_is_told(
    dtype: Any, way: str, monkeypatch: pytest.MonkeyPatch
):
    if way == "one by one":
        monkeypatch.setattr(module, "_function", lambda size: None)
    memory = np.arange(10, dtype=dtype)
    addresses = memory.ctypes.data + memory.itemsize * np.array([1, 3, 5])
    found = exchange(addresses, np.array([1, 7, 5], dtype), np.array([11, 13, 15], dtype))
    assert found.tolist() == [1, 3, 5]
    assert memory.tolist() == [0, 11, 2, 3, 4, 15, 6, 7, 8, 9]
    assert exchange(addresses[:0], found[:0], found[:0]).tolist() == []


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no code of this machine here")
def test_no_increment_of_two_threads_is_lost():
    memory = np.zeros(64, np.uint32)
    space = AddressSpace()
    data = memory.view(np.uint8)
    space.insert(SharedRange(data, aligned_words(0x1000, data), 0x1000, 0x1000 + len(data), True, "shared"))
    addresses = 0x1000 + 4 * np.arange(64, dtype=np.uint64)

    def count() -> None:
        for _ in range(500):
            space.update(addresses, np.uint32, lambda number: number + np.uint32(1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(memory.tolist()) == {2000}


@pytest.mark.parametrize("way", ["code", "one by one"])
@pytest.mark.parametrize(
    ("before", "addend", "after"), [(5, 2, 7), (0, -1, 2**64 - 1), (2**64 - 1, 1, 0), (1, 2**64 - 1, 0)]
)
def test_a_sum_is_of_64_bits(before: int, addend: int, after: int, way: str, monkeypatch: pytest.MonkeyPatch):
    if way == "one by one":
        monkeypatch.setattr(module, "_function", lambda size: None)
    memory = np.array([1, before, 3], np.uint64)
    add(memory.ctypes.data + 8, addend)
    assert memory.tolist() == [1, after, 3]


@pytest.mark.parametrize(("machine", "size"), sorted(module.CODE))
def test_the_code_is_that_of_its_comment(machine: str, size: int, tmp_path: Path):
    objdump = next((found for name in ("llvm-mc", "llvm-mc-19") if (found := shutil.which(name))), None)
    if objdump is None:
        pytest.skip("no llvm-mc here: apt install llvm")
    words = " ".join(f"0x{byte:02x}" for byte in bytes.fromhex(module.CODE[machine, size]))
    done = subprocess.run(
        [objdump, "--disassemble", f"--triple={machine}"],
        input=words,
        capture_output=True,
        text=True,
        check=True,
    )
    text = done.stdout
    assert (
        ("lock" in text and "cmpxchg" in text)
        if machine == "x86_64"
        else ("ldaxr" in text and "stlxr" in text)
    )
    assert text.strip().endswith(("ret", "retq"))
