# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.utils.parametrize."""

from hcq.frontend.nn.utils.parametrize import *
