# fmt: off
"""Written by `make docs`: what type checkers see of hcq.frontend.functions_testing."""

from hcq.frontend.functions_testing import *
