# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.utils.stateless."""

from hcq.frontend.nn.utils.stateless import *
