# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.distributed."""

from hcq.frontend.distributed import *
