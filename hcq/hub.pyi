# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.hub."""

from hcq.frontend.hub import *
