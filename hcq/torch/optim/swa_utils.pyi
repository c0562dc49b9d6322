# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.optim.swa_utils."""

from hcq.frontend.optim.swa_utils import *
