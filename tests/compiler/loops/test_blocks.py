"""A product with quantised weights walks a block in straight code, and no scale in float16 waits for a sum."""

from __future__ import annotations

import io
from dataclasses import replace

import capstone
import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from hcq import Tensor
from hcq.compiler.compile import compile_kernel
from hcq.compiler.target import Target
from hcq.frontend.core.structure import structure_of
from hcq.frontend.io.blocks import BY_NAME
from hcq.frontend.io.quantised import of_bytes
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.node import Node

ROWS, COLUMNS = 64, 1024
TARGET = Target("cpu", "x86_64", "blocks", 2, 512, 32, l1_bytes=48 << 10, l2_bytes=1 << 20, cpu="x86-64-v4")


def product(form: str) -> Node:
    """The kernel of one row times quantised weights."""
    block = BY_NAME[form]
    raw = Tensor(np.zeros(ROWS * COLUMNS // block.elements * block.size_bytes, np.uint8), device="CPU")
    x = Tensor(np.ones((1, COLUMNS), np.float32), device="CPU").realize()
    result = x.linear(of_bytes(raw, form, (ROWS, COLUMNS)))
    structure = structure_of([result.node])
    (kernel,) = schedule([result.node], structure.storages, threads=TARGET.threads).kernels
    return kernel.sink


# of 256 elements by 16: all, where there are registers for as many sums; of 256 by 8, those between which a load is
# shared, and as many more as fit into eight
@pytest.mark.parametrize(
    ("form", "cpu", "vectors"),
    [
        *((form, "x86-64-v4", 16) for form in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")),
        *(("Q4_K", "x86-64-v3", 8), ("Q3_K", "x86-64-v3", 16)),
    ],
)
def test_as_much_of_a_block_is_written_out_as_shares_its_loads(form: str, cpu: str, vectors: int) -> None:
    shown: dict[str, str] = {}
    bits = 512 if cpu == "x86-64-v4" else 256
    compile_kernel(product(form), replace(TARGET, cpu=cpu, vector_bits=bits), show=shown.__setitem__)
    sizes = [
        int(line.split(" of ")[1].split()[0])
        for line in shown["code"].splitlines()
        if line.lstrip().startswith("unroll ")
    ]
    assert np.prod(sizes) == vectors


@pytest.mark.parametrize("form", ["Q8_0", "Q4_0", "Q4_K"])
def test_a_scale_in_float16_is_put_beside_nothing_that_is_computed(form: str) -> None:
    """VPINSRW keeps the rest of a register: if that is a sum, the next product waits for it."""
    text = ELFFile(io.BytesIO(compile_kernel(product(form), TARGET).image)).get_section_by_name(".text")
    found = [
        mnemonic
        for _, _, mnemonic, _ in capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm_lite(
            text.data(), 0
        )
    ]
    assert "vcvtph2ps" in found
    assert "vpinsrw" not in found
