# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.optim.lr_scheduler."""

from hcq.frontend.optim.lr_scheduler import *
