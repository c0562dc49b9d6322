# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.autograd.functional."""

from hcq.frontend.autograd.functional import *
