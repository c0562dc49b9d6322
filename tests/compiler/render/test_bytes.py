"""On x86 a single byte becomes a float by a table; the product with it, or its negative, is what it was."""

from __future__ import annotations

import io

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

TARGET = Target("cpu", "x86_64", "bytes", 2, 512, 32, l1_bytes=48 << 10, l2_bytes=1 << 20, cpu="x86-64-v4")


def scaled(numbers: Tensor, factors: Tensor, x: Tensor) -> Tensor:
    """Rows of x times a number and a factor of their own, and less that."""
    scale = factors * numbers.cast(dtypes.float32)
    return x * scale - scale


def compiled(dtype: str) -> tuple[str, list[str]]:
    """The kernel as LLVM IR, and its mnemonics."""
    numbers = Tensor(np.zeros((256, 1), dtype), device="CPU").realize()
    factors, x = (Tensor.empty(256, size, device="CPU").realize() for size in (1, 64))
    result = scaled(numbers, factors, x)
    structure = structure_of([result.node])
    (kernel,) = schedule([result.node], structure.storages, threads=TARGET.threads).kernels
    shown: dict[str, str] = {}
    image = compile_kernel(kernel.sink, TARGET, show=shown.__setitem__).image
    text = ELFFile(io.BytesIO(image)).get_section_by_name(".text")
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    return shown["code"], [it[2] for it in decoder.disasm_lite(text.data(), 0)]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_byte_is_its_number_in_every_lane(dtype: str) -> None:
    draw = np.random.default_rng(0)
    numbers = np.arange(256).astype(np.uint8).view(dtype).reshape(256, 1)
    factors, x = (draw.standard_normal((256, size)).astype(np.float32) for size in (1, 64))
    scale = factors.astype(np.float64) * numbers
    found = scaled(Tensor(numbers), Tensor(factors), Tensor(x)).numpy()
    np.testing.assert_allclose(found, x * scale - scale, rtol=1e-5, atol=1e-5 * np.abs(scale).max())


@pytest.mark.parametrize(("dtype", "table"), [("uint8", "bytes.unsigned"), ("int8", "bytes.signed")])
def test_a_scale_of_a_vector_is_loaded_and_not_converted(dtype: str, table: str) -> None:
    code, mnemonics = compiled(dtype)
    assert f"@{table}" in code
    assert not any(mnemonic.startswith(("vcvtsi2ss", "vcvtusi2ss")) for mnemonic in mnemonics)
