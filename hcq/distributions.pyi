# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.distributions."""

from hcq.frontend.distributions import *
