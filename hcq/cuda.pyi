# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.cuda."""

from hcq.frontend.cuda import *
