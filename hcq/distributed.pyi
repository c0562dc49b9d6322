# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.more.distributed."""

from hcq.frontend.more.distributed import *
