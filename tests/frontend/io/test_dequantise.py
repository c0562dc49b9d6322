"""Every quantised format means what the format's own library says, on blocks of random bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq import Tensor, dtypes
from hcq.frontend.io.blocks import BY_NAME, FORMATS, QUANTISED
from hcq.frontend.io.grids import grid, width
from hcq.frontend.io.quantised import of_bytes

# where float16 numbers stand in a block: random bytes there would be infinite or not a number
SCALES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q8_K": (), "IQ4_NL": (0,), "IQ4_XS": (0,), "IQ2_XXS": (0,),
    "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,), "IQ1_S": (0,), "IQ1_M": (), "TQ1_0": (52,),
    "TQ2_0": (64,), "MXFP4": (), "NVFP4": (), "Q1_0": (0,),
}  # fmt: skip


def random_blocks(form: str, count: int, seed: int = 0) -> Any:
    """Blocks of random bytes whose scales are numbers."""
    draw = np.random.default_rng(seed)
    found = draw.integers(0, 256, (count, BY_NAME[form].size_bytes), dtype=np.uint8)
    for at in SCALES[form]:
        found[:, at : at + 2] = draw.standard_normal(count).astype(np.float16).view(np.uint8).reshape(-1, 2)
    if form == "Q8_K":
        found[:, :4] = draw.standard_normal(count).astype(np.float32).view(np.uint8).reshape(-1, 4)
    if form == "MXFP4":  # exponents of every size at first, then such that sums stay finite
        found[6:, 0] = 120 + found[6:, 0] % 16
    if form == "IQ1_M":  # the upper bits of the last word are a float16's sign and most of its exponent
        found[:, 55] = (found[:, 55] & 0x0F) | 0x30
    return found


@pytest.mark.parametrize("form", QUANTISED)
def test_blocks_of_random_bytes_mean_what_the_formats_own_library_says(form: str) -> None:
    quants = pytest.importorskip("gguf.quants")
    raw = random_blocks(form, 6)
    if form == "Q8_K":  # which it does not take apart: a float32, 256 signed bytes, sums for products
        expected = (raw[:, :4].copy().view(np.float32) * raw[:, 4:260].view(np.int8)).reshape(2, -1)
    elif form == "Q1_0":  # nor this: a float16 scale, and signs of 128 elements
        signs = np.unpackbits(raw[:, 2:], axis=1, bitorder="little").astype(np.float32) * 2 - 1
        expected = (raw[:, :2].copy().view(np.float16).astype(np.float32) * signs).reshape(2, -1)
    else:
        expected = quants.dequantize(raw.reshape(2, -1), getattr(quants.GGMLQuantizationType, form))
    found = of_bytes(Tensor(raw.reshape(-1)), form, expected.shape)
    assert found.dtype is dtypes.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-7)


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def e4m3(code: int) -> float:
    """A number of four exponent and three fraction bits by the definition of OCP's 8-bit floats, without its sign."""
    exponent, fraction = code >> 3 & 15, code & 7
    return fraction / 8 * 2.0**-6 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)


def test_each_scale_of_nvfp4_is_an_e4m3_and_0x7f_and_0_make_zeros() -> None:
    raw = np.random.default_rng(1).integers(0, 256, (64, 36), dtype=np.uint8)
    raw[:, :4] = np.arange(256).reshape(64, 4)  # every scale there is, and what has a sign bit set besides
    expected = np.zeros((64, 4, 16), np.float32)
    for block, group, j in np.ndindex(64, 4, 16):
        code = int(raw[block, group])
        byte = int(raw[block, 4 + 8 * group + j % 8])
        number = byte >> 4 if j >= 8 else byte & 15
        scale = 0.0 if code == 0x7F else e4m3(code)
        expected[block, group, j] = scale * E2M1[number & 7] * (-1 if number & 8 else 1)
    found = of_bytes(Tensor(raw.reshape(-1)), "NVFP4", (64, 64))
    np.testing.assert_array_equal(found.numpy(), expected.reshape(64, 64))


@pytest.mark.parametrize("form", ["IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"])
def test_the_rows_of_a_grid_are_different(form: str) -> None:
    numbers = np.array(grid(form)).reshape(-1, width(form))
    assert len(np.unique(numbers, axis=0)) == len(numbers)


def test_sizes_of_blocks_are_those_of_the_formats_own_library() -> None:
    constants = pytest.importorskip("gguf.constants")
    for form in FORMATS:
        kind = constants.GGMLQuantizationType(form.number)
        assert kind.name == form.name
        assert constants.GGML_QUANT_SIZES[kind] == (form.elements, form.size_bytes)
