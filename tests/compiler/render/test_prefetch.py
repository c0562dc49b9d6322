"""Kernels of CPUs that sum along large arrays of bytes ask for what comes; others leave that to the processor."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import capstone
import pytest
from elftools.elf.elffile import ELFFile

from hcq import Tensor
from hcq.compiler.compile import compile_kernel
from hcq.compiler.target import Target
from hcq.frontend.core.structure import structure_of
from hcq.frontend.io.blocks import BY_NAME
from hcq.frontend.io.quantised import of_bytes
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.dtype import dtypes

TARGET = Target("cpu", "x86_64", "ahead", 2, 512, 32, l1_bytes=48 << 10, l2_bytes=1 << 20, cpu="x86-64-v4")


def memory(*shape: int, dtype=dtypes.float32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device="CPU").realize()


def product(form: str, rows: int) -> Tensor:
    """One row times quantised weights (rows, 1024)."""
    block = BY_NAME[form]
    raw = memory(rows * 1024 // block.elements * block.size_bytes, dtype=dtypes.uint8)
    return memory(1, 1024).linear(of_bytes(raw, form, (rows, 1024)))


def asked_for(result: Tensor, target: Target = TARGET) -> list[int]:
    """How far behind its register each prefetch of the kernel looks."""
    structure = structure_of([result.node])
    (kernel,) = schedule([result.node], structure.storages, threads=target.threads).kernels
    text = ELFFile(io.BytesIO(compile_kernel(kernel.sink, target).image)).get_section_by_name(".text")
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    found = [it for it in decoder.disasm(text.data(), 0) if it.mnemonic.startswith("prefetch")]
    assert {it.mnemonic for it in found} <= {"prefetcht0"}
    return sorted(it.operands[0].mem.disp for it in found)


# a step is four blocks of 34 bytes, and one of 144: three lines hold it
@pytest.mark.parametrize("form", ["Q8_0", "Q4_K"])
def test_a_step_along_quantised_weights_asks_for_the_lines_of_a_later_one(form: str) -> None:
    places = asked_for(product(form, 1024))
    assert [place - places[0] for place in places] == [0, 64, 128]


def product_of_bytes(m: int, k: int, n: int) -> Tensor:
    """A product of two matrices of bytes, summed in int32."""
    a, b = memory(m, k, dtype=dtypes.int8), memory(k, n, dtype=dtypes.int8)
    return a.cast(dtypes.int32) @ b.cast(dtypes.int32)


WORK: dict[str, Callable[[], Tensor]] = {
    "small-weights": lambda: product("Q8_0", 64),
    "sum-of-floats": lambda: memory(1024, 1024).sum(1),
    "product-of-bytes": lambda: product_of_bytes(512, 1024, 512),
    "bytes-one-by-one": lambda: memory(1024, 1024, dtype=dtypes.uint8) + 1,
}


@pytest.mark.parametrize("name", WORK)
def test_others_ask_for_nothing(name: str) -> None:
    assert asked_for(WORK[name]()) == []


def test_rows_of_bytes_that_lie_apart_ask_for_nothing_where_each_step_reads_a_word_of_each() -> None:
    target = replace(TARGET, key="dots", cpu="icelake-server", flags=frozenset(("avx512_vnni", "avx512vl")))
    assert asked_for(product_of_bytes(1024, 1024, 1024), target) == []
