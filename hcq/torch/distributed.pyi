# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.distributed."""

from hcq.frontend.more.distributed import *
