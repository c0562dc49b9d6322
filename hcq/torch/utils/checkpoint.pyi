# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.utils.checkpoint."""

from hcq.frontend.autograd.checkpoint import *
