"""Golden programs: some twenty tensor programs whose kernels are kept, reviewed, in kernels_golden/.

In       nothing: inputs are zeros, and what is in them does not matter
Out      `PROGRAMS`: name -> a function that makes the result, not yet computed
Next     golden_text.py (what becomes of their kernels), golden.py (the command)

Small enough for an emulated GPU, large enough that every decision of the heuristics shows: tiles, threads, matrix
units, partial steps.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq import Tensor
from hcq.frontend.nn import functional
from hcq.ir.dtype import DType, dtypes

Make = Callable[[], Tensor]


def memory(*shape: int, dtype: DType = dtypes.float32) -> Tensor:
    """A tensor in memory."""
    return Tensor.zeros(*shape, dtype=dtype).contiguous().realize()


def _product(dtype: DType, m: int = 256, n: int = 256, k: int = 128) -> Make:
    return lambda: memory(m, k, dtype=dtype) @ memory(k, n, dtype=dtype)


def _scaled_product() -> Tensor:
    a, b = (memory(rows, 256, dtype=dtypes.fp8e4m3) for rows in (128, 96))
    of_a, of_b = (memory(rows, 8, dtype=dtypes.uint8) for rows in (128, 96))
    blocks = functional.ScalingType.BlockWise1x32
    return functional.scaled_mm(a, b.T, of_a, blocks, of_b, blocks)


def _layer_norm() -> Tensor:
    x, weight, bias = memory(64, 512), memory(512), memory(512)
    return x.layer_norm((512,), weight, bias)


def _attention() -> Tensor:
    q, k, v = (memory(1, 2, 128, 64, dtype=dtypes.float16) for _ in range(3))
    return q.scaled_dot_product_attention(k, v)


def _weight_gradient() -> Tensor:
    x, weight = memory(4, 8, 16, 16), memory(16, 8, 3, 3)
    weight.requires_grad = True
    (x.conv2d(weight, padding=1) * memory(4, 16, 16, 16)).sum().backward()
    assert weight.grad is not None
    return weight.grad


def _narrow_convolution() -> Tensor:
    x, weight = memory(2, 64, 16, 16, dtype=dtypes.float16), memory(64, 64, 3, 3, dtype=dtypes.float16)
    return x.conv2d(weight, padding=1)


PROGRAMS: dict[str, Make] = {
    "elementwise_chain": lambda: (memory(1000, 64) * 2 + memory(64)).relu(),
    "cast": lambda: memory(64, 256).cast(dtypes.float16),
    "transpose": lambda: memory(128, 256).T.contiguous(),
    "concatenation": lambda: memory(32, 64).cat(memory(32, 100), dim=1),
    "gather": lambda: memory(100, 64)[memory(50, dtype=dtypes.int32)],
    "row_sum": lambda: (memory(256, 512) * 0.5).sum(1),
    "column_sum": lambda: memory(512, 256).sum(0),
    "sum_of_all": lambda: memory(1 << 19).sum(),
    "maximum_place": lambda: memory(64, 1000).argmax(1),
    "softmax": lambda: memory(64, 512).softmax(-1),
    "layer_norm": _layer_norm,
    "running_sum": lambda: memory(64, 512).cumsum(1),
    "sort": lambda: memory(8, 512).sort(1)[0],
    "matmul_float32": _product(dtypes.float32),
    "matmul_float16": _product(dtypes.float16),
    "matmul_bfloat16": _product(dtypes.bfloat16),
    "matmul_int8": lambda: (
        memory(64, 256, dtype=dtypes.int8).cast(dtypes.int32)
        @ memory(256, 64, dtype=dtypes.int8).cast(dtypes.int32)
    ),
    "matmul_ragged": _product(dtypes.float16, 100, 70, 50),
    "matmul_scaled": _scaled_product,
    "vector_matrix": _product(dtypes.float32, 1, 512, 512),
    "convolution": lambda: memory(4, 16, 14, 14).conv2d(memory(32, 16, 3, 3), padding=1),
    "convolution_float16": _narrow_convolution,
    "convolution_gradient": _weight_gradient,
    "padded_window_maximum": lambda: memory(4, 8, 15, 15).max_pool2d(3, stride=2, padding=1),
    "attention": _attention,
}
