# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.backends."""

from typing import Any
cuda: Any
cudnn: Any
mkl: Any
mkldnn: Any
mps: Any
openmp: Any
