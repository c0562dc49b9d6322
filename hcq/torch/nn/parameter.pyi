# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.parameter."""

from hcq.frontend.nn.parameter import *
