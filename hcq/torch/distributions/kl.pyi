# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.distributions.kl."""

from hcq.frontend.more.distributions.kl import *
