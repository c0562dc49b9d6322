# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.fft."""

from hcq.frontend.more.fourier.fft import *
