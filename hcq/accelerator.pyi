# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.accelerator."""

from hcq.frontend.accelerator import *
