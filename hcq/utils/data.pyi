# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.utils.data."""

from hcq.frontend.utils.data import *
