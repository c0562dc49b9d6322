# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.nn.utils.parametrizations."""

from hcq.frontend.nn.utils.parametrizations import *
