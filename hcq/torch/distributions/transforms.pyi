# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.distributions.transforms."""

from hcq.frontend.more.distributions.transforms import *
