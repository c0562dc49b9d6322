# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.more.transforms."""

from hcq.frontend.more.transforms import *
