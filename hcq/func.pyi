# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.transforms."""

from hcq.frontend.transforms import *
