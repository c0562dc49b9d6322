# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.init."""

from hcq.frontend.nn.init import *
