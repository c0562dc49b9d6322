"""Large results of CPUs go past the caches, a whole line at a time, and are in memory when their kernel is done."""

from __future__ import annotations

import io
from collections.abc import Callable

import capstone
import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from hcq import Tensor
from hcq.compiler.compile import compile_kernel
from hcq.compiler.target import Target
from hcq.frontend.core.structure import structure_of
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node

TARGET = Target("cpu", "x86_64", "streams", 2, 512, 32, l1_bytes=48 << 10, l2_bytes=1 << 20, cpu="x86-64-v4")
LARGE = (1 << 12, 1 << 11)  # float32: 32 MiB
SMALL = (1 << 12, 1 << 10)


def memory(*shape: int, dtype=dtypes.float32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device="CPU").realize()


def kernel_of(result: Tensor) -> Node:
    structure = structure_of([result.node])
    (kernel,) = schedule([result.node], structure.storages, threads=TARGET.threads).kernels
    return kernel.sink


def instructions(sink: Node) -> list[str]:
    """Mnemonics of the object, in order."""
    text = ELFFile(io.BytesIO(compile_kernel(sink, TARGET).image)).get_section_by_name(".text")
    return [
        found[2]
        for found in capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm_lite(text.data(), 0)
    ]


WORK: dict[str, Callable[..., Tensor]] = {
    "sum": lambda *shape: memory(*shape) + memory(*shape),
    "transpose": lambda *shape: memory(*shape[::-1]).T.contiguous(),
    "softmax": lambda *shape: memory(*shape).softmax(-1),
    "running-sums": lambda *shape: memory(*shape).cumsum(1),
}


@pytest.mark.parametrize("name", WORK)
def test_a_large_result_is_stored_past_the_caches_and_fenced(name: str) -> None:
    made = instructions(kernel_of(WORK[name](*LARGE)))
    streamed = [i for i, mnemonic in enumerate(made) if mnemonic.startswith("vmovnt")]
    assert streamed
    assert made.index("sfence") > 0
    assert made[made.index("sfence") :].count("ret") == made.count("ret") == 1


@pytest.mark.parametrize("name", WORK)
def test_a_result_that_a_cache_holds_is_stored_there(name: str) -> None:
    made = instructions(kernel_of(WORK[name](*SMALL)))
    assert not [mnemonic for mnemonic in made if mnemonic.startswith("vmovnt") or mnemonic == "sfence"]


def test_what_a_kernel_reads_as_well_is_in_the_caches_already() -> None:
    x = memory(*LARGE)
    x.assign(x * 2)
    assert "sfence" not in instructions(kernel_of(x))


def test_only_rows_that_begin_with_a_line_are_streamed() -> None:
    """Of rows of 2049 numbers, that is one in sixteen."""
    made = instructions(kernel_of(memory((1 << 11) + 1, 1 << 12).T.contiguous()))
    assert len([mnemonic for mnemonic in made if mnemonic.startswith("vmovnt")]) == 1


def test_large_results_are_right() -> None:
    data = np.arange(LARGE[0] * LARGE[1], dtype=np.float32).reshape(LARGE)
    x = Tensor(data, device="CPU")
    np.testing.assert_array_equal((x + x).numpy(), data + data)
    np.testing.assert_array_equal(x.T.contiguous().numpy(), data.T)
    y = (x + 1).realize()  # read by the next kernel at once
    np.testing.assert_array_equal((y - x).numpy(), np.ones_like(data))
