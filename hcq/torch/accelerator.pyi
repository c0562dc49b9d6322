# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.accelerator."""

from hcq.frontend.torch.accelerator import *
