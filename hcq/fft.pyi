# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.functions_fft."""

from hcq.frontend.functions_fft import *
