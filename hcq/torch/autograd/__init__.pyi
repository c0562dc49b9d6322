# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.autograd."""

from hcq.frontend.autograd import *
from hcq.torch.autograd import functional as functional
