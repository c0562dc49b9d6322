"""Products: matrices, sums over products by name.

In       tensors
Out      tensors
Changes  table.py's table
Next     conv.py (windows), quantize.py (products of quantised integers), attention.py
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.more.onnx.operators.math import same_dtype
from hcq.frontend.more.onnx.table import operator, operators
from hcq.frontend.tensor import Tensor


@operator("Gemm", since=7)
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """alpha * a @ b + beta * c."""
    product = (a.transpose(0, 1) if transA else a) @ (b.transpose(0, 1) if transB else b)
    product = product if alpha == 1 else product * alpha
    if c is not None and beta:
        product = product + (c if beta == 1 else c * beta)
    return same_dtype(a, product)


operators(
    {
        "MatMul": (1, lambda a, b: same_dtype(a, a @ b)),  # products of matrices, in batches
        # sums over products, by an equation
        "Einsum": (12, lambda *tensors, equation: Tensor.einsum(equation.replace(" ", ""), *tensors)),
    }
)
