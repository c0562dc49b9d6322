# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.autograd."""

from hcq.frontend.autograd import *
