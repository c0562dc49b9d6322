# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.func."""

from hcq.frontend.more.transforms import *
