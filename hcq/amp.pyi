# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.amp."""

from hcq.frontend.amp import *
