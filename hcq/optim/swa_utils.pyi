# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.nn.optim.swa_utils."""

from hcq.frontend.nn.optim.swa_utils import *
