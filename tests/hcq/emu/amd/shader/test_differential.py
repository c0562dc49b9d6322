"""Two machines, one answer: random kernels compiled for the host and for the emulated GPUs store the same numbers."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.hcq.emu.amd.shader.kernels import ISAS, Loaded
from tests.hcq.emu.amd.shader.random_kernels import DTYPES, SLOT, Kernel, inputs, make
from tests.turns import seeds

ITEMS, GROUP = 128, 64


@cache
def host_results(seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """What the host computes for every work-item."""
    kernel = make(seed)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1
    )
    module = llvm.parse_assembly(kernel.host)
    with llvm.create_mcjit_compiler(module, target) as engine:
        engine.finalize_object()
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 12, ctypes.c_int64)(
            engine.get_function_address("body")
        )
        arrays = buffers(kernel, seed)
        pointers = [array.ctypes.data for array in arrays]
        for item in range(ITEMS):
            function(*pointers, item)
    return dict(zip(SLOT, arrays[1::2]))


def buffers(kernel: Kernel, seed: int) -> list[np.ndarray[Any, Any]]:
    given, out = inputs(seed, ITEMS), []
    for kind in SLOT:
        out += [given[kind], np.zeros(ITEMS * kernel.results, DTYPES[kind])]
    return out


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Equal bits, or both NaN: which NaN an invalid operation gives is not defined."""
    bits = f"u{a.dtype.itemsize}"
    equal = a.view(bits) == b.view(bits)
    return equal | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else equal


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("seed", seeds(6, of=24))
def test_a_random_kernel_stores_what_the_host_stores(arch: str, seed: int) -> None:
    kernel = make(seed)
    expected = host_results(seed)
    loaded = Loaded(kernel.gpu, arch)
    arrays = buffers(kernel, seed)
    loaded.run("body", arrays, grid=(ITEMS // GROUP, 1, 1), block=(GROUP, 1, 1), budget=10_000_000)
    for kind, actual in zip(SLOT, arrays[1::2]):
        wrong = np.nonzero(~same(expected[kind], actual))[0]
        assert not len(wrong), (
            f"seed {seed}: {kind} result {wrong[0] % kernel.results} of work-item {wrong[0] // kernel.results}: "
            f"host {expected[kind][wrong[0]]!r}, {arch} {actual[wrong[0]]!r} ({len(wrong)} differ)"
        )
