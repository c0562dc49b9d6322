# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.signal.windows."""

from hcq.frontend.more.fourier.windows import *
