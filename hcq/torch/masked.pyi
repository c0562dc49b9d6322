# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.masked."""

from hcq.frontend.functions.masked import *
