# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.optim.optimizer."""

from hcq.frontend.optim.optimizer import *
