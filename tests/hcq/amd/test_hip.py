"""Kernels in HIP C, compiled by the clang of AMD's comgr as a stranger would, loaded and run as raw objects.

Shared memory, barriers, atomics, divergent loops, arrays that are indexed at run time, 64-bit integers and doubles.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable

import numpy as np
import pytest

from hcq.amd.device import AmdDevice
from hcq.compiler.assemble import comgr
from tests.hcq.amd.kernels import compile_ir

SOURCE = r"""
#define KERNEL extern "C" __attribute__((global)) void
#define X __builtin_amdgcn_workitem_id_x()
#define G __builtin_amdgcn_workgroup_id_x()
typedef unsigned int u32;
typedef unsigned long long u64;

// how many of n bytes have each value: counted in shared memory, then added up
KERNEL histogram(u32 *counts, const unsigned char *data, int n) {
  __attribute__((shared)) static u32 local[256];
  local[X] = 0;
  __builtin_amdgcn_s_barrier();
  for (int i = G * 256 + X; i < n; i += 512)
    __atomic_fetch_add(&local[data[i]], 1u, __ATOMIC_RELAXED);
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  if (local[X])
    __atomic_fetch_add(&counts[X], local[X], __ATOMIC_RELAXED);
}

// steps until 1 of the Collatz sequence, and the largest number on the way: every work-item loops for itself
KERNEL collatz(u32 *steps, u64 *largest) {
  u64 x = G * 64 + X + 1, most = x;
  u32 count = 0;
  while (x != 1) {
    x = x & 1 ? 3 * x + 1 : x / 2;
    most = x > most ? x : most;
    ++count;
  }
  steps[G * 64 + X] = count;
  largest[G * 64 + X] = most;
}

// digits of a number in a base, written backwards into an array of its own, read again the other way
KERNEL digits(u64 *reversed, const u64 *numbers, u32 base) {
  unsigned char stack[64];
  int top = 0;
  for (u64 x = numbers[X]; x; x /= base)
    stack[top++] = x % base;
  u64 value = 0;
  for (int i = 0; i < top; ++i)
    value = value * base + stack[i];
  reversed[X] = value;
}

// a few steps of Newton's method for the root of a double
KERNEL roots(double *out, const double *in) {
  double a = in[X], x = a;
  for (int i = 0; i < 60; ++i)
    x = 0.5 * (x + a / x);
  out[X] = x;
}
"""


OLDER = {
    "gfx90a": "gfx90a",
    "gfx942": "gfx90a",
    "gfx1100": "gfx1030",
    "gfx1201": "gfx1030",
}  # with as wide waves


@functools.cache
def compiled(arch: str) -> bytes:
    """By comgr where it knows the architecture; else its clang makes LLVM IR for a sister, and llvmlite the code."""
    if not comgr.available():
        pytest.skip("needs AMD's comgr: apt install libamd-comgr2")
    known = comgr.architectures()
    if arch in known:
        return comgr.compile_hip(SOURCE, arch)
    if OLDER[arch] not in known:
        pytest.skip(f"this comgr compiles neither for {arch} nor for {OLDER[arch]}")
    numbers = comgr.library().numbers
    given = [(comgr.SOURCE, "kernels.hip", SOURCE.encode())]
    bitcode = comgr._do(
        "compile",
        numbers.source_to_bitcode,
        given,
        comgr.BITCODE,
        OLDER[arch],
        "kernels",
        comgr.HIP_OPTIONS,
        numbers.hip,
    )
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    text = str(llvm.parse_bitcode(bitcode))
    text = re.sub(r'"target-cpu"="[^"]*"', f'"target-cpu"="{arch}"', text)
    return compile_ir(re.sub(r' "target-features"="[^"]*"', "", text), arch)


@pytest.fixture(params=["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def loaded(request: pytest.FixtureRequest, open_amd: Callable[..., AmdDevice]) -> tuple[AmdDevice, bytes]:
    return open_amd(request.param), compiled(request.param)


def test_shared_memory_and_atomics_count_bytes(loaded: tuple[AmdDevice, bytes]) -> None:
    amd, image = loaded
    data = np.random.default_rng(1).integers(0, 256, 3000, dtype=np.uint8) // 3
    counts, given = amd.alloc(1024), amd.alloc(len(data))
    counts.write(bytes(1024))
    given.write(data.tobytes())
    program = amd.load(image, "histogram", args=("buffer", "buffer", "int"))
    amd.run(program, [counts, given, len(data)], grid=(2, 1, 1), block=(256, 1, 1))
    assert list(struct.unpack("<256I", counts.read())) == np.bincount(data, minlength=256).tolist()


def test_every_work_item_loops_for_itself(loaded: tuple[AmdDevice, bytes]) -> None:
    amd, image = loaded
    steps, largest = amd.alloc(4 * 256), amd.alloc(8 * 256)
    amd.run(amd.load(image, "collatz"), [steps, largest], grid=(4, 1, 1), block=(64, 1, 1))
    found = zip(struct.unpack("<256I", steps.read()), struct.unpack("<256Q", largest.read()))
    for start, (count, most) in enumerate(found, 1):
        x, path = start, [start]
        while x != 1:
            x = 3 * x + 1 if x & 1 else x // 2
            path.append(x)
        assert (count, most) == (len(path) - 1, max(path)), start


def test_arrays_of_a_work_item_and_64_bit_divisions(loaded: tuple[AmdDevice, bytes]) -> None:
    amd, image = loaded
    numbers = np.random.default_rng(2).integers(0, 2**63, 64, dtype=np.uint64)
    reversed_, given = amd.alloc(512), amd.alloc(512)
    given.write(numbers.tobytes())
    program = amd.load(image, "digits", args=("buffer", "buffer", "int"))
    amd.run(program, [reversed_, given, 7], block=(64, 1, 1))
    for number, actual in zip(numbers.tolist(), struct.unpack("<64Q", reversed_.read())):
        expected = 0
        while number:
            expected = expected * 7 + number % 7
            number //= 7
        assert actual == expected % 2**64


def test_doubles_converge(loaded: tuple[AmdDevice, bytes]) -> None:
    amd, image = loaded
    given = np.random.default_rng(3).uniform(0.01, 1e6, 64)
    out, a = amd.alloc(512), amd.alloc(512)
    a.write(given.tobytes())
    amd.run(amd.load(image, "roots"), [out, a], block=(64, 1, 1))
    assert np.allclose(np.frombuffer(out.read(), np.float64), np.sqrt(given), rtol=1e-15)
