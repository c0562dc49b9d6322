# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.random."""

from hcq.frontend.functions.random import *
