# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.attention."""

from hcq.frontend.nn.attention import *
