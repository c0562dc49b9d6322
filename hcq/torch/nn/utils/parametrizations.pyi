# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.utils.parametrizations."""

from hcq.frontend.nn.utils.parametrizations import *
