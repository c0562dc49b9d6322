# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.utils.prune."""

from hcq.frontend.nn.utils.prune import *
