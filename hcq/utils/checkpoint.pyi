# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.utils.checkpoint."""

from hcq.frontend.utils.checkpoint import *
