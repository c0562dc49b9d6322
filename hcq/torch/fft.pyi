# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.fft."""

from hcq.frontend.functions.fft import *
