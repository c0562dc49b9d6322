"""Products of groups: rows, columns or inner elements of a matrix, each group with a matrix of its own.

In       matrices, and where each group ends
Out      grouped_mm, lazy
Next     functional.py (where it is found)

Where groups end is known on the device alone, so every group is computed for all, and what is not its own is zero.
"""

from __future__ import annotations

from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.arguments import checked
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType


@checked
def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """Products of g pairs of matrices, of which the ones of one side may be parts of a single matrix.

    mat_a, mat_b   (g, m, k) and (g, k, n) -> (g, m, n), without offs
                   (m, k) and (g, k, n) -> (m, n): groups of rows; (g, m, k) and (k, n) -> (m, n): groups of columns
                   (m, k) and (k, n) -> (g, m, n): groups of inner elements
    offs           (g,): where each group ends; what is behind the last one is zero
    Raises         UsageError for sizes that do not meet, and for a bias, which PyTorch refuses, too

    >>> a, b = Tensor([[1.0], [2.0], [3.0]]), Tensor([[[10.0]], [[100.0]]])
    >>> nn.functional.grouped_mm(a, b, offs=hcq.tensor([1, 3])).tolist()
    [[10.0], [200.0], [300.0]]
    """
    ranks = (mat_a.ndim, mat_b.ndim)
    if ranks not in ((2, 2), (2, 3), (3, 2), (3, 3)) or mat_a.shape[-1] != mat_b.shape[-2]:
        raise UsageError(
            f"[grouped_mm] {mat_a.shape} and {mat_b.shape}: give (m, k) or (g, m, k), (k, n) or (g, k, n)."
        )
    if bias is not None:
        raise UsageError("[grouped_mm] bias: add it to the result.")
    if (offs is None) != (ranks == (3, 3)) or (ranks == (3, 3) and mat_a.shape[0] != mat_b.shape[0]):
        raise UsageError(
            f"[grouped_mm] {mat_a.shape} and {mat_b.shape}: give offs, unless both have as many matrices."
        )
    kind = out_dtype or mat_a.dtype
    if offs is None:
        return mat_a.matmul(mat_b).cast(kind)
    groups = mat_b.shape[0] if ranks == (2, 3) else mat_a.shape[0] if ranks == (3, 2) else offs.shape[0]
    if offs.shape != (groups,) or not offs.dtype.is_integer:
        raise UsageError(
            f"[grouped_mm] offs {offs.dtype.name} {offs.shape}: give the ends of {groups} groups."
        )
    size = mat_b.shape[-1] if ranks == (3, 2) else mat_a.shape[0] if ranks == (2, 3) else mat_a.shape[1]
    line, ends = Tensor.arange(size, device=offs.device), offs.unsqueeze(1)
    is_own = (line < ends) & (line >= ends.pad((0, 0, 1, 0))[:-1])
    if ranks == (2, 3):
        return is_own.unsqueeze(-1).where(mat_a, 0.0).matmul(mat_b).sum(0).cast(kind)
    if ranks == (3, 2):
        return is_own.unsqueeze(1).where(mat_a.matmul(mat_b), 0.0).sum(0).cast(kind)
    return is_own.unsqueeze(1).where(mat_a, 0.0).matmul(mat_b).cast(kind)
