# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.testing."""

from hcq.frontend.torch.testing import *
