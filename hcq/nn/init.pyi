# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.nn.init."""

from hcq.frontend.nn.init import *
