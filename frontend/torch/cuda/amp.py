"""hcq.torch.cuda.amp: mixed precision on GPUs, under the older names of PyTorch's programs.

In       a training step
Out      `autocast`, which needs no device; `GradScaler`
Changes  nothing by itself
Next     ../../amp/ (what they are)
"""

from __future__ import annotations

from hcq.frontend.amp import GradScaler as GradScaler
from hcq.frontend.amp import casting
from hcq.ir.dtype import DType, dtypes


class autocast(casting.autocast):
    """`hcq.autocast("cuda", dtype)`.

    >>> with hcq.torch.cuda.amp.autocast(enabled=False):
    ...     y = Tensor([[1.0]]) @ Tensor([[2.0]])
    >>> y.item()
    2.0
    """

    def __init__(
        self, enabled: bool = True, dtype: DType = dtypes.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)
