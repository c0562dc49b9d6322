# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.more.distributions."""

from hcq.frontend.more.distributions import *
