"""Blocks: how the quantised formats of GGUF files pack numbers, as far as sizes go.

In       a format's number in a file, or its name
Out      `Format`: name, elements and bytes of a block, and the dtype of the formats that pack nothing
Next     dequantise.py, dequantise_k.py and dequantise_grids.py (what the bytes of a block mean), gguf.py
Source   the GGUF specification, ggml's enum ggml_type (numbers) and ggml-common.h (sizes of blocks)
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.ir.dtype import DType, dtypes


class Format(NamedTuple):
    """A number format of GGUF.

    elements, size_bytes  of a block; 1 and the size of an element where nothing is packed
    dtype                 of the elements where nothing is packed; None where a block has to be taken apart
    """

    number: int
    name: str
    elements: int
    size_bytes: int
    dtype: DType | None = None


FORMATS = (
    Format(0, "F32", 1, 4, dtypes.float32),
    Format(1, "F16", 1, 2, dtypes.float16),
    Format(2, "Q4_0", 32, 18),
    Format(3, "Q4_1", 32, 20),
    Format(6, "Q5_0", 32, 22),
    Format(7, "Q5_1", 32, 24),
    Format(8, "Q8_0", 32, 34),
    Format(10, "Q2_K", 256, 84),
    Format(11, "Q3_K", 256, 110),
    Format(12, "Q4_K", 256, 144),
    Format(13, "Q5_K", 256, 176),
    Format(14, "Q6_K", 256, 210),
    Format(15, "Q8_K", 256, 292),
    Format(16, "IQ2_XXS", 256, 66),
    Format(17, "IQ2_XS", 256, 74),
    Format(18, "IQ3_XXS", 256, 98),
    Format(19, "IQ1_S", 256, 50),
    Format(20, "IQ4_NL", 32, 18),
    Format(21, "IQ3_S", 256, 110),
    Format(22, "IQ2_S", 256, 82),
    Format(23, "IQ4_XS", 256, 136),
    Format(24, "I8", 1, 1, dtypes.int8),
    Format(25, "I16", 1, 2, dtypes.int16),
    Format(26, "I32", 1, 4, dtypes.int32),
    Format(27, "I64", 1, 8, dtypes.int64),
    Format(28, "F64", 1, 8, dtypes.float64),
    Format(29, "IQ1_M", 256, 56),
    Format(30, "BF16", 1, 2, dtypes.bfloat16),
    Format(34, "TQ1_0", 256, 54),
    Format(35, "TQ2_0", 256, 66),
    Format(39, "MXFP4", 32, 17),
    Format(40, "NVFP4", 64, 36),
    Format(41, "Q1_0", 128, 18),
)
BY_NUMBER = {one.number: one for one in FORMATS}
BY_NAME = {one.name: one for one in FORMATS}
BY_DTYPE = {one.dtype: one for one in FORMATS if one.dtype is not None}
QUANTISED = tuple([one.name for one in FORMATS if one.dtype is None])
