# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.functions_masked."""

from hcq.frontend.functions_masked import *
