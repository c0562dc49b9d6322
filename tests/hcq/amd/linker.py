"""LLVM's linker for AMDGPU objects, where it is installed: what people's code objects went through."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

NAMES = ("ld.lld", *(f"ld.lld-{version}" for version in range(23, 14, -1)))


def linked(image: bytes, *flags: str) -> bytes:
    """A relocatable object as ld.lld links it; the test is skipped where there is no ld.lld."""
    linker = next((found for name in NAMES if (found := shutil.which(name))), None)
    if linker is None:
        pytest.skip("ld.lld is not installed")
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "k.o"), Path(folder, "k.so")
        source.write_bytes(image)
        done = subprocess.run(
            [linker, "-shared", *flags, str(source), "-o", str(made)], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"this ld.lld does not link it: {done.stderr.strip()[:200]}")
        return made.read_bytes()


def stripped(image: bytes) -> bytes:
    """A linked object without its section table, as `llvm-strip --strip-sections` leaves it."""
    made = bytearray(image)
    struct.pack_into("<Q", made, 40, 0)  # e_shoff
    struct.pack_into("<HHH", made, 58, 0, 0, 0)  # e_shentsize, e_shnum, e_shstrndx
    return bytes(made)


def compiled_c(source: str, arch: str, *flags: str) -> bytes:
    """C as clang compiles it for a GPU, relocatable; the test is skipped where there is no clang that does."""
    clang = next(
        (found for version in range(23, 15, -1) if (found := shutil.which(f"clang-{version}"))), None
    )
    if clang is None:
        pytest.skip("clang (16 or later) is not installed")
    with tempfile.TemporaryDirectory() as folder:
        text, made = Path(folder, "k.c"), Path(folder, "k.o")
        text.write_text(source)
        words = [
            clang,
            "--target=amdgcn-amd-amdhsa",
            f"-mcpu={arch}",
            "-nogpulib",
            "-O2",
            "-c",
            "-fno-lto",
            *flags,
        ]
        done = subprocess.run([*words, str(text), "-o", str(made)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"this clang does not compile it: {done.stderr.strip()[:200]}")
        return made.read_bytes()
