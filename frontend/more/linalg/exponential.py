"""Exponential: of square matrices, by PyTorch's name.

In       batches of square matrices of float32 or float64
Out      a lazy tensor
Next     parts.py, factors.py (the other functions of matrices)
Source   scaling and squaring, and Taylor's polynomial by blocks of powers (Paterson and Stockmeyer)

The matrix is halved until its norm is at most THETA, where a short polynomial is exact, and the result squared as
often. How often is known when the work runs, for each matrix: so all SQUARINGS steps are there, and those that one does
not need keep what it has. A norm beyond 2 ** SQUARINGS * THETA gives NaN.
"""

from __future__ import annotations

import math

from hcq.frontend.more.linalg.parts import Written, also_complex, expanded, identity, square
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

THETA = {dtypes.float32: 3.0, dtypes.float64: 1.5}
BLOCKS = 5  # so many blocks of so many powers
SQUARINGS = 16


def _polynomial(A: Tensor) -> Tensor:
    """The first terms of the series of exp(A)."""
    size = BLOCKS
    powers = [expanded(identity(A.shape[-1], A), A.shape[:-2]), A]
    while len(powers) <= size:
        powers.append(powers[-1].matmul(A).contiguous())
    result: Tensor | None = None
    for block in reversed(range(size)):
        part = powers[0] * (1.0 / math.factorial(block * size))
        for place in range(1, size):
            part = part + powers[place] * (1.0 / math.factorial(block * size + place))
        result = part if result is None else result.matmul(powers[size]) + part
    assert result is not None
    return result


def _exp(A: Tensor) -> Tensor:
    norm = A.abs().sum(-2).amax(-1)
    steps = (norm / THETA[A.dtype]).maximum(1.0).log2().ceil()
    result = _polynomial((A * (-steps).exp2().unsqueeze(-1).unsqueeze(-1)).contiguous())
    left = steps.unsqueeze(-1).unsqueeze(-1)
    for _ in range(SQUARINGS):
        left, result = left.contiguous(), result.contiguous()  # so that one kernel serves all steps
        result = (left > 0).where(result.matmul(result), result)
        left = left - 1.0
    return result.masked_fill(left > 0, float("nan"))


def _slope(value: Tensor, g: Tensor, A: Tensor) -> Tensor:
    """The upper right quarter of exp([[A.T, g], [0, A.T]])."""
    n = A.shape[-1]
    upper = Tensor.cat([A.mT, g], dim=-1)
    lower = Tensor.cat([A.mT * 0.0, A.mT], dim=-1)
    return matrix_exp(Tensor.cat([upper, lower], dim=-2))[..., :n, n:]


_EXP = Written("matrix_exp", _slope)


@also_complex
@checked
def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices: I + A + A @ A / 2 + ...

    >>> matrix_exp(Tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    square("matrix_exp", A)
    return _EXP.of(_exp(A.detach()), A) if A.numel() else A.reshape(A.shape)
