# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.functions_random."""

from hcq.frontend.functions_random import *
