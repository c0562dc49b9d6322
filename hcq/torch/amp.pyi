# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.amp."""

from hcq.frontend.amp import *
