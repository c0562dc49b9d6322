# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.cuda.amp."""

from hcq.frontend.torch.cuda.amp import *
