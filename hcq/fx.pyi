# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.functions_fx."""

from hcq.frontend.functions_fx import *
